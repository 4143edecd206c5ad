"""Documents for pre-training: read once, tokenized once, cut into pieces at sentence ends.

Each step gives a `datasets.Dataset` that lies in Arrow files in a cache folder and is mapped into memory, so that a corpus
may be many times larger than memory, and a second run finds what the first has made.
"""

import logging
import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase

from ...output.console import sentence_of
from ...tokenization.segmentation import JiebaSegmenter
from ...tokenization.vocabulary_maker.corpus import CorpusError, corpus_files, read_chunks
from ...tokenization.wordpiece import PREFIX
from ..errors import TrainingError
from ..runs.digests import digests

SPECIAL_TOKENS = 2  # [CLS] and [SEP] around a piece
LONGEST_PIECE = 1.5  # characters for each token of the length, as in the original script, which is made for Chinese
CHINESE = 3  # characters a token, at most
_SENTENCE_END = re.compile("[\n。]")
_BATCH = 100  # documents that are in memory at once
# The name of a data set, with or without its owner's.
_DATA_SET = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
_FILES = (
    ".txt", ".text", ".json", ".jsonl", ".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".csv", ".tsv", ".parquet",
    ".arrow", ".feather", ".xlsx", ".xls", ".md", ".html", ".xml", ".pdf", ".doc", ".docx",
)  # fmt: skip
_FORMAT = 1  # of the files in the cache; another number makes them anew
_FORMAT_OF_PIECES = 2  # of those among them that hold pieces


def read_documents(
    sources: Sequence[str | Path], cache: str | Path, field: str = "text", num_proc: int | None = None
) -> datasets.Dataset:
    """All documents of a corpus, in order, in the column `text`.

    Args:
        sources: text files (a document a line), JSON Lines, either as .gz, and folders of such; other names are those
            of data sets that `datasets.load_dataset` reads, on this machine or on the Hub, `NAME` or `NAME:CONFIG`.
        cache: folder for the Arrow files.
        field: where JSON Lines and data sets keep the text.
        num_proc: processes, each for files of its own.

    Raises:
        TrainingError: there is no document, or no data set of that name.
        CorpusError: a file that cannot be read.
    """
    if not sources:
        raise TrainingError("no corpus was named: give files, folders or names of data sets")
    parts: list[datasets.Dataset] = []
    for are_data_sets, group in groupby(sources, is_data_set):
        if are_data_sets:
            parts += [_read_data_set(str(name), field, cache) for name in group]
        else:
            parts += _read_files(corpus_files(group), field, cache, num_proc)
    if not any(map(len, parts)):
        raise TrainingError(f"the corpus holds no text: {', '.join(map(str, sources))}")
    return datasets.concatenate_datasets(parts)


def is_data_set(source: str | Path, also: tuple[str, ...] = ()) -> bool:
    """Whether a source is the name or the folder of a data set, and not of files that `corpus_files` finds."""
    path = Path(source)
    if path.is_dir():  # of Parquet files, say
        try:
            return not corpus_files([path], also)
        except CorpusError:
            return any(file.is_file() for file in path.rglob("*"))
    return not path.exists() and not _names_a_file(str(source))


def _names_a_file(source: str) -> bool:
    """Whether something that is not there was meant as a file or folder of this machine, which the Hub need not know of."""
    name, _, _ = source.partition(":")
    return Path(name).suffix.lower() in _FILES or not _DATA_SET.fullmatch(name)


def _read_files(files: list[Path], field: str, cache: str | Path, num_proc: int | None) -> list[datasets.Dataset]:
    """A data set of all the files, or none where they are empty."""
    # The cache goes by their content: a file that has changed is read again, even where its size and time are the old ones.
    contents = digests(files, "checking the corpus")
    stamped = [(str(file), content, field, _FORMAT) for file, content in zip(files, contents, strict=True)]
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
    for path, _content, field, _format in files:
        for chunk in read_chunks(Path(path)):
            for text in chunk.documents(field):
                yield {"text": text.encode("utf-8", "replace").decode("utf-8")}  # Arrow holds no lone surrogates


def _cause(error: BaseException) -> BaseException:
    """What was raised in the generator, from under what `datasets` makes of it."""
    while error.__cause__ is not None and not isinstance(error, (CorpusError, OSError)):
        error = error.__cause__
    return error


def load_data_set(name: str, split: str = "train", cache: str | Path | None = None) -> datasets.Dataset:
    """A split of the data set `NAME` or `NAME:CONFIG`; raises a TrainingError where it cannot be read."""
    path, _, config = name.partition(":")
    tries = logging.getLogger("huggingface_hub")
    level = tries.level
    tries.setLevel(logging.ERROR)  # each try to reach the Hub is a line
    try:
        return datasets.load_dataset(path, config or None, split=split, cache_dir=cache and str(cache))
    except Exception as error:
        reason = sentence_of(error).rstrip(".")
        raise TrainingError(f"{name} is neither a file nor a data set that can be read: {reason}") from None
    finally:
        tries.setLevel(level)


def _read_data_set(name: str, field: str, cache: str | Path) -> datasets.Dataset:
    found = load_data_set(name, cache=cache)
    if field not in found.column_names:
        raise TrainingError(
            f"the data set {name} has no column {field!r}, but {', '.join(found.column_names)} (--field names the one "
            "that holds the text)"
        )
    found = found.select_columns(field)
    if field != "text":
        found = found.rename_column(field, "text")
    if not isinstance(found.features["text"], datasets.Value) or "string" not in found.features["text"].dtype:
        raise TrainingError(f"the column {field!r} of the data set {name} holds no text")
    return found.cast_column("text", datasets.Value("large_string"))


class DocumentTokenizer:
    """Tokens of whole documents, and where words begin and sentences end; for `Dataset.map`, in batches.

    A word is what is masked as a whole: for a word-level vocabulary a token, with the pieces of a Latin word together; for
    a character-level one a word of jieba.

    Args:
        tokenizer: any fast tokenizer; text that looks like a special token is text.
        segmentation: "jieba", or None for a token, with its pieces, as a word; "auto" is "jieba" where a tokenizer of
            this package does not segment words itself.
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
        """Columns: `input_ids`; `word_starts`, whether a word begins with the token; `token_ends` and
        `character_ends`, how many tokens and characters there are up to the end of each sentence."""
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
            places = np.array(offsets, dtype=np.int64).reshape(-1, 2)[:, 0]  # of each token's first character
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
    """The columns of `DocumentTokenizer`, a row for each document."""
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
    """Pieces of at most `length` tokens, counting [CLS] and [SEP], which are not in them yet; never of two documents.

    A row of numpy arrays for each piece: `document` and `piece`, their numbers, the second within the document; `input_ids`;
    `word_starts`.
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
    """Where to cut a document: for each piece its first token and the one behind its last.

    As the script that trained the original does it, a piece takes sentences for as long as it has at most one and a half
    times `length` characters. That script then drops what is over `length` tokens; here the piece ends before the sentence
    that would be, and a sentence that is longer by itself is cut at a word. Nothing is lost. In a text of more than three
    characters a token, such as English, tokens alone count.

    Args:
        token_ends, character_ends: how many tokens and characters there are up to the end of each sentence.
        word_starts: whether a word begins with the token.
        length: most tokens of a piece, with [CLS] and [SEP].
    """
    room = length - SPECIAL_TOKENS
    pieces: list[tuple[int, int]] = []
    first, end = 0, 0  # tokens of the piece
    begun, ended = 0, 0  # and its characters
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
            last = last if last > first else first + room  # a word that is longer than a piece
            begun += (character_end - begun) * (last - first) // (token_end - first)  # as far as one can tell
            pieces.append((first, last))
            first = last
        end, ended = token_end, character_end
    if end > first:
        pieces.append((first, end))
    return [(int(first), int(last)) for first, last in pieces]
