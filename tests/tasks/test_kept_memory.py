"""Freed memory is used again and not asked for anew."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from gammafl.tasks.kept_memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def work():
    blocks = [np.ones(1 << 20, np.float32) for _ in range(8)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is changed")
def test_blocks_that_were_freed_cause_no_page_faults_when_they_come_again() -> None:
    returned, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("return", "keep")
    )
    assert kept < 8 * 1024 < returned, "8 blocks have 1024 pages each"
