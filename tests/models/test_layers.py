"""Layers, and RoFormer-V2: bert4keras' formulas written out, weights of the package roformer, and initialisation."""

import json
import math

import pytest
import torch
from cases import V2, make_ids
from helpers.small_models import SMALL, small_config, small_model
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM

from modeling_roformer import RoFormerForMaskedLM, RoFormerForSequenceClassification, RoFormerModel


def make_model(head=RoFormerForMaskedLM, **fields):
    return small_model(head, seed=4, **{**V2, "initializer_range": 0.02, **fields})


THETA = [10000.0 ** (-2 * i / 16) for i in range(8)]
NTK = 10000.0 * (4.0 * 30 / 16 - 3.0) ** (16 / 14)  # the larger base of "dynamic" at 30 tokens
SCALINGS = {
    "linear": ([f / 4 for f in THETA], 1.0),
    "dynamic": ([NTK ** (-2 * i / 16) for i in range(8)], 1.0),
    # Only the first turns more than once in 16 tokens.
    "yarn": ([THETA[0], *(f / 4 for f in THETA[1:])], 1 + 0.1 * math.log(4)),
}


@pytest.mark.parametrize("scaling", [None, *SCALINGS])
@pytest.mark.parametrize("fields", [{}, {"rotary_value": True}, V2], ids=["V1", "rotary values", "V2"])
def test_equals_the_formulas_in_float64(fields, scaling):
    """The whole encoder written out: equations 2 and 16 for attention, post-norm residuals around it."""
    rope = {"rope_type": scaling, "factor": 4.0, "original_max_position_embeddings": 16}
    model = small_model("RoFormerModel", **fields, rope_parameters=rope if scaling else None)
    with torch.no_grad():  # biases and norms are trivial at the start
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    ids, segments = make_ids(30), make_ids(30, seed=2) % 2 if fields is V2 else torch.zeros(30, dtype=torch.long)
    weights = {name: tensor.double() for name, tensor in model.state_dict().items()}
    theta, factor = SCALINGS.get(scaling, (THETA, 1.0))
    angles = torch.arange(30)[:, None] * torch.tensor(theta, dtype=torch.float64)
    turns = torch.polar(torch.ones_like(angles), angles)

    def dense(name, x):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def norm(name, x):
        if fields is V2:
            return x / (x.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-12).sqrt()
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def turned(x):
        return torch.view_as_complex(x.reshape(30, 8, 2).contiguous()) * turns  # equation 12

    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.token_type_embeddings.weight"][segments]
    x = norm("embeddings.LayerNorm", x)
    for layer in range(2):
        name = f"encoder.layer.{layer}"
        q, k, v = (dense(f"{name}.attention.self.{part}", x) for part in ("query", "key", "value"))
        context = torch.zeros_like(x)
        for head in range(2):
            at = slice(head * 16, (head + 1) * 16)
            scores = (turned(q[:, at]) @ turned(k[:, at]).conj().T).real * factor**2 / 4
            values = torch.view_as_real(turned(v[:, at])).flatten(1) if "rotary_value" in fields else v[:, at]
            context[:, at] = scores.softmax(-1) @ values
        x = norm(f"{name}.attention.output.LayerNorm", dense(f"{name}.attention.output.dense", context) + x)
        hidden = dense(f"{name}.intermediate.dense", x)
        hidden = hidden.relu() if fields is V2 else torch.nn.functional.gelu(hidden)
        x = norm(f"{name}.output.LayerNorm", dense(f"{name}.output.dense", hidden) + x)
    with torch.no_grad():
        # All of segment 0 if there are none.
        found = model(ids[None], token_type_ids=segments[None] if fields is V2 else None).last_hidden_state[0]
    torch.testing.assert_close(found.double(), x, atol=2e-5, rtol=0)


def test_weights_are_those_of_the_roformer_package():
    """Its RoFormerForMaskedLM with norm_type="rms_norm": no norms, no biases, a bare decoder."""
    parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    expected = {"roformer.embeddings.word_embeddings.weight", "roformer.embeddings.token_type_embeddings.weight"}
    for layer in range(2):
        for part in [*parts, "intermediate.dense", "output.dense"]:
            expected.add(f"roformer.encoder.layer.{layer}.{part}.weight")
    assert set(make_model().state_dict()) == expected | {"cls.predictions.decoder.weight"}


def test_task_heads_keep_their_biases():
    classifier = make_model(RoFormerForSequenceClassification, embedding_size=16)
    names = set(classifier.state_dict())
    assert {"classifier.dense.bias", "classifier.out_proj.bias", "roformer.embeddings_project.bias"} <= names
    assert make_model(RoFormerModel, add_pooling_layer=True, pooler_activation="tanh").pooler.dense.bias is not None


@pytest.mark.parametrize("model_type", ["roformer", "roformer_v2"])
def test_a_checkpoint_of_the_roformer_package_loads(model_type, tmp_path):
    """It is saved there as model_type "roformer", which plain transformers loads, and answers garbage."""
    model = make_model()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = {
        **SMALL,
        **V2,
        "vocab_size": 100,
        "model_type": model_type,
        "pooler_activation": "tanh",
        "architectures": ["RoFormerForMaskedLM"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
    ids = torch.randint(5, 80, (2, 20))
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits)


def test_initialisation_is_bert4keras_own():
    """Truncated normal of deviation 1 / √(fan_in · layers), cut at two of the untruncated deviations."""
    torch.manual_seed(0)
    model = RoFormerModel(small_config(**V2, hidden_size=512, intermediate_size=1024, vocab_size=2000))
    layer = model.encoder.layer[1]
    for weight, fan_in in (
        (layer.attention.self.query.weight, 512),
        (layer.output.dense.weight, 1024),
        (model.embeddings.word_embeddings.weight[1:], 512),
    ):
        deviation = 1 / math.sqrt(fan_in * 2)
        assert weight.std().item() == pytest.approx(deviation, rel=0.02)
        assert weight.abs().max().item() <= 2 * 1.13684723 * deviation * 1.0001
    assert not model.embeddings.word_embeddings.weight[0].any()  # of padding


def test_dropout_leaves_the_residual():
    """A dropout of 1 leaves of each sub-layer what does not pass through it, of which it takes the norm."""
    layer = make_model(hidden_dropout_prob=1.0).train().roformer.encoder.layer[0]
    x, residual = torch.randn(2, 3, 4, 32)
    expected = residual / (residual.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    torch.testing.assert_close(layer.attention.output(x, residual), expected)


def test_factorised_embeddings():
    model = make_model(embedding_size=16)
    ids = torch.randint(5, 80, (2, 20))
    with torch.no_grad():
        hidden = model.roformer(ids).last_hidden_state
        mapped = hidden @ model.cls.predictions.mapping.weight.T
        expected = mapped @ model.get_input_embeddings().weight.T
        torch.testing.assert_close(model(ids).logits, expected)


def test_sparse_prediction_gives_the_same_loss_and_gradients():
    ids = torch.randint(5, 80, (3, 20))
    labels = ids.masked_fill(torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) > 0.2, -100)
    results = []
    for sparse in (False, True):
        model = make_model(sparse_prediction=sparse, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        outputs = model(ids, labels=labels)
        outputs.loss.backward()
        results.append((outputs.loss, model.roformer.encoder.layer[0].output.dense.weight.grad))
        expected_shape = (int((labels != -100).sum()), 100) if sparse else (3, 20, 100)
        assert outputs.logits.shape == expected_shape
        assert model.eval()(ids, labels=labels).logits.shape == (3, 20, 100)
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])
