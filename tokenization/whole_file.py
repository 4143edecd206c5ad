"""Text files that are read whole, if they are not too large, and written whole or not at all."""

import io
import json
import os
import shutil
import tempfile

# Bytes that are read of a file; the largest vocabularies have a million entries and 30 MB.
LARGE = 64 << 20
SMALL = 16 << 20


def most_bytes(name):
    """How many bytes are read of a file of this name: vocabularies and indexes may be large, settings and cards not."""
    is_large = os.path.basename(name) in ("vocab.txt", "tokenizer.json") or str(name).endswith(
        (".index", ".index.json")
    )
    return LARGE if is_large else SMALL


def read_whole(path, **decoding):
    """The text of a file, in UTF-8 unless `decoding` says otherwise, as `open` takes it.

    Raises:
        ValueError: it has more than `most_bytes` of its name (no more than that is read), or is not in that encoding.
    """
    data = read_bytes(path, most_bytes(path))
    return io.TextIOWrapper(io.BytesIO(data), **{"encoding": "utf-8"} | decoding).read()


def read_json(path, default=None, **decoding):
    """Return the JSON object in a file, read as by `read_whole`.

    Args:
        path: the file.
        default: returned if there is no such file; None raises FileNotFoundError.

    Raises:
        ValueError: names the file, which is too large, in another encoding, not JSON or not an object; or has an object, at
            any depth, with a field twice.
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
    """A dict of the fields of a JSON object, for `json.loads(object_pairs_hook=…)`, which else takes the last of a name."""
    fields = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {name[:50]!r} appears twice")
        fields[name] = value
    return fields


def read_bytes(path, most):
    """The content of a file; raises ValueError where it has more than `most` bytes, of which it reads no more."""
    pieces, left = [], most + 1
    with open(path, "rb") as file:
        # Piece by piece: a buffer for `most` bytes would be made at once, however few there are.
        while piece := file.read(min(left, 1 << 20)):
            pieces.append(piece)
            left -= len(piece)
    if left == 0:
        raise ValueError(f"it has more than {most:,} bytes, the most that are read of it")
    return b"".join(pieces)


def write_whole(path, text):
    """Write UTF-8 beside the file's final name, then rename it, so that no half file is ever seen.

    A file that is replaced hands on its mode, and a link makes room for the file; line breaks stay as they are in the text.
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
