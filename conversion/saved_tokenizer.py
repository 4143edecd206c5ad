"""The tokenizer of a saved checkpoint as one of ours, whatever class saved it: they differ in what segments words."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..tokenization import RoFormerTokenizer
from .errors import CheckpointError


def read_tokenizer(folder: Path) -> RoFormerTokenizer:
    """The tokenizer that BERT's, RoFormer's or WoBERT's class saved in a folder, as vocab.txt or as tokenizer.json."""
    if not any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json")):
        raise CheckpointError(f"{folder} holds no tokenizer: neither vocab.txt nor tokenizer.json")
    with _no_warnings():
        return RoFormerTokenizer.from_pretrained(folder)


def written_anew(old: RoFormerTokenizer, **changes: object) -> RoFormerTokenizer:
    """The same tokenizer without what only its former class understood, paths on its owner's disk among it."""
    entries = old.get_vocab()
    added = old.get_added_vocab()
    words = {
        entry: number for entry, number in entries.items() if entry not in added or entry in old.all_special_tokens
    }
    if sorted(words.values()) != list(range(len(words))):
        return old  # tokens were added between others; their places are worth more than a tidy file
    settings = {
        "do_lower_case": old.init_kwargs["do_lower_case"],
        "strip_accents": old.init_kwargs["strip_accents"],
        "word_segmentation": old.word_segmentation,
        "user_dict": old.user_dict,
        "add_sep_token": old.add_sep_token,
        "model_max_length": old.model_max_length,
        **old.special_tokens_map,
        **changes,
    }
    new = RoFormerTokenizer(dict(sorted(words.items(), key=lambda entry: entry[1])), **settings)
    for _, token in sorted(old.added_tokens_decoder.items()):
        if token.content not in words:
            new.add_tokens(token)
    return new if new.get_vocab() == entries else old


@contextmanager
def _no_warnings() -> Iterator[None]:
    """transformers warns where a tokenizer was saved by another class, which is what happens here on purpose."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
