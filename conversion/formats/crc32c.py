"""CRC-32C as TensorFlow and LevelDB store it: masked, because the checksum of data with its own checksum is useless."""

import google_crc32c

_DELTA = 0xA282EAD8


def extend(crc: int, data) -> int:
    """Return the CRC-32C of the data that `crc` covers, followed by `data` (bytes or a contiguous NumPy array).

    >>> mask(extend(extend(0, b"1234"), b"56789")) == masked(b"123456789")
    True
    """
    return google_crc32c.extend(crc, data)


def mask(crc: int) -> int:
    """Return the stored form of a checksum: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def masked(data) -> int:
    """Return the stored form of the CRC-32C of `data`."""
    return mask(extend(0, data))
