"""torch.export and ONNX: one graph for every batch size and length, padding included."""

import onnxruntime
import pytest
import torch
from helpers.small_models import small_model

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings

HEADS = ["RoFormerModel", "RoFormerForMaskedLM", "RoFormerForSequenceClassification"]
VARIANTS = {
    "plain": {},
    "rotary_value": {"rotary_value": True},
    "v2": {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16}},
}
# One of each is what a tracer may take for a constant.
OTHER_SHAPES = [(1, 7), (5, 33), (2, 1), (1, 600)]


def make_batch(b=3, s=20, padded=True):
    generator = torch.Generator().manual_seed(b * s)
    batch = {
        "input_ids": torch.randint(5, 90, (b, s), generator=generator),
        "attention_mask": torch.ones(b, s, dtype=torch.long),
        "token_type_ids": torch.randint(0, 2, (b, s), generator=generator),
    }
    if padded:
        batch["attention_mask"][0, s // 2 + 1 :] = 0
    return batch


def dynamic_shapes(batch):
    return {name: {0: "batch", 1: "length"} for name in batch}


def assert_agrees(model, exported, shape, atol):
    batch = make_batch(*shape)
    with torch.no_grad():
        expected = next(iter(model(**batch).values()))
    found = exported(batch)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "variant"), [*((head, "plain") for head in HEADS[1:]), *(("RoFormerModel", name) for name in VARIANTS)]
)
def test_torch_export(head, variant):
    model, batch = small_model(head, **VARIANTS[variant]), make_batch()
    dynamic = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in batch}
    program = torch.export.export(model, (), batch, dynamic_shapes=dynamic).module()
    for shape in OTHER_SHAPES:
        assert_agrees(model, lambda batch: next(iter(program(**batch).values())), shape, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "variant"),
    [
        ("RoFormerForMaskedLM", "plain"),
        ("RoFormerForMaskedLM", "dynamic"),
        ("RoFormerForSequenceClassification", "rotary_value"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*will not be used, since it shares", "ignore:.*LeafSpec.*:FutureWarning")
def test_onnx_runtime_gives_the_same_logits(head, variant, tmp_path):
    model, batch = small_model(head, **VARIANTS[variant], num_hidden_layers=1), make_batch()
    torch.onnx.export(
        model, (), tmp_path / "model.onnx", kwargs=batch, dynamic_shapes=dynamic_shapes(batch), dynamo=True
    )
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for shape in OTHER_SHAPES:
        assert_agrees(
            model,
            lambda batch: torch.from_numpy(session.run(None, {name: x.numpy() for name, x in batch.items()})[0]),
            shape,
            atol=1e-4,
        )


def test_exported_angles_are_exact_at_any_position():
    """Graphs have no cosine in float64, which older versions of ONNX Runtime lack; PyTorch computes one."""

    class Angles(torch.nn.Module):
        def forward(self, position_ids):
            return rotary_position_embeddings(position_ids, inverse_frequencies(64))

    position_ids = torch.cat([torch.arange(16384), torch.arange(2**20, 2**20 + 512)])[None]
    program = torch.export.export(Angles(), (position_ids,))
    assert torch.ops.aten.cos.default not in {node.target for node in program.graph.nodes}
    assert torch.equal(program.module()(position_ids), Angles()(position_ids))


def test_a_decoder_is_exported_without_its_cache():
    model, batch = small_model("RoFormerForCausalLM", is_decoder=True, use_cache=False), make_batch()
    dynamic = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in batch}
    program = torch.export.export(model, (), batch, dynamic_shapes=dynamic).module()
    for shape in OTHER_SHAPES:
        assert_agrees(model, lambda batch: program(**batch)["logits"], shape, atol=1e-5)


def test_a_model_that_unpads_is_exported_as_one_that_does_not():
    """Shapes that depend on a mask are not for graphs; what is not padding is the same."""
    model, batch = small_model("RoFormerModel", unpad_inputs=True), make_batch()
    program = torch.export.export(model, (), batch).module()
    found, expected = (f(**batch).last_hidden_state[batch["attention_mask"].bool()] for f in (program, model))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
