"""Memory that was freed stays with the process: the tensors of a step lie where those of the step before lay.

glibc gives large blocks back to the system, which hands out new ones page by page, each cleared first: up to 600 page
faults a step of the CNN, as the heap happens to lie. Values don't depend on it.
"""

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's numbers for the two settings (malloc.h)."""
KEPT_BYTES = 1 << 28
LARGEST_KEPT_BYTES = 1 << 25
"""Half of what a thread's heap can hold; larger blocks are returned as before."""


@cache
def keep_freed_memory() -> None:
    """For the whole process, once; where the C library is another one, nothing."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(TRIM_THRESHOLD, KEPT_BYTES)
        set_option(MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
