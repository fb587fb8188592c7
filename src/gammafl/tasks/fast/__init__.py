"""Accelerations that change no result: `torch_task.py` reads without them."""
