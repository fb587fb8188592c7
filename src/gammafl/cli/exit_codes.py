"""What a command's exit code means; docs/exit-codes.md tells it to users."""

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    """The command did what it was asked to do."""

    DIVERGED = 1
    """Training diverged, in some runs or in the only one. Also an error that gammafl did not foresee."""

    REFUSED = 2
    """A mistake in what was given, or a disk or network that fails; one line on standard error says what to do."""

    STOPPED = 130
    """Ctrl-C. One line on standard error says how to go on."""
