"""How well a masked language model reads texts longer than it was trained on, by each kind of rope_parameters.

    python benchmarks/length.py --corpus laws.jsonl.gz [--plot length.png] [--documents 12] [--model DIR]

The beginnings of long documents, as long as the greatest length, are cut into windows of each length, so that every
length and every kind sees the same words masked (15 %, a fixed seed), only with more or less around them. Printed are
the loss and the accuracy on all of them, and the loss on those among the last 256 positions, which a window of each
length ends with. The model is examples/roformer-mini-zh, trained at 4,096, unless another folder is named.

"fitted" stretches a window as much as it needs: the factor is its length through the trained one, and at least 1.
Dynamic NTK fits itself to every text, with factor 1. "× 8" is one factor for texts of all lengths. Standard errors are
taken over documents, since words of one document are no independent samples. About five minutes on two idle cores.
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

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
# Name in the tables: rope_type and factor.
KINDS = {
    "default": ("default", None),
    "linear, fitted": ("linear", FITTED),
    "dynamic": ("dynamic", 1.0),
    "yarn, fitted": ("yarn", FITTED),
}
console = Console(width=110, highlight=False)


@dataclass
class Scores:
    """What was measured on one document after the other."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    last_loss: list[float] = field(default_factory=list)


def rope_parameters(kind: str, length: int, trained: int, theta: float) -> dict:
    """What a model is loaded with to read windows of a length; the paper's RoPE where nothing is stretched."""
    rope_type, factor = KINDS[kind]
    factor = max(1.0, length / trained) if factor == FITTED else factor
    # At factor 1, linear and YaRN are the paper's, and so is dynamic NTK up to the trained length.
    if (
        rope_type == "default"
        or (factor == 1.0 and rope_type != "dynamic")
        or (rope_type == "dynamic" and length <= trained)
    ):
        return {"rope_type": "default", "rope_theta": theta}
    parameters = {"rope_type": rope_type, "rope_theta": theta, "factor": factor}
    return parameters | ({} if rope_type == "linear" else {"original_max_position_embeddings": trained})


def read_documents(corpus: list[Path], tokenizer, tokens: int, wanted: int) -> list[torch.Tensor]:
    """The first `tokens` ids of documents that are that long, taken evenly from the corpus."""
    texts = [
        text
        for path in corpus_files(corpus)
        for chunk in read_chunks(path)
        for text in chunk.documents("text")
        if len(text) > tokens  # a token is a character or more
    ]
    found = []
    # A prime stride visits every document once, far apart.
    for i in range(len(texts)):
        ids = tokenizer(texts[i * 7919 % len(texts)], add_special_tokens=False)["input_ids"][:tokens]
        if len(ids) == tokens:
            found.append(torch.tensor(ids))
        if len(found) == wanted:
            return found
    raise SystemExit(f"the corpus has {len(found)} documents of {tokens:,} tokens or more, fewer than {wanted}")


def windows_of(ids: torch.Tensor, length: int, cls: int, sep: int) -> torch.Tensor:
    """The document in windows of a length, [CLS] and [SEP] included, counted from its end: shape (n, length)."""
    inner = length - 2
    n = len(ids) // inner
    rows = ids[len(ids) - n * inner :].view(n, inner)
    return torch.cat([torch.full((n, 1), cls), rows, torch.full((n, 1), sep)], dim=1)


@torch.inference_mode()
def measure(model, ids, masked, counted, length: int, last: int, tokenizer, scores: Scores) -> None:
    """Adds a document's scores; logits are computed at masked positions only.

    `masked` says which tokens are hidden, `counted` which of them every length can see.
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
    # The same words for every length, that is those beside the shortest one's [CLS] and [SEP], which end the document.
    ending = asked[-1].nonzero()[:, 0] > length - last
    scores.last_loss.append(losses[-len(ending) :][ending].mean().item())


def run(folder: str, corpus: list[Path], lengths: list[int], trained: int, chosen) -> dict[tuple[str, int], Scores]:
    """Scores of every kind at every length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with console.status("documents are read"):
        documents = read_documents(corpus, tokenizer, max(lengths) - 2, chosen.documents)
    random = torch.Generator().manual_seed(chosen.seed)
    masks = [torch.rand(len(ids), generator=random) < 0.15 for ids in documents]
    # Windows of no length begin before this token.
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
                measure(model, ids, masked, counted, length, chosen.last, tokenizer, results[key])
                progress.advance(task)
    return {(kind, length): results[str(parameters), length] for (kind, length), parameters in jobs.items()}


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


def show(results: dict[tuple[str, int], Scores], lengths: list[int], last: int) -> None:
    titles = {"loss": "Loss", "accuracy": "Accuracy", "last_loss": f"Loss on the last {last} positions"}
    for name, title in titles.items():
        table = Table(title=title)
        table.add_column("")
        for length in lengths:
            table.add_column(f"{length:,}", justify="right")
        values = {key: getattr(scores, name) for key, scores in results.items()}
        for kind in KINDS:
            table.add_row(kind, *(f"{statistics.mean(values[kind, length]):.3f}" for length in lengths))
        console.print(table)
        differences = [
            standard_error([a - b for a, b in zip(values[kind, length], values["default", length], strict=True)])
            for kind, length in values
        ]
        console.print(
            f"Standard error: at most {max(map(standard_error, values.values())):.3f} of a cell, and {max(differences):.3f} "
            "of the difference from the default in its column, whose words are the same.\n"
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
        "--corpus", type=Path, nargs="+", required=True, help="text (a document a line), JSON Lines, .gz"
    )
    parser.add_argument("--model", metavar="DIR", help="a saved masked language model with its tokenizer")
    parser.add_argument("--trained", type=int, default=4096, help="the length that it was trained at")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--factors", type=float, nargs="*", default=[8.0], help="tried on texts of all lengths")
    parser.add_argument("--last", type=int, default=256, help="positions at the end that are looked at apart")
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    for factor in chosen.factors:
        KINDS.update({f"{rope_type} × {factor:g}": (rope_type, factor) for rope_type in ("linear", "dynamic", "yarn")})
    if min(chosen.factors, default=1) < 1 or min(chosen.lengths) < 4:
        parser.error("--factors are at least 1, --lengths at least 4")
    if chosen.last > min(chosen.lengths) or chosen.documents < 2:
        parser.error("--last is at most the smallest of --lengths, and --documents at least 2")
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
    show(results, lengths, chosen.last)
    if chosen.plot:
        draw(chosen.plot, results, lengths, chosen.trained, chosen.last)


if __name__ == "__main__":
    main()
