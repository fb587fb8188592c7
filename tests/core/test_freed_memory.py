"""Memory that a step frees is there for the next one."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from gammafl.core.freed_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
np.ones(1 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    np.ones(1 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other habits")
def test_blocks_of_a_step_are_no_new_pages_in_the_next_one() -> None:
    """A fresh process each, since the allocator learns from whatever was freed before."""
    assert faults("kept") < faults("given back") / 10
