"""Accuracy of masked language modelling on texts longer than in training, with each kind of rope_parameters.

    python benchmarks/length.py --corpus laws.jsonl.gz --model DIR [--documents 12]

The first tokens of long documents, as many as the greatest length, are split into windows of each length. So every
length and kind has the same masked words (15 %, a fixed seed), with more or less context.

"fitted" scales each window as needed: the factor is its length divided by the trained length, at least 1. Dynamic NTK
adapts to every text, with factor 1. "× 8" is one factor for all lengths. Standard errors are over documents, because
words of one document are not independent. It takes about five minutes on two idle cores.
"""

import statistics
from pathlib import Path

import reporting
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

from modeling_roformer.data import DataError, read_texts

FITTED = "fitted"
# Name in the tables -> rope_type and factor.
KINDS = {
    "default": ("default", None),
    "linear, fitted": ("linear", FITTED),
    "dynamic": ("dynamic", 1.0),
    "yarn, fitted": ("yarn", FITTED),
}
console = Console(width=110, highlight=False)


def rope_parameters(kind: str, length: int, trained: int, theta: float) -> dict:
    """Return the rope_parameters for windows of a length; the paper's RoPE if nothing is scaled."""
    rope_type, factor = KINDS[kind]
    factor = max(1.0, length / trained) if factor == FITTED else factor
    # At factor 1, linear and YaRN equal the paper's RoPE, and so does dynamic NTK up to the trained length.
    if rope_type == "default" or (length <= trained if rope_type == "dynamic" else factor == 1.0):
        return {"rope_type": "default", "rope_theta": theta}
    parameters = {"rope_type": rope_type, "rope_theta": theta, "factor": factor}
    return parameters | ({} if rope_type == "linear" else {"original_max_position_embeddings": trained})


def read_documents(corpus: list[Path], tokenizer, tokens: int, wanted: int) -> list[torch.Tensor]:
    """Return the first `tokens` ids of documents of at least that length, sampled evenly from the corpus."""
    texts = [text for _, text in read_texts(corpus) if len(text) > tokens]  # a token has at least one character
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
def accuracy(model, ids, masked, counted, length: int, tokenizer) -> float:
    """Return the accuracy on a document; logits are computed at masked positions only.

    `masked` marks the masked tokens, `counted` those of them that are in a window of every length.
    """
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    asked = windows_of((masked & counted).long(), length, 0, 0).bool()
    hidden = model.base_model(windows_of(ids.masked_fill(masked, tokenizer.mask_token_id), length, *special))
    logits = model.cls(hidden.last_hidden_state[asked])
    return (logits.argmax(-1) == windows_of(ids, length, *special)[asked]).double().mean().item()


def run(folder: str, corpus: list[Path], lengths: list[int], trained: int, chosen) -> dict[tuple, list[float]]:
    """Return the accuracies on the documents, of every kind at every length."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with console.status("documents are read"):
        documents = read_documents(corpus, tokenizer, max(lengths) - 2, chosen.documents)
    random = torch.Generator().manual_seed(chosen.seed)
    masks = [torch.rand(len(ids), generator=random) < 0.15 for ids in documents]
    # No window, of any length, begins before this token.
    start = max((max(lengths) - 2) % (length - 2) for length in lengths)
    counted = torch.arange(max(lengths) - 2) >= start
    console.print(f"{len(documents)} documents, {sum(int((m & counted).sum()) for m in masks):,} masked tokens")
    theta = AutoModelForMaskedLM.from_pretrained(folder).config.rope_parameters["rope_theta"]
    jobs = {(kind, length): rope_parameters(kind, length, trained, theta) for kind in KINDS for length in lengths}
    results: dict[tuple, list[float]] = {}
    different = {(str(parameters), length) for (_, length), parameters in jobs.items()}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("windows", total=len(different) * len(documents))
        for (_, length), parameters in jobs.items():
            key = str(parameters), length
            if key in results:
                continue
            model = AutoModelForMaskedLM.from_pretrained(folder, rope_parameters=parameters).eval()
            results[key] = []
            for ids, masked in zip(documents, masks, strict=True):
                results[key].append(accuracy(model, ids, masked, counted, length, tokenizer))
                progress.advance(task)
    return {(kind, length): results[str(parameters), length] for (kind, length), parameters in jobs.items()}


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


def show(figures: reporting.Figures, results: dict[tuple, list[float]], lengths: list[int]) -> None:
    table = Table("`rope_parameters`", *(f"{length:,}" for length in lengths), title="Accuracy")
    for kind in KINDS:
        table.add_row(kind, *(f"{statistics.mean(results[kind, length]):.3f}" for length in lengths))
    figures.add("accuracy", table)
    console.print(f"Standard error: at most {max(map(standard_error, results.values())):.3f} of a cell.")


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="one document per line, or JSON Lines")
    parser.add_argument(
        "--model", metavar="DIR", required=True, help="a saved masked language model with its tokenizer"
    )
    parser.add_argument("--trained", type=int, default=4096, help="length in training")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--factors", type=float, nargs="*", default=[8.0], help="factors for texts of all lengths")
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for factor in chosen.factors:
        KINDS.update({f"{rope_type} × {factor:g}": (rope_type, factor) for rope_type in ("linear", "dynamic", "yarn")})
    if min(chosen.factors, default=1) < 1 or min(chosen.lengths) < 4 or chosen.documents < 2:
        parser.error("--factors must be at least 1, --lengths at least 4, --documents at least 2")
    figures = reporting.Figures(chosen.output)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lengths = sorted(set(chosen.lengths))
    try:
        results = run(chosen.model, chosen.corpus, lengths, chosen.trained, chosen)
    except DataError as error:
        raise SystemExit(str(error)) from None
    with figures:
        show(figures, results, lengths)


if __name__ == "__main__":
    main()
