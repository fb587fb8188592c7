"""Accelerations. They change results at most by rounding; `torch_task.py` can be read without them."""
