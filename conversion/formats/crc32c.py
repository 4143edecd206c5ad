"""CRC-32C as TensorFlow stores it.

Checksums are masked before they are written, because the checksum of data that contains its own checksums is useless.
LevelDB, whose table format TensorFlow adopted, does the same.
"""

import google_crc32c

_DELTA = 0xA282EAD8


def extend(crc: int, data) -> int:
    """The CRC-32C of what `crc` already covers followed by `data` (bytes or a contiguous NumPy array).

    >>> mask(extend(extend(0, b"1234"), b"56789")) == masked(b"123456789")
    True
    """
    return google_crc32c.extend(crc, data)


def mask(crc: int) -> int:
    """The stored form of a checksum: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def masked(data) -> int:
    """The stored form of the CRC-32C of `data`."""
    return mask(extend(0, data))
