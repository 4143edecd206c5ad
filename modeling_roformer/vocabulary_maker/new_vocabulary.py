"""Entries of a vocabulary that is made from a corpus alone: special tokens, characters, and pieces of words without Han
characters. Every word of the corpus can be composed of them, so that none becomes [UNK]."""

import string
from collections import Counter
from collections.abc import Mapping

from modeling_roformer.tokenization.wordpiece import PREFIX, Normalizer, WordPiece, is_cjk, is_punctuation

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # in the order of bert4keras
_ALWAYS = string.ascii_lowercase + string.digits + string.punctuation  # in any text to come


def is_word(text: str) -> bool:
    """Return whether a text is two or more Han characters; WordPiece has entries for parts of other words."""
    return len(text) > 1 and all(map(is_cjk, text))


def first_entries(words: Mapping[str, int]) -> list[str]:
    """Return the special tokens and the characters, the most frequent first, from the occurrences of all words.

    A character that can continue a word also has an entry with ##. ASCII characters are there even if the corpus has
    none.
    """
    counts = Counter(dict.fromkeys(_ALWAYS, 0))
    for word, n in words.items():
        for place, character in enumerate(word):
            counts[PREFIX * (place > 0 and not is_cjk(character)) + character] += n
    letters = {entry[-1] for entry in counts if not (is_cjk(entry[-1]) or is_punctuation(entry[-1]))}
    for letter in letters:
        counts[letter] += 0
        counts[PREFIX + letter] += 0
    return SPECIAL_TOKENS + sorted(counts, key=lambda entry: (-counts[entry], entry))


def word_pieces(
    others: Mapping[str, int], first: list[str], size: int, min_count: int, max_length: int
) -> dict[str, int]:
    """Train WordPiece on words; return the occurrences of each piece of two or more characters in them.

    Args:
        others: occurrences of words without Han characters.
        first: the result of `first_entries`.
        size, min_count, max_length: maximum entries, minimum occurrences of a piece, maximum characters of a word.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = sorted(word for word in others if 1 < len(word) <= max_length)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Between pairs that are equally frequent, the trainer chooses by their ids. Those of `first` are fixed as special
    # tokens; otherwise they, and so the pieces, would differ from run to run.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=first, show_progress=False
    )
    tokenizer.train_from_iterator((f"{word} " * others[word] for word in words), trainer)
    pieces = sorted(set(tokenizer.get_vocab()) - set(first))
    entries = [*first, *pieces]
    split = WordPiece({entry: i for i, entry in enumerate(entries)}, 1, Normalizer(False, False), False).split
    counts: Counter[str] = Counter()
    for word in words:
        for entry, _, _ in split(word):
            counts[entries[entry]] += others[word]
    return {piece: counts[piece] for piece in pieces if counts[piece]}
