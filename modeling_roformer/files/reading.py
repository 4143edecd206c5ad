"""Text files, read whole up to a maximum size."""

import io
import json
import os

SMALL = 16 << 20  # bytes
LARGE = 64 << 20  # bytes; the largest vocabularies have a million entries and 30 MB


def most_bytes(name):
    """Return the maximum size of a file with this name: LARGE for vocabularies and indexes, SMALL for all others."""
    is_index = str(name).endswith((".index", ".index.json"))
    return LARGE if is_index or os.path.basename(name) in ("vocab.txt", "tokenizer.json") else SMALL


def read_whole(path, encoding="utf-8", **decoding):
    """Return a file's text, in UTF-8 unless `decoding`, arguments of `open`, says otherwise. ValueError: too large."""
    data = read_bytes(path, most_bytes(path))
    return io.TextIOWrapper(io.BytesIO(data), encoding, **decoding).read()


def read_json(path, default=None, **decoding):
    """Return the JSON object in a file, or `default` if that is not None and there is no such file.

    It is in UTF-8 unless `decoding`, arguments of `bytes.decode`, says otherwise.

    Raises:
        ValueError: the file, which is named, is too large, is not a JSON object, or has a field twice at any depth.
    """
    if default is not None and not os.path.isfile(path):
        return default
    return json_object(path, most_bytes(path), **decoding)


def json_object(path, most, encoding="utf-8", errors="strict"):
    """Return the JSON object in a file of at most `most` bytes.

    Raises:
        ValueError: the file, which is named, is too large, is in another encoding, is not a JSON object, or has an
            object, at any depth, with a field twice.
    """
    try:
        content = json.loads(read_bytes(path, most).decode(encoding, errors), object_pairs_hook=unique_fields)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def unique_fields(pairs):
    """Return the fields of a JSON object. Raise ValueError if one appears twice: `json` would keep the last."""
    fields = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {name[:50]!r} appears twice")
        fields[name] = value
    return fields


def read_bytes(path, most):
    """Return the content of a file; raise ValueError if it has more than `most` bytes, without reading the rest."""
    pieces, left = [], most + 1
    with open(path, "rb") as file:
        # In pieces: read(most) would allocate a buffer of `most` bytes for any file.
        while piece := file.read(min(left, 1 << 20)):
            pieces.append(piece)
            left -= len(piece)
    if left == 0:
        raise ValueError(f"it has more than {most:,} bytes, the maximum")
    return b"".join(pieces)
