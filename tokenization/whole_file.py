"""Text files, read whole up to a maximum size, and written atomically."""

import io
import json
import os
import re
import shutil
import tempfile

# Maximum bytes of a file; the largest vocabularies have a million entries and 30 MB.
LARGE = 64 << 20
SMALL = 16 << 20


def most_bytes(name):
    """Return the maximum size of a file with this name: LARGE for vocabularies and indexes, SMALL for all others."""
    is_index = str(name).endswith((".index", ".index.json"))
    return LARGE if is_index or os.path.basename(name) in ("vocab.txt", "tokenizer.json") else SMALL


def read_whole(path, encoding="utf-8", **decoding):
    """Return the text of a file, in UTF-8 unless `decoding`, arguments of `open`, says otherwise.

    Raises:
        ValueError: the file has more than `most_bytes` of its name, or another encoding.
    """
    data = read_bytes(path, most_bytes(path))
    return io.TextIOWrapper(io.BytesIO(data), encoding, **decoding).read()


def read_json(path, default=None, **decoding):
    """Return the JSON object in a file, read as by `read_whole`.

    Args:
        path: the file.
        default: returned if there is no such file; None raises FileNotFoundError.

    Raises:
        ValueError: names the file, which is too large, in another encoding, not JSON or not an object; or has an
            object, at any depth, with a field twice.
    """
    if default is not None and not os.path.isfile(path):
        return default
    try:
        content = json.loads(read_whole(path, **decoding), object_pairs_hook=unique_fields)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def unique_fields(pairs):
    """Return the fields of a JSON object; raise ValueError if one appears twice, where `json` keeps the last by
    default."""
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


def remove_leftovers(path):
    """Remove the temporary files that killed processes left beside `path`. No other process may be writing it."""
    for leftover in leftovers(path):
        os.unlink(leftover)


def leftovers(path):
    """Return the temporary files that `write_whole` left beside `path` in processes that were killed, or is writing."""
    folder, name = os.path.split(os.path.abspath(path))
    beside = re.compile(rf"\.{re.escape(name[:50])}[a-z0-9_]{{8}}")
    return [os.path.join(folder, entry) for entry in os.listdir(folder) if beside.fullmatch(entry)]


def write_whole(path, text):
    """Write a text in UTF-8 atomically: into a temporary file, which is then renamed to `path`.

    The mode of an existing file is kept, a link is replaced by the file, and line breaks are written as they are.
    """
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, beside = tempfile.mkstemp(dir=folder, prefix=f".{name[:50]}")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        if os.path.exists(path):
            shutil.copymode(path, beside)
        else:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o666 & ~umask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
