"""Accelerations that change results by rounding at the most: `torch_task.py` reads without them."""
