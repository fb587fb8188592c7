"""Entry points of commands. An error is one line on standard error; the exit code tells its kind."""

import io
import sys

import typer

from gammafl.cli.exit_codes import ExitCode
from gammafl.core.errors import DivergedError, GammaflError


def call(app: typer.Typer, program: str) -> None:
    """Runs `app` with the arguments of this process. `program` is its name in the help."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for λ on a terminal without Greek letters
    try:
        app(prog_name=program)
    except DivergedError as error:
        _fail(str(error), ExitCode.DIVERGED)
    except GammaflError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str, code: ExitCode = ExitCode.REFUSED) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
