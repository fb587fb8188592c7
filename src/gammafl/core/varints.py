"""Whole numbers in as few bytes as they need: LEB128, in its one shortest form.

Seven bits a byte, the lowest first; the top bit of a byte says that another one follows.
"""

from gammafl.core.errors import WireError

MOST = 2**32 - 1
"""The largest number that is written: five bytes."""

_SHORT = [bytes([number]) for number in range(128)]


def written(number: int) -> bytes:
    """
    >>> written(5).hex(), written(10_250).hex()
    ('05', '8a50')
    """
    if number < 128:
        return _SHORT[number]
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def size(number: int) -> int:
    """Bytes of `written(number)`.

    >>> size(127), size(128), size(2**32 - 1)
    (1, 2, 5)
    """
    return max(1, (number.bit_length() + 6) // 7)


def read(data: bytes, start: int) -> tuple[int, int]:
    """The number at `start`, and where it ends."""
    number = shift = 0
    for at in range(start, min(start + 5, len(data))):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            if (byte == 0 and shift) or number > MOST:
                raise WireError("a number is not in its shortest form, or too large")
            return number, at + 1
        shift += 7
    raise WireError("message ends within a number" if len(data) < start + 5 else "a number is too long")
