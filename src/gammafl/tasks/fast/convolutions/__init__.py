"""Convolutions in compiled loops, for small images and batches on a CPU."""
