"""Report of an export, and the model card of the exported folder."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from string import Template

import yaml
from rich.table import Table

from modeling_roformer.model_cards.cards import facts_of
from modeling_roformer.model_cards.facts import START, cell, facts_table, file_fact, vocabulary_of
from modeling_roformer.model_cards.kinds import described_kind
from modeling_roformer.model_cards.metadata import kept_metadata
from modeling_roformer.model_cards.trained_card import published_name
from modeling_roformer.model_cards.usage import task_of
from modeling_roformer.output.console import summary_table
from modeling_roformer.tokenization.vocabulary import has_words

from .agreement import Agreement
from .saved_model import SavedModel

FLOAT32, INT8, FLOAT16 = "model.onnx", "model_quantized.onnx", "model_fp16.onnx"
PYTHON_IDS = (
    "only from Python, with the segmenter of modeling_roformer; there is no tokenizer.json, because it cannot hold a "
    "segmenter, and other programs would compute other ids from it"
)
LEFT_IN_FLOAT32 = "attention's values and products, norms and softmax"
CARD = "README.md"
VECTOR = "sentence_embedding"
WEIGHTS = {FLOAT32: "float32", INT8: "int8", FLOAT16: "float16"}
# The oldest ONNX Runtime that runs each graph: 1.18 reads IR version 10, and 1.22 has MatMulNBits with 8 bits.
OLDEST = {FLOAT32: "1.18", INT8: "1.22", FLOAT16: "1.18"}
# Suffix of the class -> its pipeline in transformers.js 4, for the model_types KNOWN. All others need `AutoModel`
# there.
PIPELINES = {
    "Model": "feature-extraction",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}
KNOWN = ("roformer", "bert")
JAVASCRIPT = """In JavaScript, with [transformers.js](https://huggingface.co/docs/transformers.js):

```js
import {{ pipeline }} from "@huggingface/transformers";

const run = await pipeline("{task}", {name}, {{ dtype: "fp32" }});
```"""
IN_INT8 = """
In `onnx/model_quantized.onnx`, weights and activations are quantised to int8, with one scale per block of 16 values,
and embeddings with one scale per row. Attention's value projections and its own products, norms and softmax stay in
float32.
"""
NO_CLASS = "transformers.js has no class for {kind} and refuses its pipeline; its `AutoModel` runs the graph."


@dataclass(frozen=True)
class OnnxReport:
    """Result of an export and of its comparison with PyTorch.

    `agreements` maps the name of each file in onnx/ to its agreement with PyTorch; `texts` describes the texts
    compared. `prompts` are those that a program puts before queries and documents.
    """

    source: Path
    output: Path
    architecture: str
    parameters: int
    inputs: list[str]
    outputs: list[str]
    texts: str
    agreements: dict[str, Agreement]
    word_level: bool
    note: str | None
    files: list[str]
    seconds: float
    prompts: dict[str, str] = field(default_factory=dict)

    def table(self) -> Table:
        """Return the summary as a rich table."""
        agreements = self.agreements
        rows = {
            "source": str(self.source),
            "output": str(self.output),
            "model": self.architecture,
            "parameters": f"{self.parameters:,}",
            "note": self.note,
            "inputs": ", ".join(self.inputs),
            "outputs": ", ".join(self.outputs),
            "prompts": _prompts(self) or None,
            "token ids": PYTHON_IDS if self.word_level else "also from tokenizer.json",
            "compared on": self.texts,
            "float32": f"largest difference {agreements[FLOAT32].difference:.1e}",
            "int8": str(agreements[INT8]) if INT8 in agreements else None,
            "left in float32": LEFT_IN_FLOAT32 if INT8 in agreements else None,
            "float16": str(agreements[FLOAT16]) if FLOAT16 in agreements else None,
            "files": ", ".join(self.files),
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


def card_of(saved: SavedModel, report: OnnxReport, folder: Path) -> str:
    """Return the text of README.md, with metadata for the Hub, for the exported files in `folder`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name, kind = published_name(saved.folder.resolve()), described_kind(config, report.word_level)
    vocabulary = vocabulary_of(folder)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    rows = facts_of(name, config, has_words(vocabulary), {"parameters": report.parameters}, tokenizer)
    rows |= {"inputs": ", ".join(report.inputs), "outputs": ", ".join(report.outputs)}
    rows |= {f"file onnx/{file}": file_fact(folder / "onnx" / file) for file in report.agreements}
    made_with = ("modeling-roformer", "torch", "onnx", "onnxscript", "onnxruntime")
    rows |= {
        "exported on": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "exported with": ", ".join(f"{package} {version(package)}" for package in made_with),
    }
    text = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    quoted = json.dumps(report.output.name.replace("`", "'"), ensure_ascii=False)
    body = Template(text).substitute(
        title=cell(f"{name} for ONNX Runtime"),
        summary=kind.summary,
        source=cell(name),
        what=_contents(report),
        texts=report.texts,
        measured="\n".join(
            f"| `onnx/{file}` | {WEIGHTS[file]} | {_agreement_cell(report, file)} | {OLDEST[file]} |"
            for file in report.agreements
        ),
        int8=IN_INT8 if INT8 in report.agreements else "",
        name=quoted,
        file=f'{quoted[:-1]}/onnx/{FLOAT32}"',
        elsewhere=_elsewhere(config, report, quoted),
        length=kind.positions.value,
        linear=", except with linear attention" if config.get("attention_type") == "linear" else "",
        citation=kind.citation,
    )
    metadata = yaml.safe_dump(_metadata(saved, config, report, vocabulary), sort_keys=False, allow_unicode=True)
    return f"---\n{metadata}---\n\n{body.replace(START, facts_table(rows))}"


def _prompts(report: OnnxReport) -> str:
    """Return the prompts with their tasks. They are quoted, since blanks at their end count."""
    return ", ".join(f"{json.dumps(prompt, ensure_ascii=False)} ({task})" for task, prompt in report.prompts.items())


def _contents(report: OnnxReport) -> str:
    if VECTOR in report.outputs:
        prompts = f". Put a prompt before each text: {_prompts(report)}" if report.prompts else ""
        return f"its encoder; `{VECTOR}` is the vector of a text, of length 1{prompts}"
    if report.note:
        return f"its bare model and pooler, whose `pooler_output` is the vector of a sentence; {report.note}"
    return f"the class `{report.architecture}`"


def _agreement_cell(report: OnnxReport, file: str) -> str:
    agreement = report.agreements[file]
    difference = f"largest difference {agreement.difference:.1e}"
    has_more = file != FLOAT32 and (agreement.answers or agreement.cosines)
    return f"{agreement}; {difference}" if has_more else difference


def _elsewhere(config: dict, report: OnnxReport, quoted: str) -> str:
    if report.word_level:
        return f"The vocabulary has words. Token ids come {PYTHON_IDS}."
    task = next((task for head, task in PIPELINES.items() if report.architecture.endswith(head)), None)
    if task is None:
        return NO_CLASS.format(kind=f"`{report.architecture}`")
    if config["model_type"] not in KNOWN and task != "feature-extraction":  # its class is `AutoModel`
        return NO_CLASS.format(kind=f"the model_type `{config['model_type']}`")
    return JAVASCRIPT.format(task=task, name=quoted)


def _metadata(saved: SavedModel, config: dict, report: OnnxReport, vocabulary: dict) -> dict:
    """Return the metadata for the Hub: fields of the model's own card, and the fields of the export."""
    kind, task = described_kind(config, report.word_level), task_of(config, report.word_level)
    return kept_metadata(saved.folder / CARD, vocabulary) | {
        "library_name": "onnx" if report.word_level else "transformers.js",
        "pipeline_tag": task,
        "tags": ["onnx", *kind.tags],
    }
