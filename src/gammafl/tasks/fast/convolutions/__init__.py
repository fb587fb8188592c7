"""Convolutions in compiled loops of our own, for small images and batches on a CPU."""
