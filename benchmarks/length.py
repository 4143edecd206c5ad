"""Masked language modelling on texts longer than in training, with each kind of rope_parameters.

    python benchmarks/length.py --corpus laws.jsonl.gz [--plot length.png] [--documents 12] [--model DIR]

The first tokens of long documents, as many as the greatest length, are split into windows of each length. So every
length and kind has the same masked words (15 %, a fixed seed), with more or less context. The tables show loss and
accuracy on all masks, and the loss on masks among the last 256 positions, which end a window at every length. The
default model is examples/roformer-mini-zh, trained at 4,096.

"fitted" scales each window as needed: the factor is its length divided by the trained length, at least 1. Dynamic NTK
adapts to every text, with factor 1. "× 8" is one factor for all lengths. Standard errors are over documents, because
words of one document are not independent. It takes about five minutes on two idle cores.
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import measure
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

from modeling_roformer.conversion.converter import convert
from modeling_roformer.tokenization.vocabulary_maker.corpus import CorpusError, corpus_files, read_chunks

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "roformer-mini-zh"
FITTED = "fitted"
# Name in the tables -> rope_type and factor.
KINDS = {
    "default": ("default", None),
    "linear, fitted": ("linear", FITTED),
    "dynamic": ("dynamic", 1.0),
    "yarn, fitted": ("yarn", FITTED),
}
console = Console(width=110, highlight=False)


@dataclass
class Scores:
    """Scores, one per document."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    last_loss: list[float] = field(default_factory=list)


def rope_parameters(kind: str, length: int, trained: int, theta: float) -> dict:
    """Return the rope_parameters for windows of a length; the paper's RoPE if nothing is scaled."""
    rope_type, factor = KINDS[kind]
    factor = max(1.0, length / trained) if factor == FITTED else factor
    # At factor 1, linear and YaRN equal the paper's RoPE, and so does dynamic NTK up to the trained length.
    if (
        rope_type == "default"
        or (factor == 1.0 and rope_type != "dynamic")
        or (rope_type == "dynamic" and length <= trained)
    ):
        return {"rope_type": "default", "rope_theta": theta}
    parameters = {"rope_type": rope_type, "rope_theta": theta, "factor": factor}
    return parameters | ({} if rope_type == "linear" else {"original_max_position_embeddings": trained})


def read_documents(corpus: list[Path], tokenizer, tokens: int, wanted: int) -> list[torch.Tensor]:
    """Return the first `tokens` ids of documents of at least that length, sampled evenly from the corpus."""
    texts = [
        text
        for path in corpus_files(corpus)
        for chunk in read_chunks(path)
        for text in chunk.documents("text")
        if len(text) > tokens  # a token has at least one character
    ]
    found = []
    # A prime stride visits every document once, in distant steps.
    for i in range(len(texts)):
        ids = tokenizer(texts[i * 7919 % len(texts)], add_special_tokens=False)["input_ids"][:tokens]
        if len(ids) == tokens:
            found.append(torch.tensor(ids))
        if len(found) == wanted:
            return found
    raise SystemExit(f"the corpus has {len(found)} documents of at least {tokens:,} tokens, fewer than {wanted}")


def windows_of(ids: torch.Tensor, length: int, cls: int, sep: int) -> torch.Tensor:
    """Split a document from its end into windows with [CLS] and [SEP]; shape (n, length)."""
    inner = length - 2
    n = len(ids) // inner
    rows = ids[len(ids) - n * inner :].view(n, inner)
    return torch.cat([torch.full((n, 1), cls), rows, torch.full((n, 1), sep)], dim=1)


@torch.inference_mode()
def add_scores(model, ids, masked, counted, length: int, last: int, tokenizer, scores: Scores) -> None:
    """Add a document's scores; logits are computed at masked positions only.

    `masked` marks the masked tokens, `counted` those of them that are in a window of every length.
    """
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    inputs = windows_of(ids.masked_fill(masked, tokenizer.mask_token_id), length, *special)
    labels = windows_of(ids, length, *special)
    asked = windows_of((masked & counted).long(), length, 0, 0).bool()
    hidden = model.base_model(inputs).last_hidden_state
    logits = model.cls(hidden[asked])
    losses = torch.nn.functional.cross_entropy(logits, labels[asked], reduction="none")
    scores.loss.append(losses.mean().item())
    scores.accuracy.append((logits.argmax(-1) == labels[asked]).double().mean().item())
    # The same words for every length: those that remain beside [CLS] and [SEP] at the shortest length.
    ending = asked[-1].nonzero()[:, 0] > length - last
    scores.last_loss.append(losses[-len(ending) :][ending].mean().item())


def run(folder: str, corpus: list[Path], lengths: list[int], trained: int, chosen) -> dict[tuple[str, int], Scores]:
    """Return the scores of every kind at every length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with console.status("documents are read"):
        documents = read_documents(corpus, tokenizer, max(lengths) - 2, chosen.documents)
    random = torch.Generator().manual_seed(chosen.seed)
    masks = [torch.rand(len(ids), generator=random) < 0.15 for ids in documents]
    # No window, of any length, begins before this token.
    start = max((max(lengths) - 2) % (length - 2) for length in lengths)
    counted = torch.arange(max(lengths) - 2) >= start
    console.print(
        f"{len(documents)} documents, {sum(int((m & counted).sum()) for m in masks):,} masked tokens, of them "
        f"{sum(int(m[2 - chosen.last :].sum()) for m in masks):,} among the last {chosen.last} positions"
    )
    theta = AutoModelForMaskedLM.from_pretrained(folder).config.rope_parameters["rope_theta"]
    jobs = {(kind, length): rope_parameters(kind, length, trained, theta) for kind in KINDS for length in lengths}
    results: dict[tuple, Scores] = {}
    different = {(str(parameters), length) for (_, length), parameters in jobs.items()}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("windows", total=len(different) * len(documents))
        for (_, length), parameters in jobs.items():
            key = str(parameters), length
            if key in results:
                continue
            model = AutoModelForMaskedLM.from_pretrained(folder, rope_parameters=parameters).eval()
            results[key] = Scores()
            for ids, masked in zip(documents, masks, strict=True):
                add_scores(model, ids, masked, counted, length, chosen.last, tokenizer, results[key])
                progress.advance(task)
    return {(kind, length): results[str(parameters), length] for (kind, length), parameters in jobs.items()}


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


def show(figures: measure.Figures, results: dict[tuple[str, int], Scores], lengths: list[int], last: int) -> None:
    titles = {"loss": "Loss", "accuracy": "Accuracy", "last_loss": f"Loss on the last {last} positions"}
    for name, title in titles.items():
        table = Table(title=title)
        table.add_column("`rope_parameters`")
        for length in lengths:
            table.add_column(f"{length:,}", justify="right")
        values = {key: getattr(scores, name) for key, scores in results.items()}
        for kind in KINDS:
            table.add_row(kind, *(f"{statistics.mean(values[kind, length]):.3f}" for length in lengths))
        figures.add(name, table)
        differences = [
            standard_error([a - b for a, b in zip(values[kind, length], values["default", length], strict=True)])
            for kind, length in values
        ]
        console.print(
            f"Standard error: at most {max(map(standard_error, values.values())):.3f} of a cell, and "
            f"{max(differences):.3f} of the difference from the default in its column, whose words are the same.\n"
        )


def draw(path: Path, results: dict[tuple[str, int], Scores], lengths: list[int], trained: int, last: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axes, name, title in zip(
        panels, ("loss", "last_loss"), ("all masked tokens", f"among the last {last} positions"), strict=True
    ):
        for kind in KINDS:
            means = [statistics.mean(getattr(results[kind, length], name)) for length in lengths]
            axes.plot(lengths, means, marker="o", linestyle="--" if "×" in kind else "-", label=kind)
        axes.axvline(trained, color="grey", linewidth=0.8)
        axes.set(title=title, xlabel="tokens", xscale="log")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("MLM loss")
    panels[0].legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", type=Path, nargs="+", required=True, help="text (one document per line), JSON Lines, .gz"
    )
    parser.add_argument("--model", metavar="DIR", help="a saved masked language model with its tokenizer")
    parser.add_argument("--trained", type=int, default=4096, help="length in training")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--factors", type=float, nargs="*", default=[8.0], help="factors for texts of all lengths")
    parser.add_argument("--last", type=int, default=256, help="last positions to report separately")
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    measure.add_output(parser)
    chosen = parser.parse_args()
    for factor in chosen.factors:
        KINDS.update({f"{rope_type} × {factor:g}": (rope_type, factor) for rope_type in ("linear", "dynamic", "yarn")})
    if min(chosen.factors, default=1) < 1 or min(chosen.lengths) < 4:
        parser.error("--factors must be at least 1, --lengths at least 4")
    if chosen.last > min(chosen.lengths) or chosen.documents < 2:
        parser.error("--last must be at most the smallest of --lengths, and --documents at least 2")
    figures = measure.Figures(chosen.output)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lengths = sorted(set(chosen.lengths))
    with tempfile.TemporaryDirectory() as place:
        folder = chosen.model or f"{place}/model"
        if not chosen.model:
            convert(EXAMPLE, folder)
        try:
            results = run(folder, chosen.corpus, lengths, chosen.trained, chosen)
        except CorpusError as error:
            raise SystemExit(str(error)) from None
    with figures:
        show(figures, results, lengths, chosen.last)
    if chosen.plot:
        draw(chosen.plot, results, lengths, chosen.trained, chosen.last)


if __name__ == "__main__":
    main()
