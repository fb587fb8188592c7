"""`python -m benchmarks …`, in a clone of the repository."""

from benchmarks.commands import PROGRAM, app
from gammafl.cli.entry import call

if __name__ == "__main__":
    call(app, PROGRAM)
