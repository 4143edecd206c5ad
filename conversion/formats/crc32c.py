"""CRC-32C as TensorFlow and LevelDB store it: masked, because the checksum of data with its own checksum is useless."""

import google_crc32c

_DELTA = 0xA282EAD8


def mask(crc: int) -> int:
    """Return the stored form of a checksum: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def masked(data) -> int:
    """Return the stored form of the CRC-32C of `data` (bytes or a contiguous NumPy array)."""
    return mask(google_crc32c.value(data))
