"""The report of an export."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from ...output.console import summary_table
from .agreement import Agreement

FLOAT32, INT8, FLOAT16 = "model.onnx", "model_quantized.onnx", "model_fp16.onnx"
PYTHON_IDS = (
    "from Python, where modeling_roformer segments words; no tokenizer.json holds a segmenter, and programs that read one "
    "would compute other ids, so there is none"
)
LEFT_IN_FLOAT32 = "attention's values and products, norms and softmax"


@dataclass(frozen=True)
class OnnxReport:
    """Result of an export and of its comparison with PyTorch.

    `agreements` maps the name of each file in onnx/ to its agreement with PyTorch; `texts` describes the texts compared.
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

    def table(self) -> Table:
        """Return the summary as a rich table."""
        found = self.agreements
        rows = {
            "source": str(self.source),
            "output": str(self.output),
            "model": self.architecture,
            "parameters": f"{self.parameters:,}",
            "note": self.note,
            "inputs": ", ".join(self.inputs),
            "outputs": ", ".join(self.outputs),
            "token ids": PYTHON_IDS if self.word_level else "also from tokenizer.json",
            "compared on": self.texts,
            "float32": f"largest difference {found[FLOAT32].difference:.1e}",
            "int8": str(found[INT8]) if INT8 in found else None,
            "left in float32": LEFT_IN_FLOAT32 if INT8 in found else None,
            "float16": str(found[FLOAT16]) if FLOAT16 in found else None,
            "files": ", ".join(self.files),
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)
