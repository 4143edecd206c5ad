"""Documents for pre-training: reading, tokenizing, and cutting into pieces at sentence ends.

Each step returns a `datasets.Dataset` in memory-mapped Arrow files in a cache folder. So a corpus may be larger than
memory, and a second run reuses the files of the first.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import datasets
import numpy as np
import pyarrow
from transformers import PreTrainedTokenizerBase

from ...output.console import sentence_of
from ...tokenization.segmentation import JiebaSegmenter
from ...tokenization.vocabulary_maker.corpus import CorpusError, corpus_files, is_json_lines, kind_of, read_chunks
from ...tokenization.vocabulary_maker.csv_table import CSV, TSV, csv_columns, csv_rows, is_csv
from ...tokenization.wordpiece import PREFIX
from ..errors import TrainingError
from ..runs.data_sets import csv_files, is_data_set, load_data_set
from ..runs.device import processes
from ..runs.digests import digest_of_rows, file_digests
from .arguments import SAMPLE_BY

SPECIAL_TOKENS = 2  # [CLS] and [SEP] around a piece
LONGEST_PIECE = 1.5  # maximum number of characters per token of the length, as in the original script, for Chinese
CHINESE = 3  # maximum number of characters per token of a Chinese text
_SENTENCE_END = re.compile("[\n。]")
_BATCH = 100  # documents in memory at once
PARQUET = ".parquet"
_FORMAT = 2  # of the files in the cache; with another number they are written again
_FORMAT_OF_PIECES = 2  # the same, of the files with pieces


def read_documents(
    sources: Sequence[str | Path],
    cache: str | Path,
    field: str = "text",
    num_proc: int | None = None,
    sample_by: str = "line",
) -> datasets.Dataset:
    """Read all documents of a corpus, in order, into the column `text`.

    Args:
        sources: text files, JSON Lines, CSV, TSV, all also as .gz, Parquet, or folders of them. Other names are data
            sets for `datasets.load_dataset`, on this machine or on the Hub: `NAME` or `NAME:CONFIG`.
        cache: folder for the Arrow files.
        field: field of JSON Lines, or column of tables and data sets, with the text.
        num_proc: number of processes. Each reads files of its own.
        sample_by: what is a document in a text file: "line", or "document" for the whole file.

    Raises a TrainingError if there is no text or no data set with that name, a CorpusError if a file cannot be read.
    """
    if not sources:
        raise TrainingError("the corpus is empty: name files, folders or data sets")
    if sample_by not in SAMPLE_BY:
        raise TrainingError(f"sample_by is {sample_by!r}; expected one of {', '.join(SAMPLE_BY)}")
    parts: list[datasets.Dataset] = []
    found: list[str | Path] = []
    sources = [file for source in sources for file in csv_files(source, "train") or [source]]
    for are_data_sets, group in groupby(sources, is_data_set):
        names = list(group)
        found += names if are_data_sets else corpus_files(names, (CSV, TSV, PARQUET))
    for are_data_sets, group in groupby(found, lambda name: is_data_set(name) or kind_of(Path(name)) == PARQUET):
        if are_data_sets:
            parts += [_read_data_set(str(name), field, cache) for name in group]
        else:
            parts += _read_files(list(group), field, cache, num_proc, sample_by)
    if not any(map(len, parts)):
        raise TrainingError(f"the corpus has no text: {', '.join(map(str, sources))}")
    return datasets.concatenate_datasets(parts)


def _read_files(
    files: list[Path], field: str, cache: str | Path, num_proc: int | None, sample_by: str
) -> list[datasets.Dataset]:
    """Return a data set of all files in a list, or an empty list if they have no text."""
    # The cache is keyed by content: a changed file is read again, even if its size and time are the same.
    contents = file_digests(files, "checking the corpus")
    whole = [sample_by] if sample_by != "line" else []  # older versions read lines
    stamped = [(str(file), content, field, _FORMAT, *whole) for file, content in zip(files, contents, strict=True)]
    if next(_documents(stamped), None) is None:
        return []
    try:
        found = datasets.Dataset.from_generator(
            _documents,
            features=datasets.Features(text=datasets.Value("large_string")),
            cache_dir=str(cache),
            gen_kwargs={"files": stamped},
            num_proc=min(num_proc or 1, len(files)) if num_proc and len(files) > 1 else None,
            writer_batch_size=_BATCH,
        )
    except datasets.exceptions.DatasetGenerationError as error:
        raise _cause(error) from None
    return [found]


def _documents(files: list[tuple]) -> Iterator[dict[str, str]]:
    for path, _content, field, _format, *whole in files:
        chunks = read_chunks(Path(path))
        if is_csv(Path(path)):
            texts = _column(Path(path), field)
        elif whole and not is_json_lines(Path(path)):
            text = "".join(
                "\n".join(line for _, line in chunk.lines()) for chunk in chunks
            )  # each with its last line end
            texts = [text] if text and not text.isspace() else []
        else:
            texts = (text for chunk in chunks for text in chunk.documents(field))
        for text in texts:
            yield {"text": text.encode("utf-8", "replace").decode("utf-8")}  # Arrow cannot store lone surrogates


def _column(path: Path, field: str) -> Iterator[str]:
    """Yield the texts of a column of a CSV or TSV file that are not blank."""
    names = csv_columns(path)
    if names.count(field) != 1:
        raise CorpusError(
            f"{path} has {'several columns' if field in names else 'no column'} {field!r}, only {', '.join(names)}: "
            "name the one with the text with --field"
        )
    return (text for (text,), _ in csv_rows(path, [field]) if text and not text.isspace())


def _cause(error: BaseException) -> BaseException:
    """Return the error that the generator raised, without those that `datasets` wraps around it."""
    while error.__cause__ is not None and not isinstance(error, (CorpusError, OSError)):
        error = error.__cause__
    return error


def _read_data_set(name: str, field: str, cache: str | Path) -> datasets.Dataset:
    """Read a Parquet file or a data set. Rows without a text are left out."""
    options = {"data_files": name} if Path(name).is_file() else {}
    found = load_data_set("parquet" if options else name, cache=cache, **options)
    if field not in found.column_names:
        raise TrainingError(
            f"{name} has no column {field!r}, only {', '.join(found.column_names)}: name the one with the text "
            "with --field"
        )
    found = found.select_columns(field)
    if field != "text":
        found = found.rename_column(field, "text")
    if not isinstance(found.features["text"], datasets.Value) or "string" not in found.features["text"].dtype:
        raise TrainingError(f"the column {field!r} of {name} is not text")
    if found.data["text"].null_count:
        found = found.filter(lambda text: text is not None, input_columns="text")
    return found.cast_column("text", datasets.Value("large_string"))


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
        batch_size=_BATCH,
        writer_batch_size=_BATCH,
        remove_columns=documents.column_names,
        features=work.features(),
        num_proc=num_proc,
        desc="tokenizing",
    )


def cut_documents(tokens: datasets.Dataset, length: int, num_proc: int | None = None) -> datasets.Dataset:
    """Cut each document into pieces of at most `length` tokens, including [CLS] and [SEP], which are added later.

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
        _cut_batch,
        with_indices=True,
        batched=True,
        batch_size=_BATCH,
        remove_columns=tokens.column_names,
        features=features,
        fn_kwargs={"length": length, "format": _FORMAT_OF_PIECES},
        num_proc=num_proc,
        desc=f"cutting to {length}",
    )


def _cut_batch(batch: dict[str, list], documents: list[int], length: int, format: int) -> dict[str, list]:
    columns = {"document": [], "piece": [], "input_ids": [], "word_starts": []}
    for document, ids, starts, tokens, characters in zip(documents, *batch.values(), strict=True):
        for piece, (first, last) in enumerate(cut(tokens, characters, starts, length)):
            columns["document"].append(document)
            columns["piece"].append(piece)
            columns["input_ids"].append(ids[first:last])
            columns["word_starts"].append(starts[first:last])
    return columns


def cut(
    token_ends: Sequence[int], character_ends: Sequence[int], word_starts: Sequence[bool], length: int
) -> list[tuple[int, int]]:
    """Return where to cut a document: the first token of each piece and the token after its last.

    A piece has whole sentences, with at most 1.5 · `length` characters, as in the script that trained the original
    model. That script drops tokens over `length`; here the piece ends before a sentence that does not fit, and a
    sentence that is longer than a piece is cut at a word. Texts with more than three characters per token, such as
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
    is_chinese = len(token_ends) and character_ends[-1] <= CHINESE * token_ends[-1]
    longest = LONGEST_PIECE * length if is_chinese else math.inf
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


@dataclass
class Corpus:
    """Corpus to read, tokenize and cut. See `read_documents` for the fields."""

    sources: Sequence[str | Path]
    cache: str | Path
    field: str = "text"
    num_proc: int | None = None
    sample_by: str = "line"

    def __post_init__(self) -> None:
        self._tokens: tuple[PreTrainedTokenizerBase | None, datasets.Dataset | None] = None, None
        self._documents: datasets.Dataset | None = None
        self._digest: str | None = None

    @contextmanager
    def _reading_cache(self) -> Iterator[None]:
        """Raise a TrainingError that names the cache folder if a file in it is damaged, such as one that was cut
        short."""
        try:
            yield
        except (pyarrow.ArrowException, json.JSONDecodeError) as error:
            raise TrainingError(
                f"{self.cache} has a damaged file ({sentence_of(error)}): remove that folder, and the same command "
                "makes it again"
            ) from None

    def documents(self) -> datasets.Dataset:
        """Return the rows of `read_documents`."""
        if self._documents is None:
            # The main process writes the files, and the other processes find them.
            with processes().main_process_first(), self._reading_cache():
                self._documents = read_documents(self.sources, self.cache, self.field, self.num_proc, self.sample_by)
        return self._documents

    def digest(self) -> str:
        """Return the SHA-256 of the documents."""
        if self._digest is None:
            self._digest = digest_of_rows(self.documents())
        return self._digest

    def tokens(self, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Return the rows of `tokenize_documents`."""
        if self._tokens[0] is not tokenizer:
            documents = self.documents()
            with processes().main_process_first(), self._reading_cache():
                self._tokens = tokenizer, tokenize_documents(documents, tokenizer, self.num_proc)
        return self._tokens[1]

    def pieces(self, tokenizer: PreTrainedTokenizerBase, length: int) -> datasets.Dataset:
        """Return the rows of `cut_documents`."""
        tokens = self.tokens(tokenizer)
        with processes().main_process_first(), self._reading_cache():
            pieces = cut_documents(tokens, length, self.num_proc)
        if not len(pieces):
            raise TrainingError(f"the corpus has no tokens: {', '.join(map(str, self.sources))}")
        return pieces
