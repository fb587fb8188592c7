"""Freed memory that is kept for the next step.

glibc gives a block of 128 kB or more back to the system when it is freed, and the next step's tensors of that size are
new pages again, each of them zeroed first. The limit is raised when a larger block is freed: then glibc takes blocks of
that size for ordinary ones, up to 32 MB.
"""

import numpy as np

LARGEST = 32 << 20
PAGES = 8192
"""What a block's header and its rounding to pages take, generously."""


def keep_freed_memory() -> None:
    """From now on blocks below 32 MB are kept when they are freed; nothing happens where there is no glibc."""
    np.empty(LARGEST - PAGES, np.uint8)  # freed at once, and never touched
