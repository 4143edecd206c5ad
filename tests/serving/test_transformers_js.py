"""Exported folders in transformers.js under Node (`make test-slow`): every cell of the table in docs/serving.md."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.exporting import IN_JAVASCRIPT, saved
from helpers.paths import REPOSITORY
from transformers import AutoTokenizer, pipeline

from modeling_roformer.serving.onnx_export import export_onnx
from modeling_roformer.serving.onnx_export.graph import outputs_of
from modeling_roformer.serving.onnx_export.saved_model import load_model, saved_model

PACKAGE = REPOSITORY / ".cache" / "transformers.js"
MISSING = next(
    (
        reason
        for reason, is_so in {
            "there is no node": shutil.which("node") is None,
            "transformers.js is not installed: make test-slow": not (PACKAGE / "node_modules").is_dir(),
        }.items()
        if is_so
    ),
    "",
)
pytestmark = [pytest.mark.js, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

TEXTS = ["明月照着山路，孩子在桥头数星星。", "山路"]
# Model_type -> prefix of its classes, and fields that make a model of that type.
V2 = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
SIM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
MODELS = {
    "roformer": ("RoFormer", {}),
    "roformer_v2": ("RoFormer", V2),
    "roformer_x": ("RoFormer", SIM),
    "nezha": ("Nezha", {}),
}
HEADS_OF = {
    "roformer": [head for head, (use, _) in IN_JAVASCRIPT.items() if use],
    "roformer_v2": ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"],
    "roformer_x": ["Model"],
    "nezha": [head for head in IN_JAVASCRIPT if head != "ForTripletMatching"],
}
CELLS = [(model_type, head) for model_type, heads in HEADS_OF.items() for head in heads]
AUTO = {"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}


def in_javascript(root: Path, *jobs: dict) -> list:
    command = ["node", str(Path(__file__).with_name("transformers_js.mjs")), str(PACKAGE), str(root)]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that exports a small model once; it returns its folder, that of exports, and its name."""
    root, done = tmp_path_factory.mktemp("exported"), set()

    def exported(model_type: str, head: str, **options) -> tuple[Path, Path, str]:
        family, fields = MODELS[model_type]
        name = f"{model_type}-{head}"
        if name not in done:
            saved(root / "models" / name, family + head, **fields)
            export_onnx(root / "models" / name, root / "onnx" / name, **options)
            done.add(name)
        return root / "models" / name, root / "onnx", name

    return exported


def expected_of(folder: Path, inputs: dict) -> dict[str, np.ndarray]:
    return {name: x.numpy() for name, x in outputs_of(load_model(saved_model(folder)), inputs).items()}


@pytest.mark.parametrize(("model_type", "head"), CELLS)
def test_ids_and_numbers_are_pytorchs(exported, model_type, head):
    """Use the head's Auto class if transformers.js has one for the model, otherwise AutoModel."""
    folder, root, name = exported(model_type, head)
    use = f"AutoModel{head}" if model_type == "roformer" and head in AUTO else "AutoModel"
    grouped = head in ("ForMultipleChoice", "ForTripletMatching")
    (found,) = in_javascript(root, {"folder": name, "use": use, "texts": TEXTS, "grouped": grouped})
    inputs = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
    assert "error" not in found, found
    assert found["ids"] == inputs["input_ids"].flatten().tolist()
    if grouped:
        inputs = {key: value[None] for key, value in inputs.items()}
    for key, right in expected_of(folder, inputs).items():
        np.testing.assert_allclose(found["outputs"][key], right.flatten(), atol=1e-5, rtol=0, err_msg=key)


@pytest.mark.parametrize(("model_type", "head"), CELLS)
def test_pipelines_run_or_refuse_by_name(exported, model_type, head):
    use = IN_JAVASCRIPT[head][model_type != "roformer"]
    task = IN_JAVASCRIPT[head][0]
    if task in (None, "AutoModel"):
        pytest.skip("there is no such pipeline")
    folder, root, name = exported(model_type, head)
    texts = ["明月照着山[MASK]。"] if task == "fill-mask" else TEXTS
    (found,) = in_javascript(root, {"folder": name, "use": task, "texts": texts})
    if use != task:
        assert found == {"error": f"Unsupported model type: {model_type}"}
    elif task == "fill-mask":
        ours = pipeline("fill-mask", model=str(folder))(texts[0])
        (theirs,) = found
        assert [entry["token"] for entry in theirs] == [entry["token"] for entry in ours]
        np.testing.assert_allclose([x["score"] for x in theirs], [x["score"] for x in ours], atol=1e-6)
    else:
        assert "error" not in found, found


def test_smaller_graphs_are_found_by_their_names(exported):
    folder, root, name = exported("roformer", "ForTokenClassification")
    shutil.rmtree(root / name)
    export_onnx(folder, root / name, int8=True, fp16=True)
    jobs = [
        {"folder": name, "use": "AutoModelForTokenClassification", "texts": TEXTS, "dtype": x} for x in ("q8", "fp16")
    ]
    inputs = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
    right = expected_of(folder, inputs)["logits"].flatten()
    for found, tolerance in zip(in_javascript(root, *jobs), (0.3, 0.05), strict=True):
        difference = np.abs(np.array(found["outputs"]["logits"]) - right)
        assert 0 < difference.max() < tolerance


def test_word_level_models_are_refused(tmp_path):
    saved(tmp_path / "model", "RoFormerForMaskedLM", "word")
    export_onnx(tmp_path / "model", tmp_path / "onnx" / "words")
    for found in in_javascript(
        tmp_path / "onnx",
        {"folder": "words", "use": "fill-mask", "texts": ["山[MASK]"]},
        {"folder": "words", "use": "AutoModel", "texts": TEXTS},
    ):
        assert "tokenizer.json" in found["error"]


def test_a_bert_has_the_same_pipelines(tmp_path):
    saved(tmp_path / "model", "BertForMaskedLM")
    export_onnx(tmp_path / "model", tmp_path / "onnx" / "bert")
    (found,) = in_javascript(tmp_path / "onnx", {"folder": "bert", "use": "AutoModelForMaskedLM", "texts": TEXTS})
    inputs = dict(AutoTokenizer.from_pretrained(tmp_path / "model")(TEXTS, padding=True, return_tensors="pt"))
    with torch.no_grad():
        right = expected_of(tmp_path / "model", inputs)["logits"]
    np.testing.assert_allclose(found["outputs"]["logits"], right.flatten(), atol=1e-5, rtol=0)
