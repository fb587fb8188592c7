"""Vectors on the model's device: a GPU or another device of torch's. Only entries to send are copied to the host."""
