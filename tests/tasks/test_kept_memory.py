"""Freed memory is used again and not asked for anew."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from gammafl.tasks.kept_memory import keep_freed_memory
keep_freed_memory()
def work():
    blocks = [np.ones(1 << 20, np.float32) for _ in range(8)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing is changed")
def test_blocks_that_were_freed_cause_no_page_faults_when_they_come_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True)
    assert int(done.stdout) < 8 * 1024, "ten turns with 8 blocks of 1024 pages each"
