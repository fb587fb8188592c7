"""What a user can do wrong. Each message names what was wrong and what to do about it."""


class InputError(ValueError):
    """A mistake in what was given to gammafl; the command line prints it as one line, exit code 2."""


class DivergedError(InputError):
    """An update that holds NaN or infinity: training went beyond what numbers can hold."""


class ProcessDiedError(InputError):
    """One of several processes ended before its run did; the others' runs are kept."""


class WireError(InputError):
    """Bytes that are not a well-formed message of docs/wire-format.md."""


def not_installed(package: str, extra: str) -> InputError:
    """What to raise where an optional package is missing, which `extra` brings."""
    return InputError(f"this needs {package}, which is not installed: pip install 'gammafl[{extra}]'")


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)
