"""Demo for `make demo`: convert a bert4keras checkpoint, fill masks, match legal cases and read a long document."""

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

from modeling_roformer import AutoModelForTripletMatching
from modeling_roformer.conversion import convert
from modeling_roformer.training import exit_on_error

EXAMPLES = Path(__file__).parent
LEGACY = EXAMPLES / "roformer-mini-zh"
console = Console(width=110, highlight=False)
# Written for this demo: is case B or case C closer to case A?
TRIPLETS = [
    {
        "A": "原告起诉称，被告向其借款八万元，约定一年内归还，到期后拒不归还，请求判令被告归还借款本金及利息。",
        "B": "被告因做生意缺少资金，向原告借款五万元并出具借条，到期没有归还。原告要求被告偿还借款，并支付利息。",
        "C": "被告驾驶汽车与原告的电动车相撞，原告受伤住院。交警认定被告负全部责任，原告要求赔偿医疗费和误工费。",
    },
    {
        "A": "原告与被告婚后经常争吵，夫妻感情确已破裂，原告请求判令离婚，婚生子由原告抚养。",
        "B": "原告在被告公司工作三年，被告没有与其签订劳动合同，也没有缴纳社会保险，原告要求支付经济补偿金。",
        "C": "双方婚后因家庭琐事产生矛盾，已经分居两年，原告要求与被告离婚，并依法分割夫妻共同财产。",
    },
]


def show_agreement(model, sentences: list[dict]) -> None:
    """Compare our logits at the masks with recorded ones."""
    recorded = np.load(LEGACY / "reference_logits.npz")
    with torch.no_grad():
        ours = torch.stack([model(torch.tensor([s["token_ids"]])).logits[0, s["mask_at"]] for s in sentences]).numpy()
    table = Table("logits of seven masks over 12,000 words, compared with", "largest difference", "tolerance")
    for name, key, goal in (("the formulas in float64", "float64", 5e-5), ("bert4keras on TensorFlow", "logits", 2e-4)):
        table.add_row(name, f"{np.abs(ours - recorded[key]).max():.1e}", f"{goal:.0e}")
    console.print(table)


def show_masks(fill_mask, sentences: list[dict]) -> None:
    """Show our three best words and those of bert4keras."""
    table = Table("sentence", "modeling_roformer", "bert4keras", show_lines=True)
    for sentence in sentences:
        ours = [f"{a['token_str']} {a['score']:.3f}" for a in fill_mask(sentence["text"], top_k=3)]
        theirs = [f"{word} {score:.3f}" for word, score in sentence["top"][:3]]
        table.add_row(sentence["text"], "\n".join(ours), "\n".join(theirs))
    console.print(table)


def show_triplets(folder: Path) -> None:
    """Match cases without fine-tuning, by the cosines of their vectors."""
    matcher = AutoModelForTripletMatching.from_pretrained(folder, triplet_scorer="bi")
    match = pipeline("triplet-matching", model=matcher, tokenizer=AutoTokenizer.from_pretrained(folder))
    table = Table("case A", "B", "C", "closer to A", show_lines=True)
    for column in table.columns[:3]:
        column.overflow = "fold"  # Chinese has no spaces to break lines at
    for triplet, answer in zip(TRIPLETS, match(TRIPLETS), strict=True):
        table.add_row(*triplet.values(), f"{answer['label']} {answer['score']:.2f}")
    console.print(table)


def show_long_document(folder: Path, fill_mask) -> None:
    """Fill the mask at the end of a long document."""
    text = (EXAMPLES / "long_document.txt").read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    last = text.strip().splitlines()[-1]
    console.print(f"A document of {len(text):,} characters, {ids.shape[1]:,} tokens. It ends: {last}")
    best = fill_mask(text, top_k=3)
    console.print("  the mask:  " + ", ".join(f"{a['token_str']} {a['score']:.3f}" for a in best))


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
        show_triplets(folder)
        show_long_document(folder, fill_mask)


if __name__ == "__main__":
    with exit_on_error("demo"):
        main()
