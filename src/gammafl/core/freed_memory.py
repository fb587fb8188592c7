"""Keeps freed memory for the next step.

glibc returns a freed block of 128 kB or more to the system. The next step then gets new pages for tensors of that size,
and the system fills each page with zeros first. When a larger block is freed, glibc raises this limit to the block's
size, up to 32 MB.
"""

import numpy as np

LARGEST = 32 << 20
PAGES = 8192
"""An upper bound of the bytes for a block's header and its rounding to pages."""


def keep_freed_memory() -> None:
    """From now on, freed blocks below 32 MB are kept. Without glibc, nothing happens."""
    np.empty(LARGEST - PAGES, np.uint8)  # freed at once, never written
