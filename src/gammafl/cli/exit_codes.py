"""The exit codes of commands; docs/exit-codes.md has them for users."""

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    """The command was successful."""

    DIVERGED = 1
    """Training diverged in at least one run. Also unexpected errors."""

    REFUSED = 2
    """A wrong argument or setting, or a failing disk or network. One line on standard error says what to do."""

    STOPPED = 130
    """Ctrl-C. One line on standard error says how to continue."""
