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

import masked_accuracy
import peers
import reporting
import torch
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForMaskedLM, AutoTokenizer

from modeling_roformer.data import read_texts
from modeling_roformer.training import exit_on_error

FITTED = "fitted"
# Name in the tables -> rope_type and factor.
KINDS = {
    "default": ("default", None),
    "linear, fitted": ("linear", FITTED),
    "dynamic": ("dynamic", 1.0),
    "yarn, fitted": ("yarn", FITTED),
    "linear × 8": ("linear", 8.0),
    "dynamic × 8": ("dynamic", 8.0),
    "yarn × 8": ("yarn", 8.0),
}


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


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="one document per line, or JSON Lines")
    parser.add_argument(
        "--model", metavar="DIR", required=True, help="a saved masked language model with its tokenizer"
    )
    parser.add_argument("--trained", type=int, default=4096, help="length in training")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--documents", type=int, default=12)
    chosen = parser.parse_args()
    lengths = sorted(set(chosen.lengths))
    if lengths[0] < 4 or chosen.documents < 2:
        parser.error("--lengths must be at least 4, --documents at least 2")
    figures = reporting.Figures(chosen.output)
    peers.quiet()
    tokenizer = AutoTokenizer.from_pretrained(chosen.model)
    documents = read_documents(chosen.corpus, tokenizer, lengths[-1] - 2, chosen.documents)
    masks = masked_accuracy.draw_masks(documents, masked_accuracy.SEED)
    theta = AutoModelForMaskedLM.from_pretrained(chosen.model).config.rope_parameters["rope_theta"]
    table, results = Table("`rope_parameters`", *(f"{length:,}" for length in lengths), title="Accuracy"), {}
    for kind in KINDS:
        keys = []
        for length in track(lengths, kind, transient=True):
            parameters = rope_parameters(kind, length, chosen.trained, theta)
            keys.append((str(parameters), length))
            if keys[-1] not in results:
                model = AutoModelForMaskedLM.from_pretrained(chosen.model, rope_parameters=parameters).eval()
                results[keys[-1]] = masked_accuracy.score_windows(model, documents, masks, length, lengths, tokenizer)
        table.add_row(kind, *(f"{statistics.mean(results[key]):.3f}" for key in keys))
    with figures:
        figures.add("accuracy", table)
    errors = [statistics.stdev(values) / len(values) ** 0.5 for values in results.values()]
    print(f"Standard error over {len(documents)} documents: at most {max(errors):.3f} of a cell.")


if __name__ == "__main__":
    with exit_on_error("length"):
        main()
