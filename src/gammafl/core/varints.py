"""Whole numbers in as few bytes as possible: LEB128, only in its shortest form.

Seven bits per byte, the lowest first. The top bit of a byte tells whether another byte follows.
"""

from gammafl.core.errors import WireError

MOST = 2**32 - 1
"""The largest number that is written: five bytes."""

_SHORT = [bytes([number]) for number in range(128)]


def written(number: int) -> bytes:
    """The bytes of a number.

    >>> written(5).hex(), written(10_250).hex()
    ('05', '8a50')
    """
    if number < 128:
        return _SHORT[number]
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7))
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
    size = len(data)
    if start < size and (first := data[start]) < 128:
        return first, start + 1
    if start + 1 < size and 0 < (second := data[start + 1]) < 128:  # most numbers are short
        return first & 127 | second << 7, start + 2
    number = shift = 0
    for at in range(start, min(start + 5, size)):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 or number > MOST:
                raise WireError("a number is not in its shortest form, or too large")
            return number, at + 1
        shift += 7
    raise WireError("message ends within a number" if size < start + 5 else "a number is too long")
