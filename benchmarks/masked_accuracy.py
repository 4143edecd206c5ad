"""Accuracy of masked words on held-out text by source, compared with counting baselines.

    python benchmarks/masked_accuracy.py --models DIR [DIR …] --held-out FILE [FILE …] [--train FOLDER] [--long FILE]

Each file is a source: text with one document per line, or JSON Lines. It is split into pieces of 512 tokens at sentence
ends, 15 % of whose words are replaced by [MASK] (a fixed seed), up to 20,000 masks. A masked [UNK] counts as wrong in
any case. The macro-average is the mean over sources. `examples/hold_out.py` holds documents out.

With --train, two baselines are counted in those files: the most frequent word, and the most frequent word between the
same two neighbours, or else after the left one, or before the right one.

With --long, documents of at least 6,500 characters of that file are read in windows of 512, 2,048 and 4,096 tokens with
the same masked words, with the `rope_parameters` of each model's configuration.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import reporting
import torch
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase

from modeling_roformer.data import read_texts
from modeling_roformer.training import Corpus, MaskingCollator, load_tokenizer
from modeling_roformer.training.pretraining.masking import IGNORED, uniform

LENGTH = 512
SEED = 0
LENGTHS = (512, 2_048, 4_096)  # of windows
SHARE = 0.15
BATCH = 32  # pieces
LONG = 6_500  # characters


def masked_batches(
    source: Path, tokenizer: PreTrainedTokenizerBase, cache: str, wanted: int, length: int = LENGTH
) -> list[dict]:
    """Return batches of pieces of at most `length` tokens in random order, with `wanted` masked words, or as many as
    there are."""
    pieces = Corpus([source], cache=cache).pieces(tokenizer, length)
    collator = MaskingCollator(tokenizer, SEED, share=SHARE, replaced=1, random=0)
    order = np.argsort(uniform((SEED, 0), (0, 0, 0), len(pieces)))
    batches, masked = [], 0
    for first in range(0, len(order), BATCH):
        batch = collator([{"epoch": 0, **pieces[int(row)]} for row in order[first : first + BATCH]])
        batches.append(batch)
        labels = batch["labels"].view(-1)
        masked += int((labels != IGNORED).sum())
        if masked >= wanted:
            over = (labels != IGNORED).nonzero()[:, 0][len(labels[labels != IGNORED]) - (masked - wanted) :]
            labels[over] = IGNORED
            break
    return batches


class Counts:
    """Most frequent word of each context in the training text."""

    def __init__(self, contexts: np.ndarray, words: np.ndarray, size: int):
        """Count `words` by `contexts`, int64 of shape (n,); `size` is that of the vocabulary."""
        pairs, counts = np.unique(contexts * size + words, return_counts=True)
        contexts, words = np.divmod(pairs, size)
        order = np.lexsort((counts, contexts))
        last = np.append(np.diff(contexts[order]) != 0, True)
        self.contexts, self.words = contexts[order][last], words[order][last]

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Return the word for each context, -1 for unknown contexts."""
        places = np.searchsorted(self.contexts, contexts).clip(max=len(self.contexts) - 1)
        return np.where(self.contexts[places] == contexts, self.words[places], -1)


class Counting:
    """Baselines without a model, from the tokens of the training text.

    Args:
        pieces: rows of `split_documents`.
        size: of the vocabulary.
        unknown: id that is never predicted.
    """

    def __init__(self, pieces, size: int, unknown: int):
        parts = [
            [-1, *ids.tolist()] for ids in track(pieces.with_format("numpy")["input_ids"], "counted", transient=True)
        ]
        ids = np.array([number for part in parts for number in part] + [-1], dtype=np.int64)
        self.size = size
        left, word, right = ids[:-2], ids[1:-1], ids[2:]
        known = (word >= 0) & (word != unknown)
        left, word, right = left[known], word[known], right[known]
        self.most_frequent = int(np.bincount(word).argmax())
        both, before, after = (left >= 0) & (right >= 0), left >= 0, right >= 0
        self.tables = [
            Counts((left * size + right)[both], word[both], size),
            Counts(left[before], word[before], size),
            Counts(right[after], word[after], size),
        ]

    def unigram(self, batch: dict) -> torch.Tensor:
        return torch.full_like(batch["input_ids"], self.most_frequent)

    def trigram(self, batch: dict) -> torch.Tensor:
        ids = batch["input_ids"].numpy()
        left, right = np.roll(ids, 1, axis=1), np.roll(ids, -1, axis=1)
        answers = np.full_like(ids, -1)
        for table, contexts in zip(self.tables, (left * self.size + right, left, right), strict=True):
            answers = np.where(answers < 0, table(contexts), answers)
        return torch.from_numpy(np.where(answers < 0, self.most_frequent, answers))


def score(batches: list[dict], predict, unknown: int) -> tuple[int, int]:
    """Return the number of words that `predict` finds, and of masked words."""
    right = masked = 0
    for batch in batches:
        asked = batch["labels"] != IGNORED
        labels = batch["labels"][asked]
        right += int(((predict(batch)[asked] == labels) & (labels != unknown)).sum())
        masked += len(labels)
    return right, masked


def predictions(model, batch: dict) -> torch.Tensor:
    """Return the best word at each position with a label, -1 elsewhere."""
    asked, answers = batch["labels"] != IGNORED, torch.full_like(batch["input_ids"], -1)
    with torch.inference_mode():
        hidden_states = model.base_model(batch["input_ids"], batch["attention_mask"], unpad_inputs=True)[0]
        answers[asked] = model.cls(hidden_states[asked]).argmax(-1)
    return answers


def long_documents(source: Path, tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[torch.Tensor]:
    """Return the first ids of documents with at least 6,500 characters and enough tokens."""
    texts = [text for _, text in read_texts([source]) if len(text) >= LONG]
    found = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    return [torch.tensor(ids[:tokens]) for ids in found if len(ids) >= tokens]


def windows_of(ids: torch.Tensor, length: int, cls: int, sep: int) -> torch.Tensor:
    """Split a document from its end into windows with [CLS] and [SEP]; shape (n, length)."""
    inner = length - 2
    n = len(ids) // inner
    rows = ids[len(ids) - n * inner :].view(n, inner)
    return torch.cat([torch.full((n, 1), cls), rows, torch.full((n, 1), sep)], dim=1)


def draw_masks(documents: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Return which tokens of each document are masked."""
    random = torch.Generator().manual_seed(seed)
    return [torch.rand(len(ids), generator=random) < SHARE for ids in documents]


def score_windows(
    model,
    documents: list[torch.Tensor],
    masks: list[torch.Tensor],
    length: int,
    lengths: Sequence[int],
    tokenizer,
    unknown: int = IGNORED,
) -> list[float]:
    """Return the accuracy on each document, in windows of a length, for masks that are in a window of every one of
    `lengths`. `unknown` is the id that counts as wrong."""
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    inner = [n - 2 for n in lengths]
    start = max(max(inner) % n for n in inner)  # no window, of any length, begins before this token
    accuracies = []
    for ids, masked in zip(documents, masks, strict=True):
        asked = masked & (torch.arange(len(ids)) >= start)
        batch = {
            "input_ids": windows_of(ids.masked_fill(masked, tokenizer.mask_token_id), length, *special),
            "labels": windows_of(torch.where(asked, ids, IGNORED), length, IGNORED, IGNORED),
        }
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        right, all_masked = score([batch], lambda batch: predictions(model, batch), unknown)
        accuracies.append(right / all_masked)
    return accuracies


def long_table(models: dict, tokenizer: PreTrainedTokenizerBase, chosen: argparse.Namespace) -> Table:
    """Return the accuracy of each model at the same masked words of long documents, by the length of the windows."""
    documents = long_documents(chosen.long, tokenizer, max(LENGTHS) - 2)
    if len(documents) < 2:
        raise SystemExit(f"{chosen.long} has fewer than two documents of {max(LENGTHS):,} tokens")
    masks = draw_masks(documents, SEED)
    table = Table(f"{len(documents)} documents, in windows of", *(f"{n:,}" for n in LENGTHS), "longest - shortest")
    for folder, model in models.items():
        by_length = [
            score_windows(model, documents, masks, n, LENGTHS, tokenizer, tokenizer.unk_token_id)
            for n in track(LENGTHS, folder, transient=True)
        ]
        gains = [a - b for a, b in zip(by_length[-1], by_length[0], strict=True)]
        table.add_row(
            Path(folder).name,
            *(f"{statistics.mean(accuracies):.3f}" for accuracies in by_length),
            f"{statistics.mean(gains):+.3f} ± {statistics.stdev(gains) / len(gains) ** 0.5:.3f}",
        )
    return table


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--models", nargs="+", required=True, help="folders of models with the same vocabulary")
    parser.add_argument("--held-out", type=Path, nargs="+", required=True, help="one file per source")
    parser.add_argument("--train", nargs="+", help="training text of the baselines")
    parser.add_argument("--long", type=Path, help="a source of long documents")
    parser.add_argument("--masks", type=int, default=20_000, help="most masks per source")
    chosen = parser.parse_args()
    figures = reporting.Figures(chosen.output)
    tokenizer = load_tokenizer(chosen.models[0])
    unknown = tokenizer.unk_token_id
    with tempfile.TemporaryDirectory() as cache:
        sources = {
            path.name.partition(".")[0]: masked_batches(path, tokenizer, cache, chosen.masks)
            for path in chosen.held_out
        }
        predictors = {}
        if chosen.train:
            counting = Counting(Corpus(chosen.train, cache).pieces(tokenizer, LENGTH), len(tokenizer), unknown)
            predictors = {"unigram": counting.unigram, "trigram": counting.trigram}
        models = {}
        for folder in chosen.models:
            models[folder] = AutoModelForMaskedLM.from_pretrained(folder).eval()
            if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
                raise SystemExit(f"{folder} has another vocabulary than {chosen.models[0]}: they cannot be compared")
            predictors[folder] = lambda batch, model=models[folder]: predictions(model, batch)
        results = {
            name: {source: score(batches, predict, unknown) for source, batches in track(sources.items(), name)}
            for name, predict in predictors.items()
        }
    table = Table(f"Masked words filled rightly, at {LENGTH} tokens", *sources, "macro-average")
    for name, scores in results.items():
        shares = [right / masked for right, masked in scores.values()]
        table.add_row(Path(name).name, *(f"{share:.3f}" for share in shares), f"{statistics.mean(shares):.3f}")
    table.add_section()
    table.add_row("masks", *(f"{masked:,}" for _, masked in scores.values()), "")
    with figures:
        figures.add("sources", table)
        if chosen.long:
            figures.add("lengths", long_table(models, tokenizer, chosen))


if __name__ == "__main__":
    main()
