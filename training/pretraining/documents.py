"""Documents for pre-training: reading, tokenizing, and splitting into pieces at sentence ends.

Each step returns a `datasets.Dataset` in memory-mapped Arrow files in a cache folder. So a corpus may be larger than
memory, and a second run reuses the files of the first. `datasets` finds them by the arguments of each step, which
include `code_digest`: files that other code made are not used.
"""

import hashlib
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pyarrow.compute
from transformers import PreTrainedTokenizerBase

from modeling_roformer.data import Texts, find_files
from modeling_roformer.data.code_digest import code_digest
from modeling_roformer.data.data_sets import from_batches, named_cache, version_of
from modeling_roformer.data.reader import CHUNK
from modeling_roformer.model_cards import sha256_of
from modeling_roformer.tokenization.segmentation import JiebaSegmenter
from modeling_roformer.tokenization.wordpiece import PREFIX

from ..errors import TrainingError, raises_training_error
from ..runs.device import processes

SPECIAL_TOKENS = 2  # [CLS] and [SEP] around a piece
_CHARACTERS_PER_TOKEN = 1.5  # limit of a Chinese piece, per token of its length, as in the original script
_CHINESE_CHARACTERS_PER_TOKEN = 3  # a text with more characters per token is not Chinese
_SENTENCE_END = re.compile("[\n。]")
_DOCUMENTS_PER_BATCH = 100  # documents in memory at once
_PIECES_PER_CHECKSUM = 10_000  # pieces in memory at once; a checksum depends on it


@raises_training_error()
def files_of(source: str | Path) -> Sequence[str | Path]:
    """Return the files of a folder that a corpus has, as `modeling_roformer.data.find_files` finds them, or the source
    itself. Raises a TrainingError if a folder has none."""
    return find_files([source]) if Path(source).is_dir() else [source]


@raises_training_error()
def read_documents(
    sources: Sequence[str | Path], field: str = "text", sample_by: str = "line", cache: str | Path | None = None
) -> datasets.Dataset:
    """Read all documents of a corpus, in order, into the column `text`. Blank ones are left out, and counted on stderr.

    Args:
        sources: files, folders and data sets on the Hub; see `modeling_roformer.data.Texts`.
        field: column of the text, except in text files.
        sample_by: what is a document in a text file: "line", or "document" for the whole file.
        cache: folder for the Arrow files; None for the cache of `datasets`.

    Raises a TrainingError that names the source if it cannot be read or lacks the field, or if there is no text.
    """
    places = [file for source in sources for file in files_of(source)]
    arguments = {
        "sources": tuple(map(str, places)),
        "versions": tuple(version_of(Path(place)) if Path(place).exists() else "" for place in places),
        "field": field,
        "sample_by": sample_by,
    }
    kind = datasets.Value("large_string")
    batches = from_batches(
        _batches, datasets.Features(text=datasets.LargeList(kind)), cache, arguments, writer_batch_size=1
    )
    with named_cache(cache):
        texts = batches.map(
            _texts_of_batch,
            batched=True,
            batch_size=1,
            features=datasets.Features(text=kind),
            fn_kwargs={"code": code_digest()},
            desc="reading",
        )
    if not len(texts):
        raise TrainingError(f"the corpus has no text: {', '.join(map(str, sources))}")
    return texts


def _batches(sources: Sequence[str], versions: Sequence[str], field: str, sample_by: str, code: str) -> Iterator[dict]:
    """Yield lists of about a chunk of texts, which `datasets` writes faster than single ones. `versions` and `code`
    only make the cache differ."""
    texts, characters, left_out = [], 0, 0
    # A source that is named twice is read twice.
    for _, text in chain.from_iterable(Texts((source,), field, sample_by=sample_by) for source in sources):
        if text is None:
            left_out += 1
            continue
        texts.append(text)
        characters += len(text)
        if characters >= CHUNK:
            yield {"text": texts}
            texts, characters = [], 0
    yield {"text": texts}
    if left_out:
        named = ", ".join(sources[:3])
        more = f" and {len(sources) - 3:,} more" if len(sources) > 3 else ""
        print(f"{named}{more}: left out {left_out:,} rows without a text", file=sys.stderr)


def _texts_of_batch(batch: dict[str, list[list[str]]], code: str) -> dict[str, list[str]]:
    """Return the texts of one batch; `code` only makes the cache differ."""
    return {"text": batch["text"][0]}


class DocumentTokenizer:
    """Function for a batched `Dataset.map` that tokenizes documents and finds the starts of words and the ends of
    sentences.

    Words are masked as a whole. With a word-level vocabulary a word is a token with its continuation pieces, with a
    character-level one it is a word of jieba.

    Args:
        tokenizer: any fast tokenizer. Special tokens in a document are treated as text.
        segmentation: "jieba", or None: a word is a token with its continuations. "auto" is "jieba" for a tokenizer of
            this package that does not segment words itself, else None.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, segmentation: str | None = "auto"):
        self.tokenizer = tokenizer
        self.code = code_digest()  # which only makes the cache differ
        if segmentation == "auto":
            segmentation = "jieba" if getattr(tokenizer, "word_segmentation", "") is None else None
        self.segment = JiebaSegmenter() if segmentation == "jieba" else None
        entries = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.is_continuation = np.array([(entry or "").startswith(PREFIX) for entry in entries])

    def features(self) -> datasets.Features:
        kind = "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"
        return datasets.Features(
            input_ids=datasets.LargeList(datasets.Value(kind)),
            word_starts=datasets.LargeList(datasets.Value("bool")),
            token_ends=datasets.LargeList(datasets.Value("int64")),
            character_ends=datasets.LargeList(datasets.Value("int64")),
        )

    def __call__(self, batch: dict[str, list[str]]) -> dict[str, list[np.ndarray]]:
        """Return the columns `input_ids`; `word_starts`, whether each token starts a word; `token_ends` and
        `character_ends`, the numbers of tokens and characters up to the end of each sentence."""
        encoding = self.tokenizer(
            batch["text"],
            add_special_tokens=False,
            split_special_tokens=True,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        columns = {name: [] for name in self.features()}
        for text, ids, offsets in zip(batch["text"], encoding["input_ids"], encoding["offset_mapping"], strict=True):
            ids = np.array(ids, dtype=np.int64)
            places = np.array(offsets, dtype=np.int64).reshape(-1, 2)[:, 0]  # position of each token's first character
            starts = ~self.is_continuation[ids]
            if self.segment is not None:
                lengths = [len(word) for word in self.segment(text)]
                word_of_character = np.repeat(np.arange(len(lengths)), lengths)
                starts &= np.diff(word_of_character[places], prepend=-1) != 0
            ends = [found.end() for found in _SENTENCE_END.finditer(text)]
            if not ends or ends[-1] < len(text):
                ends.append(len(text))
            columns["input_ids"].append(ids)
            columns["word_starts"].append(starts)
            columns["token_ends"].append(np.searchsorted(places, ends))
            columns["character_ends"].append(np.array(ends))
        return columns


def tokenize_documents(
    documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, num_proc: int | None = None
) -> datasets.Dataset:
    """Apply `DocumentTokenizer`; return a row per document."""
    work = DocumentTokenizer(tokenizer)
    return documents.map(
        work,
        batched=True,
        batch_size=_DOCUMENTS_PER_BATCH,
        writer_batch_size=_DOCUMENTS_PER_BATCH,
        remove_columns=documents.column_names,
        features=work.features(),
        num_proc=num_proc,
        desc="tokenizing",
    )


def split_documents(tokens: datasets.Dataset, length: int, num_proc: int | None = None) -> datasets.Dataset:
    """Split each document into pieces of at most `length` tokens, including [CLS] and [SEP], which are added later.

    A row per piece has the number of the `document`, that of the `piece` in it, `input_ids` and `word_starts`, in numpy
    arrays.
    """
    features = datasets.Features(
        document=datasets.Value("int64"),
        piece=datasets.Value("int64"),
        input_ids=tokens.features["input_ids"],
        word_starts=tokens.features["word_starts"],
    )
    return tokens.with_format("numpy").map(
        _split_batch,
        with_indices=True,
        batched=True,
        batch_size=_DOCUMENTS_PER_BATCH,
        remove_columns=tokens.column_names,
        features=features,
        fn_kwargs={"length": length, "code": code_digest()},
        num_proc=num_proc,
        desc=f"splitting at {length}",
    )


def _split_batch(batch: dict[str, list], documents: list[int], length: int, code: str) -> dict[str, list]:
    """Return the pieces of documents; `code` only makes the cache differ."""
    columns = {"document": [], "piece": [], "input_ids": [], "word_starts": []}
    for document, ids, starts, tokens, characters in zip(documents, *batch.values(), strict=True):
        for piece, (first, last) in enumerate(piece_bounds(tokens, characters, starts, length)):
            columns["document"].append(document)
            columns["piece"].append(piece)
            columns["input_ids"].append(ids[first:last])
            columns["word_starts"].append(starts[first:last])
    return columns


def piece_bounds(
    token_ends: Sequence[int], character_ends: Sequence[int], word_starts: Sequence[bool], length: int
) -> list[tuple[int, int]]:
    """Return the bounds of the pieces of a document: the first token of each, and the token after its last.

    A piece has whole sentences, with at most 1.5 · `length` characters, as in the script that trained the original
    model. That script drops tokens over `length`; here the piece ends before a sentence that does not fit, and a
    sentence that is longer than a piece is split at a word. Texts with more than three characters per token, such as
    English, have no limit on characters.

    Args:
        token_ends, character_ends: numbers of tokens and characters up to the end of each sentence.
        word_starts: whether each token starts a word.
        length: maximum number of tokens of a piece, including [CLS] and [SEP].
    """
    room = length - SPECIAL_TOKENS
    pieces: list[tuple[int, int]] = []
    first, end = 0, 0  # tokens of the piece
    begun, ended = 0, 0  # characters of the piece
    is_chinese = len(token_ends) and character_ends[-1] <= _CHINESE_CHARACTERS_PER_TOKEN * token_ends[-1]
    longest = _CHARACTERS_PER_TOKEN * length if is_chinese else math.inf
    for token_end, character_end in zip(token_ends, character_ends, strict=True):
        if end > first and (token_end - first > room or character_end - begun > longest):
            pieces.append((first, end))
            first, begun = end, ended
        while token_end - first > room:
            last = first + room
            while last > first and not word_starts[last]:
                last -= 1
            last = last if last > first else first + room  # a word longer than a piece
            begun += (character_end - begun) * (last - first) // (token_end - first)  # estimated
            pieces.append((first, last))
            first = last
        end, ended = token_end, character_end
    if end > first:
        pieces.append((first, end))
    return [(int(first), int(last)) for first, last in pieces]


def checksum_of(pieces: datasets.Dataset) -> str:
    """Return the SHA-256 of the rows of `split_documents`, which does not depend on how their Arrow files are
    divided."""
    digest = hashlib.sha256()
    for table in pieces.with_format("arrow").iter(_PIECES_PER_CHECKSUM):
        for column in table.columns:
            if pyarrow.types.is_large_list(column.type):
                digest.update(pyarrow.compute.list_value_length(column).to_numpy())
                column = pyarrow.compute.list_flatten(column)
            digest.update(column.to_numpy())
    return digest.hexdigest()


@dataclass
class Corpus:
    """Corpus to read, tokenize and split. See `read_documents` for the fields; `num_proc` processes tokenize."""

    sources: Sequence[str | Path]
    field: str = "text"
    sample_by: str = "line"
    cache: str | Path | None = None
    num_proc: int | None = None

    def identity(self) -> list[dict[str, str] | str]:
        """Return the identity of each source: the SHA-256 of a file or of each file that is read from a folder, or the
        name of a data set on the Hub."""
        found: list[dict[str, str] | str] = []
        for source in map(Path, self.sources):
            if source.is_dir():
                found.append({str(file.relative_to(source)): sha256_of(file) for file in files_of(source)})
            else:
                found.append(sha256_of(source) if source.is_file() else str(source))
        return found

    def documents(self) -> datasets.Dataset:
        """Return the rows of `read_documents`."""
        # The main process writes the files, which the other processes read.
        with processes().main_process_first():
            return read_documents(self.sources, self.field, self.sample_by, self.cache)

    def pieces(self, tokenizer: PreTrainedTokenizerBase, length: int) -> datasets.Dataset:
        """Return the rows of `split_documents`."""
        documents = self.documents()
        with raises_training_error(), named_cache(self.cache), processes().main_process_first():
            pieces = split_documents(tokenize_documents(documents, tokenizer, self.num_proc), length, self.num_proc)
        if not len(pieces):
            raise TrainingError(f"the corpus has no tokens: {', '.join(map(str, self.sources))}")
        return pieces
