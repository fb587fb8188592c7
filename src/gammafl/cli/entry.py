"""Entry points of commands: a user's mistake is one line on standard error and exit code 2."""

import io
import sys

import typer

from gammafl.cli.exit_codes import ExitCode
from gammafl.core.errors import GammaflError


def call(app: typer.Typer, program: str) -> None:
    """Runs `app` with the arguments of this process; its help calls it `program`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # λ on a terminal that has no Greek
    try:
        app(prog_name=program)
    except GammaflError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(ExitCode.REFUSED)
