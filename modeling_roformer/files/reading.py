"""Text files, read whole up to a maximum size."""

import io
import os

from modeling_roformer.tokenization.vocabulary import LARGE, json_object, read_bytes

SMALL = 16 << 20  # bytes


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
        ValueError: names the file, which is too large, not JSON, no object, or has a field twice at any depth.
    """
    if default is not None and not os.path.isfile(path):
        return default
    return json_object(path, most_bytes(path), **decoding)
