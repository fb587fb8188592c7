"""Vectors where the model is: on a GPU or another device of torch's. Only what is sent crosses to the host."""
