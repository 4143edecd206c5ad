"""The package where torch is not installed: a word-level model is served, and models say what they need."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.exporting import saved
from transformers import AutoTokenizer

import modeling_roformer
from modeling_roformer import RoFormerForMaskedLM
from modeling_roformer.serving.onnx_export import export_onnx

TEXTS = ["明月照着[MASK]路，孩子在桥头数星星。", "山"]
HIDDEN = "import sys; sys.modules['torch'] = None\n"  # any import of it fails, and transformers finds none
SERVER = f"""{HIDDEN}
import json
import onnxruntime
from modeling_roformer.tokenization import RoFormerTokenizer
from transformers import AutoTokenizer

folder, result = sys.argv[1:]
tokenizer = RoFormerTokenizer.from_pretrained(folder)
assert type(AutoTokenizer.from_pretrained(folder)) is RoFormerTokenizer
session = onnxruntime.InferenceSession(f"{{folder}}/onnx/model.onnx", providers=["CPUExecutionProvider"])
inputs = dict(tokenizer({TEXTS}, padding=True, return_tensors="np"))
(logits,) = session.run(["logits"], inputs)
with open(result, "w") as file:
    json.dump({{"ids": inputs["input_ids"].tolist(), "logits": logits.tolist()}}, file)
"""
NAMES = f"""{HIDDEN}
import modeling_roformer
from modeling_roformer import *

for name in sys.argv[1:]:
    model = getattr(modeling_roformer, name)
    for use in (lambda: model("config"), lambda: model.from_pretrained("folder")):
        try:
            use()
        except ImportError as error:
            print(str(error).split()[0], "PyTorch" in str(error))
"""


def without_torch(code: str, *arguments) -> str:
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_word_level_model_gives_pytorchs_answers(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerForMaskedLM", vocabulary="word")
    assert export_onnx(folder, tmp_path / "served").word_level
    without_torch(SERVER, tmp_path / "served", tmp_path / "result.json")
    found = json.loads((tmp_path / "result.json").read_text())
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    assert found["ids"] == inputs.input_ids.tolist()
    with torch.no_grad():
        expected = RoFormerForMaskedLM.from_pretrained(folder)(**inputs).logits.numpy()
    real = inputs.attention_mask.bool().numpy()
    np.testing.assert_allclose(np.array(found["logits"])[real], expected[real], atol=5e-5, rtol=0)


def test_models_say_what_they_need():
    """The public names are the same as with torch; a model is refused when it is used, as transformers' own are."""
    available = {"NezhaConfig", "RoFormerConfig", "RoFormerSeq2SeqConfig", "RoFormerTokenizer", "RoFormerTokenizerFast"}
    models = sorted(set(modeling_roformer.__all__) - available)
    assert len(models) == len(modeling_roformer.__all__) - len(available) > 20
    assert without_torch(NAMES, *models).splitlines() == [f"{name} True" for name in models for _ in range(2)]
