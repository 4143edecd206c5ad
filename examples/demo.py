"""From a checkpoint that bert4keras wrote to filled masks, without TensorFlow: what `make demo` shows."""

import json
import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

import modeling_roformer  # noqa: F401  (registers RoFormer with transformers)
from modeling_roformer.conversion import convert

EXAMPLES = Path(__file__).parent
LEGACY = EXAMPLES / "roformer-mini-zh"
console = Console(width=110, highlight=False)


def show_agreement(model, sentences: list[dict]) -> None:
    """Our logits at the masks beside those that were recorded."""
    recorded = np.load(LEGACY / "reference_logits.npz")
    with torch.no_grad():
        ours = torch.stack([model(torch.tensor([s["token_ids"]])).logits[0, s["mask_at"]] for s in sentences]).numpy()
    table = Table("logits of seven masks over 12,000 words, compared with", "largest difference", "goal")
    for name, key, goal in (
        ("the formulas in float64", "float64", 2e-5),
        ("bert4keras on TensorFlow", "logits", 2e-4),
    ):
        table.add_row(name, f"{np.abs(ours - recorded[key]).max():.1e}", f"{goal:.0e}")
    console.print(table)


def show_masks(fill_mask, sentences: list[dict]) -> None:
    """Our five best words beside bert4keras'."""
    table = Table("sentence", "modeling_roformer", "bert4keras", show_lines=True)
    for sentence in sentences:
        ours = [f"{a['token_str']} {a['score']:.3f}" for a in fill_mask(sentence["text"], top_k=5)]
        theirs = [f"{word} {score:.3f}" for word, score in sentence["top"]]
        table.add_row(sentence["text"], "\n".join(ours), "\n".join(theirs))
    console.print(table)


def show_long_document(folder: Path, fill_mask) -> None:
    """A document beyond the 1,536 tokens at which transformers' own class stops."""
    text = (EXAMPLES / "long_document.txt").read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    last = text.strip().splitlines()[-1]
    console.print(f"A document of {len(text):,} characters, {ids.shape[1]:,} tokens. It ends: {last}")
    best = fill_mask(text, top_k=3)
    console.print("  modeling_roformer:  " + ", ".join(f"{a['token_str']} {a['score']:.3f}" for a in best))
    theirs = transformers.RoFormerForMaskedLM.from_pretrained(folder).eval()
    try:
        theirs(ids)
        console.print("  transformers' own:  computed it")
    except IndexError as error:
        console.print(f"  transformers' own:  IndexError: {error}")


def main() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    sentences = json.loads((LEGACY / "reference.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "roformer-mini-zh"
        report = convert(LEGACY, folder, verify=True, progress=True)
        console.print(report.table())
        show_agreement(AutoModelForMaskedLM.from_pretrained(folder).eval(), sentences)
        fill_mask = pipeline("fill-mask", model=str(folder))
        show_masks(fill_mask, sentences)
        show_long_document(folder, fill_mask)


if __name__ == "__main__":
    main()
