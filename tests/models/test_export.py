"""torch.compile, torch.export and ONNX: one graph for every batch size and length, padding included."""

import onnxruntime
import pytest
import torch
from cases import LINEAR_MAPS, VARIANTS, close, make_ids, make_variant
from helpers.small_models import small_model

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings

# A loop over chunks has one length; a source would need dynamic shapes of its own.
EXPORTED = [name for name in VARIANTS if "chunks" not in name and "cross" not in name]
# One of each is what a tracer may take for a constant. Linear attention computes 64 tokens or so at a time.
OTHER_SHAPES = [(1, 7), (5, 33), (3, 64), (2, 65), (1, 600)]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


def make_exported(variant, head="Model"):
    """Return a model without a cache, whose table of positions, if it has one, is as long as the tests' texts."""
    fields = {"max_position_embeddings": 1000} if "learned" in variant else {}
    fields |= {} if variant == "NEZHA" else {"use_cache": False}
    return make_variant(variant, head, **fields)


def make_batch(b=3, s=150):
    batch = {"input_ids": make_ids(b, s), "attention_mask": torch.ones(b, s, dtype=torch.long)}
    batch["token_type_ids"] = (torch.arange(s) > s // 3).long().expand(b, s)
    batch["attention_mask"][0, s // 2 + 1 :] = 0
    return batch


def assert_agrees(model, exported, atol=1e-9):
    for shape in OTHER_SHAPES:
        batch = make_batch(*shape)
        with torch.no_grad():
            expected = model(**batch, unpad_inputs=False)[0]
            close(exported(batch), expected, atol)


@pytest.mark.slow
@pytest.mark.parametrize("variant", EXPORTED)
def test_every_variant_is_exported_and_compiled(variant):
    """For every batch and length of a range, which torch must be able to prove."""
    model, batch = make_exported(variant), make_batch()
    b, s = torch.export.Dim("b", min=1, max=64), torch.export.Dim("s", min=2, max=900)
    program = torch.export.export(model, (), batch, dynamic_shapes={name: {0: b, 1: s} for name in batch}).module()
    assert_agrees(model, lambda batch: program(**batch)[0])
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    assert_agrees(model, lambda batch: compiled(**batch)[0])


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "linear softmax decoder"])
def test_by_the_whole_compiler(variant):
    model = make_exported(variant).float()
    compiled = torch.compile(model, fullgraph=True)
    assert_agrees(model, lambda batch: compiled(**batch)[0], 2e-4)


SLOW_HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"]


@pytest.mark.parametrize(
    ("variant", "head"),
    [("plain decoder", "ForCausalLM"), *(pytest.param("plain", x, marks=pytest.mark.slow) for x in SLOW_HEADS)],
)
def test_heads_are_exported(variant, head):
    model, batch = make_exported(variant, head), make_batch()
    dynamic = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in batch}
    program = torch.export.export(model, (), batch, dynamic_shapes=dynamic).module()
    assert_agrees(model, lambda batch: program(**batch)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    ["plain", "dynamic", "rotary values", *LINEAR_MAPS]
    + [f"{name} decoder" for name in LINEAR_MAPS if name != "linear favor before"],
)
@pytest.mark.filterwarnings("ignore:.*will not be used, since it shares", "ignore:.*LeafSpec.*:FutureWarning")
def test_onnx_runtime_gives_the_same_outputs(variant, tmp_path):
    model, batch = make_exported(variant).float(), make_batch()
    dynamic = {name: {0: "batch", 1: "length"} for name in batch}
    torch.onnx.export(model, (), tmp_path / "model.onnx", kwargs=batch, dynamic_shapes=dynamic, dynamo=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])

    def run(batch):
        return torch.from_numpy(session.run(None, {name: x.numpy() for name, x in batch.items()})[0])

    assert_agrees(model, run, 1e-3)


def test_exported_angles_are_exact_at_any_position():
    """Graphs have no cosine in float64, which older versions of ONNX Runtime lack; PyTorch computes one."""

    class Angles(torch.nn.Module):
        def forward(self, position_ids):
            return rotary_position_embeddings(position_ids, inverse_frequencies(64))

    position_ids = torch.cat([torch.arange(16384), torch.arange(2**20, 2**20 + 512)])[None]
    program = torch.export.export(Angles(), (position_ids,))
    assert torch.ops.aten.cos.default not in {node.target for node in program.graph.nodes}
    assert torch.equal(program.module()(position_ids), Angles()(position_ids))


def test_a_model_that_unpads_is_exported_as_one_that_does_not():
    """Shapes that depend on a mask are not for graphs; what is not padding is the same."""
    model, batch = small_model("RoFormerModel", unpad_inputs=True), make_batch()
    program = torch.export.export(model, (), batch).module()
    found, expected = (f(**batch).last_hidden_state[batch["attention_mask"].bool()] for f in (program, model))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
