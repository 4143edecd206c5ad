"""Over all of Unicode, our ids and offsets are those of the textbook."""

import sys
import unicodedata

import pytest
from helpers.properties import max_examples
from helpers.textbook import PLAIN, USER_DICT, WITH_USER_WORDS, WORDS, naive, texts
from helpers.tokenizer_files import VOCABULARY, WORD_VOCABULARY
from hypothesis import example, given

from modeling_roformer.tokenization import RoFormerTokenizer, wordpiece
from modeling_roformer.tokenization.wordpiece import Normalizer

TOKENIZER = RoFormerTokenizer(VOCABULARY)
CHARACTERS = RoFormerTokenizer(VOCABULARY, word_segmentation=None)
USER = RoFormerTokenizer(VOCABULARY, user_dict=USER_DICT)
CASED = RoFormerTokenizer(VOCABULARY, do_lower_case=False)


@max_examples(700)
@given(texts)
@example("\r\n\n\r \x0b\x0c\x1c\x85\u2028\u2029\u3000")
@example("a" * 201 + "今天" + "a" * 200)
@example("c++c#at&t.net3d打印t恤")
@example("\ud800今天\udfff")
@example("ΑΣ ΣΑΣ今天Σ")
def test_ids_of_any_text(text):
    assert TOKENIZER(text, add_special_tokens=False).input_ids == naive(text, PLAIN)
    assert CHARACTERS(text, add_special_tokens=False).input_ids == naive(text, None)
    assert USER(text, add_special_tokens=False).input_ids == naive(text, WITH_USER_WORDS)
    assert CASED(text, add_special_tokens=False).input_ids == naive(text, PLAIN, lower=False)


@max_examples(300)
@given(texts)
@example("e\u0301\u0302a한글İ今天")
def test_offsets_of_any_text(text):
    for tokenizer in (TOKENIZER, CHARACTERS):
        batch = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        encoding = batch[0]
        assert encoding.ids == batch.input_ids
        assert encoding.offsets == batch.offset_mapping
        last = 0
        for token, (start, end) in zip(encoding.tokens, batch.offset_mapping, strict=True):
            assert 0 <= start < end <= len(text)
            assert start >= last or start >= last - 1  # two tokens may come from one character
            last = end
            if token != "[UNK]":
                piece = unicodedata.normalize("NFD", text[start:end].lower()).replace("ς", "σ")
                marks = ("Mn",) if token in piece else ("Mn", "Cc", "Cf")
                kept = "".join(c for c in piece if unicodedata.category(c) not in marks)
                assert token.removeprefix("##").replace("ς", "σ") in kept
        numbers = encoding.word_ids
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(set(numbers))))


@pytest.mark.parametrize("n", [1, 1 << 17])
def test_memory_is_bounded(monkeypatch, n):
    monkeypatch.setattr(wordpiece, "_CACHED_WORDS", n)
    tokenizer = RoFormerTokenizer(WORD_VOCABULARY)
    for text in WORDS[:200]:
        assert tokenizer(text * 2, add_special_tokens=False).input_ids == naive(text * 2, PLAIN)
    assert len(tokenizer._word_piece.ids) <= n


def test_every_nonspacing_mark_is_dropped_and_nothing_else():
    normalizer = Normalizer(lowercase=False, strip_accents=True)
    for character in map(chr, range(sys.maxunicode + 1)):
        decomposed = unicodedata.normalize("NFD", character)
        kept = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        assert normalizer(f"中{character}é") == f"中{kept}e", repr(character)
