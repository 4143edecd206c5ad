"""Sentence pairs: reading them, one vocabulary for both languages, and batches by number of tokens."""

import gzip
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pandas
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ...tokenization.vocabulary_maker.corpus import TABLES, is_json_lines, kind_of
from ..errors import TrainingError
from ..runs.tables import has_csv, read_table, require_columns, texts_in

PAD, END = "<pad>", "</s>"
BYTES = 256
MOST = 10_000_000  # entries; tokenizers reserves memory for all, and ends the process if there is not enough

COLUMNS = ("source", "target")


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    columns: Sequence[str] | None = None,
    split: str = "train",
) -> datasets.Dataset:
    """Read sentence pairs from two UTF-8 text files, or from a table, into the columns `source` and `target`.

    Args:
        source, target: files, compressed (.gz) or not. Line i of one is the translation of line i of the other. If
            `target` is None, `source` is a table or a data set (see `read_table`).
        columns: names of the two columns of the table, or of the two languages in its column `translation`; default:
            `COLUMNS`, or the only two of the table, unless it is CSV: its first line may be a pair.
        split: split of a data set.

    Raises a TrainingError that names file and line: different numbers of lines, an empty line, equal files, or no such
    columns.
    """
    if target is None:
        return _table_pairs(source, columns, split)
    texts = _read(source), _read(target)
    if texts[0] == texts[1]:
        raise TrainingError(f"{source} and {target} have the same content; expected sentences and their translations")
    lines = [text.split("\n") for text in texts]
    if len(lines[0]) != len(lines[1]):
        counts = [f"{path} has {len(some):,}" for path, some in zip((source, target), lines, strict=True)]
        raise TrainingError(f"{' and '.join(counts)} lines; expected equal numbers: line i translates line i")
    for path, some in zip((source, target), lines, strict=True):
        for number, line in enumerate(some, 1):
            if not line.strip():
                raise TrainingError(f"{path}, line {number} is empty: remove that line from both files")
    return datasets.Dataset.from_dict({"source": lines[0], "target": lines[1]})


def _table_pairs(source: str | Path, columns: Sequence[str] | None, split: str) -> datasets.Dataset:
    table = read_table(source, split, lambda fields: {*(columns or COLUMNS)} <= {*fields})
    if "translation" in table and "translation" not in (
        columns or ()
    ):  # a dict by language, as data sets on the Hub have it
        for place, value in table["translation"].items():
            if not isinstance(value, dict):
                raise TrainingError(
                    f"{source}, {table.index.name} {place}: 'translation' is {value!r:.60}; expected a text per "
                    "language, or the names of two columns (--source, --target)"
                )
        table = pandas.DataFrame(table["translation"].tolist(), table.index)
    if table.empty:
        raise TrainingError(f"{source} has no sentence pairs")
    if columns is None and not {*COLUMNS} <= {*table} and len(table.columns) == 2:
        columns = [*table]
        if has_csv(source):  # its first line is read as the names, and may be a pair
            raise TrainingError(
                f"{source}: its first line may be a pair; if it names the columns, add --source {columns[0]!r} "
                f"--target {columns[1]!r}, or else put a line source,target above it"
            )
    columns = columns or COLUMNS
    require_columns(table, dict(zip(("--source", "--target"), columns, strict=True)), source)
    return datasets.Dataset.from_dict(
        {name: texts_in(table, column, source) for name, column in zip(COLUMNS, columns, strict=True)}
    )


def _read(path: str | Path) -> str:
    path = Path(path)
    if not path.is_file():
        raise TrainingError(f"{path} is not a file")
    if is_json_lines(path) or kind_of(path) in TABLES:
        raise TrainingError(
            f"{path} is JSON Lines or a table; expected a sentence per line, or one file with both columns"
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TrainingError(f"{path} cannot be read as {'gzip of ' * (path.suffix == '.gz')}UTF-8: {error}") from None
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise TrainingError(f"{path} is empty")
    return text


def hold_out(pairs: datasets.Dataset, share: float, most: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split sentence pairs at random into the larger part and a `share` of the different source sentences, at most
    `most`.

    All pairs of a source sentence are in one part: a repeated pair would test what was learned by heart.
    """
    numbers: dict[str, list[int]] = {}  # source sentence -> its pairs
    for number, source in enumerate(pairs["source"]):
        numbers.setdefault(source, []).append(number)
    count = min(int(len(numbers) * share), most)
    groups = datasets.Dataset.from_dict({"numbers": list(numbers.values())}).train_test_split(count, seed=0)
    kept, held_out = (pairs.select([*chain.from_iterable(groups[part]["numbers"])]) for part in ("train", "test"))
    return kept, held_out


def train_tokenizer(sentences: Iterable[str], size: int, longest: int) -> PreTrainedTokenizerFast:
    """Train a fast tokenizer with at most `size` entries, by byte-level byte pair encoding. It can encode and restore
    any text.

    Each text ends with `</s>`. `<pad>` is the padding token, and the decoder's first token, as in Marian. `longest` is
    the maximum number of tokens of a sentence.
    """
    if not BYTES + 2 <= size <= MOST:
        raise TrainingError(
            f"a vocabulary of {size:,} is not possible; expected {BYTES + 2} ({BYTES} bytes, {PAD} and {END}) to "
            f"{MOST:,}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])  # of the prefix
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[PAD, END], initial_alphabet=sorted(alphabet), show_progress=True
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )


class TokenBatches(torch.utils.data.Dataset):
    """All batches of a run in training order: item i is the batch of step i.

    Each epoch shuffles all pairs, sorts them by length in pools of a hundred batches, cuts the pools into batches, and
    shuffles these. Item i depends on i and the seed alone, so a run resumes from i.

    Args:
        pairs: rows with `input_ids` and `labels`.
        tokens: maximum number of source tokens, and of target tokens, of a batch, with padding.
        batches: number of batches.
        seed: seed of the order.
    """

    POOL = 100  # batches

    def __init__(self, pairs: datasets.Dataset, tokens: int, batches: int, seed: int = 0):
        self.pairs, self.tokens, self.seed, self.count = pairs, tokens, seed, batches
        lengths = [[len(ids) for ids in pairs[name]] for name in ("input_ids", "labels")]
        self.longest = np.asarray(lengths).max(0)  # of source and target, shape (n,)
        self.sizes: list[int] = []  # number of batches of each epoch that was cut so far
        # The last epoch that was read: its number, the numbers of its pairs, and where each batch ends among them.
        self.epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    @classmethod
    def once(cls, pairs: datasets.Dataset, tokens: int) -> "TokenBatches":
        """Return the batches of one epoch, for evaluation."""
        batches = cls(pairs, tokens, 1)
        batches.numbers(0)
        batches.count = batches.sizes[0]
        return batches

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[dict]:
        """Return the pairs of a batch."""
        rows = self.pairs[self.numbers(index)]
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]

    def numbers(self, index: int) -> Sequence[int]:
        """Return the numbers of the pairs of a batch."""
        for epoch in range(index + 1):  # each epoch has at least one batch
            if epoch == len(self.sizes):
                self._load(epoch)
                self.sizes.append(len(self.epoch[2]) - 1)
            if index < self.sizes[epoch]:
                if self.epoch is None or self.epoch[0] != epoch:
                    self._load(epoch)
                _, numbers, ends = self.epoch
                return numbers[ends[index] : ends[index + 1]].tolist()
            index -= self.sizes[epoch]
        raise IndexError(index)

    def _load(self, epoch: int) -> None:
        """Keep the batches of one epoch only: those of a long run would fill the memory."""
        self.epoch = None
        batches = self._cut(epoch)
        ends = np.cumsum([0, *map(len, batches)])
        self.epoch = epoch, np.fromiter(chain.from_iterable(batches), dtype=np.int64, count=ends[-1]), ends

    def _cut(self, epoch: int) -> list[list[int]]:
        """Return the numbers of the pairs of each batch of an epoch, in training order."""
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.longest))
        pool = max(1, int(self.POOL * self.tokens / self.longest.mean()))
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            numbers = order[start : start + pool]
            batch: list[int] = []
            for number in numbers[np.argsort(self.longest[numbers], kind="stable")].tolist():
                if batch and self.longest[number] * (len(batch) + 1) > self.tokens:
                    batches.append(batch)
                    batch = []
                batch.append(number)
            batches.append(batch)
        return [batches[number] for number in generator.permutation(len(batches))]
