"""`roformer export-onnx`: the folder, its card, and refusals, which leave nothing behind."""

import json
import re
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers.exporting import IN_JAVASCRIPT, saved
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from onnx import numpy_helper
from transformers import AutoTokenizer

from modeling_roformer.conversion.converter import convert
from modeling_roformer.model_cards.facts import file_fact, read_facts
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.onnx_export import export_onnx, graph, quantization
from modeling_roformer.serving.onnx_export import saved_model as saved_models
from modeling_roformer.serving.onnx_export.agreement import SENTENCES, Agreement, open_session
from modeling_roformer.serving.onnx_export.saved_model import load_model, saved_model

TEXTS = ["明月照着山路，孩子在桥头数星星。", "山"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export a character-level model with every option."""
    folder = tmp_path_factory.mktemp("exported")
    saved(folder / "model", "RoFormerForMaskedLM")
    card = "---\nlicense: apache-2.0\nlanguage: zh\nmy_own: 1\n---\n\n# Mine\n"
    (folder / "model" / "README.md").write_text(card, encoding="utf-8")
    report = export_onnx(folder / "model", folder / "onnx", int8=True, fp16=True)
    return folder / "model", folder / "onnx", report


def test_the_folder_is_what_the_hub_expects(exported):
    folder, output, report = exported
    assert (
        report.files
        == [
            "README.md",
            "config.json",
            "onnx/model.onnx",
            "onnx/model_fp16.onnx",
            "onnx/model_quantized.onnx",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        ]
        == sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    )
    config = json.loads((output / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("roformer", ["RoFormerForMaskedLM"])
    for file in output.glob("onnx/*.onnx"):
        inputs, outputs = open_session(file).get_inputs(), open_session(file).get_outputs()
        assert {x.name: (x.type, x.shape) for x in inputs} == dict.fromkeys(
            AutoTokenizer.from_pretrained(folder).model_input_names,
            ("tensor(int64)", ["batch_size", "sequence_length"]),
        )
        assert [(x.name, x.type) for x in outputs] == [("logits", "tensor(float)")]


def test_every_graph_runs_without_pytorch(exported):
    folder, output, _ = exported
    inputs = dict(AutoTokenizer.from_pretrained(output)(TEXTS, padding=True, return_tensors="np"))
    from modeling_roformer import RoFormerForMaskedLM

    with torch.no_grad():
        model = RoFormerForMaskedLM.from_pretrained(folder)
        expected = model(**{name: torch.from_numpy(x) for name, x in inputs.items()}).logits.numpy()
    for file, most in {"model": 5e-5, "model_quantized": 0.3, "model_fp16": 0.05}.items():
        (logits,) = open_session(output / "onnx" / f"{file}.onnx").run(None, inputs)
        assert abs(logits - expected).max() < most, file
        assert file == "model" or (logits != expected).any()


def test_the_card_names_the_oldest_onnx_runtime_that_runs_each_graph(exported):
    """1.18 runs opset 20 and IR version 10 and, in float64, sines but no cosines; 1.22 runs MatMulNBits with 8 bits."""
    _, output, _ = exported
    card = (output / "README.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^\| `onnx/(\S+)` \|.*\| ([\d.]+) \|$", card, re.MULTILINE))
    assert named == {"model.onnx": "1.18", "model_fp16.onnx": "1.18", "model_quantized.onnx": "1.22"}
    for file in named:
        model = onnx.load(output / "onnx" / file)
        assert model.ir_version == 10 and {opset.domain: opset.version for opset in model.opset_import}[""] == 20
        operations = {node.op_type for node in model.graph.node}
        assert "Sin" in operations and "Cos" not in operations
        assert ("MatMulNBits" in operations) == (named[file] == "1.22")


def test_the_report_says_what_was_measured(exported):
    _, _, report = exported
    float32, int8, fp16 = report.agreements.values()
    assert list(report.agreements) == ["model.onnx", "model_quantized.onnx", "model_fp16.onnx"]
    assert 0 < float32.difference < 5e-5 < fp16.difference < int8.difference
    assert float32.same == float32.answers == int8.answers == fp16.answers > len(SENTENCES)
    assert int8.same / int8.answers > 0.9 and fp16.same / fp16.answers > 0.95


def test_the_card_says_what_it_is_and_how_it_was_measured(exported):
    _folder, output, report = exported
    card = (output / "README.md").read_text(encoding="utf-8")
    metadata = card.split("---\n")[1]
    for line in ("license: apache-2.0", "language: zh", "pipeline_tag: fill-mask", "library_name: transformers.js"):
        assert line in metadata
    assert "my_own" not in metadata and "- onnx" in metadata
    assert "`RoFormerForMaskedLM`" in card and 'pipeline("fill-mask", "onnx"' in card
    facts = read_facts(card)
    for file, agreement in report.agreements.items():
        assert facts[f"file onnx/{file}"] == file_fact(output / "onnx" / file)
        assert f"largest difference {agreement.difference:.1e}" in card
    assert str(report.agreements["model_quantized.onnx"]) in card
    assert_states(card.partition("`onnx/model_quantized.onnx`, ")[2], "int8", "block of 16", "float32")
    assert "onnxruntime" in facts["exported with"]


def assert_no_path_of(place, folder):
    """Assert that no file of a folder has a path of the machine that made it."""
    told = str(place).encode()
    assert not [path for path in folder.rglob("*") if path.is_file() and told in path.read_bytes()]


@pytest.fixture
def no_export(exported, monkeypatch):
    """Copy the graph that is there instead of exporting it, which saves seconds."""
    _, output, report = exported

    def write_graph(model, tokenizer, path):
        shutil.copy(output / "onnx" / "model.onnx", path)
        return report.inputs, report.outputs

    monkeypatch.setattr(graph, "write_graph", write_graph)


def test_the_summary_on_the_command_line(run, exported, no_export, tmp_path):
    folder, _, _ = exported
    (tmp_path / "texts").write_text("\n".join(["", *TEXTS]), encoding="utf-8")
    code, out, err = run("export-onnx", folder, tmp_path / "out", "--texts", tmp_path / "texts")
    assert code == 0, err
    assert_states(out, "RoFormerForMaskedLM", "logits", "tokenizer.json", "2 texts", "float32")
    assert_no_path_of(tmp_path, tmp_path / "out")
    assert "int8" not in out and "float16" not in out
    # Again: the folder is a model that --force replaces, and nothing else does.
    code, _, err = run("export-onnx", folder, tmp_path / "out")
    assert code == 1
    assert_states(err, tmp_path / "out", "not empty", "--force")
    code, out, err = run("export-onnx", folder, tmp_path / "out", "--force", "--int8")
    assert code == 0 and "model_quantized.onnx" in out, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "texts"]


def config_with(folder, **changes):
    path = folder / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value != "gone"}))


def without(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def configured(**changes):
    return lambda folder: config_with(folder, **changes)


CAUSAL = {"architectures": ["RoFormerForCausalLM"], "is_decoder": True}
SEQ2SEQ = {"architectures": ["RoFormerForConditionalGeneration"], "model_type": "roformer_seq2seq"}
NO_CACHE = ["RoFormerForCausalLM", "cache", "transformers"]
# Model -> how a copy is damaged, and facts that its error states.
BROKEN = {
    "no weights": (without("model.safetensors"), ["no file named model.safetensors"]),
    "no tokenizer": (without("vocab.txt", "tokenizer.json"), ["no tokenizer", "vocab.txt", "tokenizer.json"]),
    "a damaged configuration": (written("config.json", b"{"), ["config.json", "cannot be read as JSON"]),
    "no configuration": (without("config.json"), ["no config.json"]),
    "damaged weights": (written("model.safetensors", b"\xff" * 100), ["model.safetensors", "damaged"]),
    "weights of another class": (
        configured(architectures=["RoFormerForTokenClassification"]),
        ["RoFormerForTokenClassification", "classifier.bias", "1 more"],
    ),
    "no class": (configured(architectures="gone"), ["config.json", "architectures"]),
    "an unknown class": (configured(architectures=["RoFormerForNothing"]), ["RoFormerForNothing"]),
    "another family": (configured(model_type="llama"), ["model_type", "'llama'"]),
    "a causal language model": (configured(**CAUSAL), NO_CACHE),
    "a prefix language model": (configured(**CAUSAL, prefix_lm=True), NO_CACHE),
    "a bare decoder": (configured(architectures=["RoFormerModel"], is_decoder=True), ["RoFormerModel", "cache"]),
    "a sequence-to-sequence model": (configured(**SEQ2SEQ), ["RoFormerForConditionalGeneration", "cache"]),
}


def test_weights_that_one_file_cannot_hold_are_refused(run, exported, tmp_path, monkeypatch):
    size = 4 * load_model(saved_model(exported[0])).num_parameters()
    monkeypatch.setattr(saved_models, "MAX_WEIGHT_BYTES", size)
    load_model(saved_model(exported[0]))
    monkeypatch.setattr(saved_models, "MAX_WEIGHT_BYTES", size - 1)
    code, _, err = run("export-onnx", exported[0], tmp_path / "out")
    assert code == 1
    assert_states(err, exported[0], f"{size / 1e9:.1f} GB", f"{(size - 1) / 1e9:.1f} GB", "ONNX")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", BROKEN)
def test_models_that_cannot_be_exported_are_refused_on_one_line(run, exported, tmp_path, name):
    shutil.copytree(exported[0], tmp_path / "model")
    damage, facts = BROKEN[name]
    damage(tmp_path / "model")
    code, out, err = run("export-onnx", tmp_path / "model", tmp_path / "out")
    assert code == 1 and out == "" and err.count("\n") == 1
    assert_states(err, tmp_path / "model", *facts)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_paths_and_texts_that_do_not_fit(run, exported, tmp_path):
    folder = exported[0]
    (tmp_path / "empty").write_text("\n \n")
    for arguments, facts in {
        (tmp_path / "missing", tmp_path / "out"): [tmp_path / "missing", "does not exist"],
        (folder, folder): [folder, "lies in the input"],
        (folder, tmp_path, "--force"): [tmp_path, "not a saved model"],
        (folder, tmp_path / "out", "--texts", tmp_path / "empty"): [tmp_path / "empty", "no text"],
        (folder, tmp_path / "out", "--texts", tmp_path / "missing"): [tmp_path / "missing", "does not exist"],
    }.items():
        code, out, err = run("export-onnx", *arguments)
        assert (code, out) == (1, "") and err.count("\n") == 1, err
        assert_states(err, *facts)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_missing_extra_is_named(run, exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # as if it were not installed
    code, _, err = run("export-onnx", exported[0], tmp_path / "out")
    assert code == 1 and err.count("\n") == 1 and not list(tmp_path.iterdir())
    assert_states(err, "onnxscript", "pip install '.[export]'")


def test_a_graph_whose_outputs_differ_is_not_written(exported, tmp_path, monkeypatch):
    """A bug of torch's exporter is simulated: one bias is off by 0.001."""
    folder, output, report = exported
    wrong = onnx.load(output / "onnx" / "model.onnx")
    bias = next(tensor for tensor in wrong.graph.initializer if tensor.name.endswith("transform.dense.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1e-3), bias.name))

    def write_graph(model, tokenizer, path):
        onnx.save(wrong, path)
        return report.inputs, report.outputs

    monkeypatch.setattr(graph, "write_graph", write_graph)
    with refused(ServingError, folder, "float32") as caught:
        export_onnx(folder, tmp_path / "out")
    found, most = map(float, re.findall(r"\d\.\de-\d\d", str(caught.value)))
    assert 1e-4 < found < 1e-1 and 5e-5 <= most < found
    assert not list(tmp_path.iterdir())


def stated_length(folder) -> int:
    return json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"]


def test_other_programs_read_a_real_maximum_length(run, exported, no_export, tmp_path):
    """The model's own folder keeps transformers' default, which vLLM and fastembed do not take."""
    folder, output, _ = exported
    positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    assert (stated_length(output), stated_length(folder)) == (positions, int(1e30))
    export_onnx(folder, tmp_path / "longer", max_length=2 * positions)
    assert stated_length(tmp_path / "longer") == 2 * positions
    own = shutil.copytree(folder, tmp_path / "own")
    AutoTokenizer.from_pretrained(own, model_max_length=100).save_pretrained(own)
    export_onnx(own, tmp_path / "short")
    assert stated_length(tmp_path / "short") == 100
    config_with(own, position_encoding="learned", model_type="roformer_x")
    code, _, err = run("export-onnx", own, tmp_path / "out", "--max-length", positions + 1)
    assert code == 1 and not (tmp_path / "out").exists()
    assert_states(err, own, f"--max-length {positions + 1:,}", f"{positions:,} positions")


def test_texts_are_cut(exported, no_export, tmp_path):
    (tmp_path / "texts").write_text("很短。\n" + "山" * 5000, encoding="utf-8")
    report = export_onnx(exported[0], tmp_path / "out", texts=tmp_path / "texts")
    assert report.texts == "2 texts of texts" and report.agreements["model.onnx"].answers < 2048 / 7 + 3


def test_embeddings_in_int8_have_a_scale_for_each_row():
    """Every row is at most half a step off, however large other rows are. The output layer gets its own matrix."""
    random = np.random.default_rng(0)
    table = (random.normal(size=(2000, 8)) * np.geomspace(1e-3, 1e3, 2000)[:, None]).astype(np.float32)
    table[7] = 0
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["rows"]),
        onnx.helper.make_node("Transpose", ["table"], ["matrix"], perm=[1, 0]),
        onnx.helper.make_node("MatMul", ["rows", "matrix"], ["logits"]),
    ]
    kinds = {"ids": onnx.TensorProto.INT64, "rows": onnx.TensorProto.FLOAT, "logits": onnx.TensorProto.FLOAT}
    ids, rows, logits = (onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
    network = onnx.helper.make_graph(nodes, "g", [ids], [rows, logits], [numpy_helper.from_array(table, "table")])
    quantization.untie(network)
    quantization.quantize_rows(network)
    model = onnx.helper.make_model(network, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found, products = session.run(["rows", "logits"], {"ids": np.arange(2000)})
    steps = np.abs(table).max(-1, keepdims=True) / 127
    assert (np.abs(found - table) <= 0.5001 * steps).all() and (found != table).any()
    exact, size = found.astype(float) @ table.T, np.abs(found).astype(float) @ np.abs(table).T
    assert (np.abs(products - exact) <= 1e-6 * size).all()  # the order of a sum differs between processors
    assert {tensor.name: tensor.data_type for tensor in network.initializer} == {
        "matrix": onnx.TensorProto.FLOAT,
        "table_int8": onnx.TensorProto.INT8,
        "table_scales": onnx.TensorProto.FLOAT,
    }


def test_the_values_of_attention_are_not_quantized(exported):
    """They are found by their values; every other weight matrix is quantised in blocks."""
    folder, output, _ = exported
    model = load_model(saved_model(folder))
    network = onnx.load(output / "onnx" / "model_quantized.onnx").graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in network.initializer}
    (left,) = [node for node in network.node if node.op_type == "MatMul" and node.input[1] in weights]
    value = model.get_parameter("roformer.encoder.layer.0.attention.self.value.weight")
    assert (weights[left.input[1]] == value.detach().numpy().T).all()
    # Query, key, output, both of the feed-forward network, the head's transform, and the output layer.
    assert sum(node.op_type == "MatMulNBits" for node in network.node) == 7


def test_an_agreement_as_text():
    assert Agreement(difference=4e-5).is_exact and not Agreement(difference=6e-5).is_exact
    assert Agreement(difference=4e-4, scale=10).is_exact and not Agreement(difference=float("nan")).is_exact
    assert_states(Agreement(same=983, answers=1000), "98.3%", "1,000")
    assert_states(Agreement(cosines=[0.99, 1.0]), "cosine", "0.9900", "0.9950")


def test_the_page_says_what_the_tests_of_transformers_js_find():
    page = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:2] == "| "
    ]
    table = {
        row[0].removeprefix("…"): tuple(cell or None for cell in row[2:4]) for row in rows if row[0].startswith("…")
    }
    assert table == IN_JAVASCRIPT


@pytest.mark.slow
def test_the_trained_model_keeps_its_answers(tmp_path):
    """Words at masks of the built-in sentences, where a trained model's predictions are close together."""
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx", int8=True, fp16=True)
    float32, int8, fp16 = report.agreements.values()
    assert float32.difference < 5e-6 * float32.scale
    assert int8.answers > 80 and int8.same / int8.answers > 0.95 and fp16.same / fp16.answers > 0.98
    sizes = [(tmp_path / "onnx" / "onnx" / file).stat().st_size for file in report.agreements]
    assert sizes[1] < 0.5 * sizes[0] and sizes[2] < 0.6 * sizes[0]
