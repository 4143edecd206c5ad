"""A user's script, checked by a type checker against an ordinary installation: every public name has its type."""

import json
import subprocess
import sys

import pytest
from test_installation import clone, earlier, ordinary  # noqa: F401, fixtures

SCRIPT = """
from typing import assert_type

import torch
from transformers.modeling_outputs import MaskedLMOutput, Seq2SeqLMOutput, SequenceClassifierOutput

from modeling_roformer import (
    RoFormerConfig,
    RoFormerForCausalLM,
    RoFormerForConditionalGeneration,
    RoFormerForMaskedLM,
    RoFormerForSequenceClassification,
    RoFormerModel,
    RoFormerTokenizer,
)
from modeling_roformer.conversion import ConversionReport, convert, export_tf, info
from modeling_roformer.hub import pull, push
from modeling_roformer.serving.onnx_export import OnnxReport, export_onnx
from modeling_roformer.serving.vectors import EmbedReport, Ranking, TextEncoder, embed, rank

ids = torch.tensor([[2, 3]])
config = RoFormerConfig(hidden_size=64)
assert_type(config.hidden_size, int)
assert_type(config.prefix_lm, bool)
tokenizer = RoFormerTokenizer.from_pretrained("folder")
assert_type(tokenizer, RoFormerTokenizer)
model = RoFormerModel.from_pretrained("folder", attn_implementation="sdpa")
assert_type(model, RoFormerModel)
assert_type(RoFormerModel(config), RoFormerModel)
assert_type(model.forward(ids).last_hidden_state, torch.Tensor | None)
masked = RoFormerForMaskedLM.from_pretrained("folder")
assert_type(masked, RoFormerForMaskedLM)
assert_type(masked.forward(ids, labels=ids), MaskedLMOutput)
assert_type(RoFormerForCausalLM.from_pretrained("folder").forward(ids).logits, torch.Tensor | None)
assert_type(RoFormerForConditionalGeneration.from_pretrained("folder").forward(ids), Seq2SeqLMOutput)
assert_type(RoFormerForSequenceClassification.from_pretrained("folder").forward(ids), SequenceClassifierOutput)
masked.save_pretrained("folder")

assert_type(convert("legacy", "output", verify=True), ConversionReport)
assert_type(embed("folder", "texts.txt", "vectors"), EmbedReport)
assert_type(rank("a query", "vectors", top_k=3), Ranking)
assert_type(export_onnx("folder", "graph"), OnnxReport)
assert_type(push("folder", "me/model"), str)
print(TextEncoder, export_tf, info, pull)
"""


def errors_of(script: str, installation, folder) -> list[str]:
    """Return what basedpyright finds in a script, as `rule: message`."""
    (folder / "script.py").write_text(script)
    settings = {"include": ["script.py"], "extraPaths": [str(installation)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return [f"{error.get('rule')}: {error['message']}" for error in found["generalDiagnostics"]]


@pytest.mark.slow  # reads torch and transformers
def test_a_script_of_a_user_has_types(ordinary, tmp_path):  # noqa: F811
    assert errors_of(SCRIPT, ordinary, tmp_path) == []


MISTAKES = {
    "RoFormerConfig(hidden_size='64')": "reportArgumentType",
    "RoFormerModel.from_pretrained('folder').save_pretrained()": "reportCallIssue",
    "convert('legacy')": "reportCallIssue",
    "rank('a query', 'vectors', top_k='3')": "reportArgumentType",
    "RoFormerForMaskedLM.from_pretrained('folder').forward('text')": "reportArgumentType",
}


@pytest.mark.slow
def test_mistakes_are_found(ordinary, tmp_path):  # noqa: F811
    names = "from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerModel\n"
    names += "from modeling_roformer.conversion import convert\nfrom modeling_roformer.serving.vectors import rank\n"
    errors = errors_of(names + "\n".join(MISTAKES), ordinary, tmp_path)
    assert [error.partition(":")[0] for error in errors] == list(MISTAKES.values())
