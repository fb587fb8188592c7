"""The errors of gammafl. Each message says what is wrong and what to do about it."""


class GammaflError(Exception):
    """The base class of all errors that gammafl raises on purpose. The command line prints them as one line.

    >>> import gammafl as gf
    >>> try:
    ...     gf.method_named("topk")
    ... except gf.GammaflError as error:
    ...     type(error).__name__
    'InputError'
    """


class InputError(GammaflError, ValueError):
    """A wrong argument, setting or file. It is also a `ValueError`.

    >>> import gammafl as gf
    >>> try:
    ...     gf.ef_sign(scope="layer")
    ... except gf.InputError as error:
    ...     print(error)
    scope must be 'global' or 'tensor', got 'layer'
    """


class WireError(GammaflError, ValueError):
    """A message or an upload that is malformed or not allowed: see docs/wire-format.md.

    >>> import gammafl as gf
    >>> try:
    ...     gf.decode(b"no")
    ... except gf.WireError as error:
    ...     print(error)
    2 bytes are shorter than the header of any message
    """


class DivergedError(GammaflError, ArithmeticError):
    """An update that holds NaN or infinity: the training has diverged. A smaller stepsize usually helps."""


class ProcessDiedError(InputError):
    """One of several processes ended before its run was finished. The runs of the others are kept."""


def not_installed(package: str, extra: str) -> InputError:
    """The error for an optional package that is missing. `extra` is the extra that installs it."""
    return InputError(f"this needs {package}, which is not installed: pip install 'gammafl[{extra}]'")


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)
