"""What can go wrong. Each message names what was wrong and what to do about it."""


class GammaflError(Exception):
    """All that gammafl raises on purpose; the command line prints it as one line."""


class InputError(GammaflError, ValueError):
    """A mistake in what was given to gammafl."""


class WireError(GammaflError, ValueError):
    """Bytes from elsewhere that are not what they should be: docs/wire-format.md."""


class DivergedError(GammaflError, ArithmeticError):
    """An update that holds NaN or infinity: training went beyond what numbers can hold."""


class ProcessDiedError(InputError):
    """One of several processes ended before its run did; the others' runs are kept."""


def not_installed(package: str, extra: str) -> InputError:
    """What to raise where an optional package is missing, which `extra` brings."""
    return InputError(f"this needs {package}, which is not installed: pip install 'gammafl[{extra}]'")


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)
