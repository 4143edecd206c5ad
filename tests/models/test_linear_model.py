"""Models with linear attention, as their users call them."""

import json
import subprocess
import sys

import onnxruntime
import pytest
import torch
from helpers.messages import assert_states, refused
from helpers.small_models import small_config
from test_linear_attention import DIRECTIONS, MAPS, attention_of, fields_of, make_ids, make_model, written_out
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
from transformers.utils import logging

import modeling_roformer as ours
from modeling_roformer import NezhaConfig, RoFormerConfig, RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerModel
from modeling_roformer.hub.remote_code import files_with_code

HEADS = [
    "RoFormerForMaskedLM",
    "RoFormerForSequenceClassification",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", [name for name in MAPS if name != "favor before"])
def test_only_differences_of_positions_matter(name, direction):
    model = make_model(name, **DIRECTIONS[direction], initializer_range=0.2)
    ids, positions = make_ids(2, 70), torch.arange(70)[None]
    with torch.no_grad():
        expected, shifted, stretched = (
            model(ids, position_ids=p).last_hidden_state for p in (positions, positions + 100_000, positions * 2)
        )
    torch.testing.assert_close(shifted, expected, atol=2e-5, rtol=0)
    assert (stretched - expected).abs().max() > 1e-3


def test_rotated_before_the_map_they_do_in_the_mean():
    """Random features have directions of their own, which a rotation turns vectors away from."""
    errors = []
    for m in (16, 4096):
        model = make_model("favor before", linear_num_features=m, initializer_range=0.1)
        ids, positions = make_ids(2, 70), torch.arange(70)[None]
        with torch.no_grad():
            outputs = [attention_of(model, input_ids=ids, position_ids=p)[1] for p in (positions, positions + 1000)]
        errors.append((outputs[1] - outputs[0]).norm() / outputs[0].norm())
    assert errors[1] < errors[0] / 8


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_padding_left_out_changes_nothing(name, direction):
    model = make_model(name, num_hidden_layers=2, **DIRECTIONS[direction]).double()
    ids, mask = make_ids(4, 80), torch.ones(4, 80, dtype=torch.long)
    for row, length in enumerate((80, 7, 66, 7)):
        mask[row, length:] = 0
    mask[2, 30:40] = 0
    with torch.no_grad():
        expected, found = (model(ids, mask, unpad_inputs=on).last_hidden_state for on in (False, True))
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-9, rtol=0)
    for row in (0, 1, 3):
        with torch.no_grad():
            alone = model(ids[row, : mask[row].sum()][None]).last_hidden_state[0]
        torch.testing.assert_close(found[row, : len(alone)], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("fields", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_gradients(name, fields):
    """By differences, in float64, through several chunks."""
    config = small_config(num_hidden_layers=1, hidden_size=4, num_attention_heads=1, **fields_of(name), **fields)
    attention = RoFormerModel(config).encoder.layer[0].attention.self.double()
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 140, 1, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    keep = torch.rand(1, 140, generator=generator) < 0.8
    angles = torch.rand(1, 140, 1, config.rotary_dim // 2, generator=generator)

    def attend(q, k, v):
        return attention.attend_linearly(q, k, v, (angles.cos(), angles.sin()), keep)[0]

    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_matrices_are_made_on_request(name, direction):
    """And give the same answer; their rows add up to 1 where the denominator has the same weights."""
    model = make_model(name, num_hidden_layers=2, **DIRECTIONS[direction]).double()
    ids, mask = make_ids(2, 75), torch.ones(2, 75, dtype=torch.long)
    mask[1, 50:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    with torch.no_grad():
        expected, found = model(**inputs), model(**inputs, output_attentions=True)
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, atol=1e-9, rtol=0)
    assert [matrix.shape for matrix in found.attentions] == [(2, 2, 75, 75)] * 2
    for matrix in found.attentions:
        assert not matrix[1, :, :, 50:].any()
        if direction == "causal":
            assert not matrix.triu(1).any()
        if name in ("cosine", "favor before"):
            torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 2, 75, dtype=torch.float64))
            assert (matrix >= 0).all()


def test_matrices_that_cannot_be_made_are_refused():
    model = make_model("elu")
    with refused(ValueError, "output_attentions=True", "4,096", "4,097"):
        model(torch.ones(1, 4097, dtype=torch.long), output_attentions=True)
    decoder = make_model("elu", is_decoder=True)
    cache = decoder(make_ids(1, 3), use_cache=True).past_key_values
    with refused(ValueError, "output_attentions=True", "use_cache=False"):
        decoder(make_ids(1, 1), past_key_values=cache, output_attentions=True)


@pytest.mark.parametrize("rope", ["linear", "dynamic", "theta"])
def test_scaled_positions(rope):
    parameters = {
        "linear": {"rope_type": "linear", "factor": 4.0},
        "dynamic": {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16},
        "theta": {"rope_theta": 500.0},
    }[rope]
    for name in ("elu", "favor", "favor before"):
        plain, scaled = (make_model(name, rope_parameters=p) for p in (None, parameters))
        scaled.load_state_dict(plain.state_dict())
        ids = make_ids(1, 40)
        with torch.no_grad():
            if rope == "linear":  # the same as positions a quarter as far apart
                expected = plain(ids[:, :1].expand(-1, 40), position_ids=torch.arange(40)[None] * 5).last_hidden_state
                found = scaled(ids[:, :1].expand(-1, 40), position_ids=torch.arange(40)[None] * 20).last_hidden_state
                torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
            else:
                assert (scaled(ids).last_hidden_state - plain(ids).last_hidden_state).abs().max() > 1e-3


def test_frequencies_are_trained():
    for name in ("elu", "favor"):
        model = make_model(name, RoFormerForMaskedLM, trainable_rope=True).train()
        ids = make_ids(2, 20)
        model(ids, labels=ids).loss.backward()
        assert model.roformer.encoder.log_inv_freq_offset.grad.abs().max() > 0
        assert len(model.roformer.encoder.log_inv_freq_offset) == (12 if name == "favor" else 8)


@pytest.mark.parametrize("name", MAPS)
def test_saved_and_loaded(name, tmp_path):
    model = make_model(name, RoFormerForMaskedLM, linear_seed=5)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["model_type"], saved["attention_type"]) == ("roformer_x", "linear")
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(loaded) is RoFormerForMaskedLM and loaded.config.linear_feature_map == name.split()[0]
    ids = make_ids(2, 9)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    half = AutoModel.from_pretrained(tmp_path, dtype="bfloat16")
    assert half(ids).last_hidden_state.dtype == torch.bfloat16
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == model.config.to_diff_dict()


@pytest.fixture
def warnings_of_loading(caplog):
    """Warnings of loading, as a function: a class and arguments in, text out."""

    def warnings(model_class, folder, **kwargs) -> str:
        logging.get_logger("modeling_roformer.loading").warning_once.cache_clear()
        caplog.clear()
        model_class.from_pretrained(folder, **kwargs)
        return caplog.text

    return warnings


def test_another_attention_than_the_trained_one_is_said(tmp_path, warnings_of_loading):
    softmax = RoFormerForMaskedLM(small_config(num_hidden_layers=1))
    softmax.save_pretrained(tmp_path / "softmax")
    linear = AutoModelForMaskedLM.from_pretrained(tmp_path / "softmax", attention_type="linear")
    linear.save_pretrained(tmp_path / "linear")
    for name, weight in softmax.state_dict().items():
        assert torch.equal(weight, linear.state_dict()[name])

    said = warnings_of_loading(AutoModelForMaskedLM, tmp_path / "softmax", attention_type="linear")
    assert_states(said, tmp_path / "softmax", "linear (linear_feature_map='elu')", "examples/pretrain_mlm.py")
    assert said.index("softmax attention") < said.index("linear (")  # trained with, loaded with
    config = AutoConfig.from_pretrained(tmp_path / "softmax", attention_type="linear", linear_feature_map="cosine")
    assert "'cosine'" in warnings_of_loading(RoFormerForMaskedLM, tmp_path / "softmax", config=config)
    said = warnings_of_loading(RoFormerForMaskedLM, tmp_path / "linear", attention_type="softmax")
    assert said.index("linear (linear_feature_map='elu')") < said.index("softmax attention")
    for name, fields in (("softmax", {}), ("linear", {}), ("linear", {"attention_type": "linear"})):
        for model_class in (AutoModelForMaskedLM, RoFormerForMaskedLM):
            assert not warnings_of_loading(model_class, tmp_path / name, **fields)


@pytest.mark.slow
def test_plain_transformers_refuses_it(tmp_path):
    make_model("elu", RoFormerForMaskedLM).save_pretrained(tmp_path)
    program = f"from transformers import AutoModel; AutoModel.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode and "roformer_x" in done.stderr


ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_roformer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
generated = model.generate(torch.load(sys.argv[2], weights_only=True), max_new_tokens=8, do_sample=False)
torch.save(generated, sys.argv[3])
"""


@pytest.mark.slow
def test_with_code_it_generates_without_this_package(tmp_path):
    model = make_model("favor", RoFormerForCausalLM, is_decoder=True)
    model.save_pretrained(tmp_path / "model")
    for name, content in files_with_code(tmp_path / "model").items():
        (tmp_path / "model" / name).write_bytes(content)
    torch.save(make_ids(2, 20), tmp_path / "ids.pt")
    command = [sys.executable, "-c", ALONE, *(str(tmp_path / name) for name in ("model", "ids.pt", "generated.pt"))]
    environment = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    expected = model.generate(make_ids(2, 20), max_new_tokens=8, do_sample=False)
    assert torch.equal(torch.load(tmp_path / "generated.pt", weights_only=True), expected)


@pytest.mark.parametrize("head", HEADS)
def test_heads_train_under_gradient_checkpointing_and_autocast(head):
    torch.manual_seed(0)
    config = small_config(num_hidden_layers=1, **fields_of("softmax"), hidden_dropout_prob=0.0, num_labels=3)
    model = getattr(ours, head)(config).train()
    ids = make_ids(2, 9)
    labels = {
        "RoFormerForSequenceClassification": {"labels": torch.tensor([0, 2])},
        "RoFormerForTokenClassification": {"labels": ids % 3},
        "RoFormerForQuestionAnswering": {
            "start_positions": torch.tensor([1, 2]),
            "end_positions": torch.tensor([3, 4]),
        },
    }.get(head, {"labels": ids})
    model(ids, **labels).loss.backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    # transformers 5.20 has the old name alone, which later versions deprecate.
    (getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable)()
    model(ids, **labels).loss.backward()
    for found, expected in zip((p.grad for p in model.parameters()), gradients, strict=True):
        if expected is not None:
            torch.testing.assert_close(found, expected)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(ids, **labels).loss, model.float()(ids, **labels).loss
    assert found.item() == pytest.approx(expected.item(), rel=0.02)


def test_sums_are_not_rounded_under_autocast():
    model = make_model("elu", hidden_size=16, num_attention_heads=1)
    ids = make_ids(1, 3000)
    with torch.autocast("cpu", torch.bfloat16):
        hidden_states, found, _ = attention_of(model, input_ids=ids)
    expected = written_out(model, hidden_states, "elu", "bidirectional")
    assert (found.double() - expected).abs().max() < 0.02 * expected.abs().max()


def assert_compiles(model, **how):
    compiled = torch.compile(model, fullgraph=True, **how)
    mask = torch.ones(2, 150, dtype=torch.long)
    mask[1, 100:] = 0
    for s in (150, 40):
        ids = make_ids(2, s)
        with torch.no_grad():
            found, expected = compiled(ids, mask[:, :s]).logits, model(ids, mask[:, :s]).logits
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "direction"), [*((name, "bidirectional") for name in MAPS), ("elu", "causal"), ("softmax", "causal")]
)
def test_compiled_as_one_graph(name, direction):
    """For every length; by the compiler's first half, the second takes a minute."""
    model = make_model(name, RoFormerForMaskedLM, **DIRECTIONS[direction], use_cache=False)
    assert_compiles(model, dynamic=True, backend="aot_eager")


@pytest.mark.slow
def test_compiled():
    assert_compiles(make_model("softmax", RoFormerForMaskedLM, is_decoder=True, use_cache=False))


@pytest.mark.slow
def test_a_compiled_model_is_trained():
    model = make_model("favor", RoFormerForMaskedLM, linear_redraw_interval=1, hidden_dropout_prob=0.0).train()
    ids = make_ids(2, 70)
    torch.compile(model, fullgraph=True, backend="aot_eager")(ids, labels=ids).loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    for found, expected in zip(gradients, (p.grad for p in model.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def make_batch(b, s):
    mask = torch.ones(b, s, dtype=torch.long)
    mask[0, s // 2 + 1 :] = 0
    return {"input_ids": make_ids(b, s), "attention_mask": mask}


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_torch_export(name, direction):
    """For every batch and length of a range, which torch must be able to prove."""
    # In float64: the order of float32's sums decides the fourth digit of FAVOR's logits at 4,096 tokens.
    model = make_model(name, RoFormerForMaskedLM, **DIRECTIONS[direction], use_cache=False).double()
    batch = make_batch(3, 150)
    b, s = torch.export.Dim("b", min=1, max=64), torch.export.Dim("s", min=2, max=4096)
    dynamic = {name: {0: b, 1: s} for name in batch}
    program = torch.export.export(model, (), batch, dynamic_shapes=dynamic).module()
    for shape in ((1, 2), (1, 7), (3, 64), (2, 65), (5, 133), (1, 4096)):
        batch = make_batch(*shape)
        with torch.no_grad():
            torch.testing.assert_close(program(**batch)["logits"], model(**batch).logits, atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "direction"),
    [*((name, "bidirectional") for name in MAPS), *((name, "causal") for name in MAPS if name != "favor before")],
)
@pytest.mark.filterwarnings("ignore:.*will not be used, since it shares", "ignore:.*LeafSpec.*:FutureWarning")
def test_onnx_runtime_gives_the_same_logits(name, direction, tmp_path):
    model = make_model(name, RoFormerForMaskedLM, **DIRECTIONS[direction], use_cache=False)
    batch = make_batch(3, 150)
    dynamic = {name: {0: "batch", 1: "length"} for name in batch}
    torch.onnx.export(model, (), tmp_path / "model.onnx", kwargs=batch, dynamic_shapes=dynamic, dynamo=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for shape in ((1, 7), (5, 133)):
        batch = make_batch(*shape)
        found = session.run(None, {name: x.numpy() for name, x in batch.items()})[0]
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), model(**batch).logits, atol=1e-3, rtol=0)


# Bad input


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"attention_type": "sparse"}, ("attention_type", "sparse", "softmax", "linear")),
        ({"linear_feature_map": "relu"}, ("linear_feature_map", "relu", "elu", "softmax", "cosine", "favor")),
        ({"linear_feature_map": "favor", "linear_num_features": 0}, ("linear_num_features", 0)),
        ({"linear_feature_map": "favor", "linear_num_features": 7}, ("linear_num_features", 7)),
        ({"linear_rotation": "before"}, ('linear_rotation="before"', 'linear_feature_map="favor"', "elu")),
        ({"linear_rotation": "within"}, ("linear_rotation", "within", "after", "before")),
        ({"linear_redraw_interval": 0}, ("linear_redraw_interval", 0, 1, None)),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
            ("rope_type", "yarn", "attention_factor", "1.0"),
        ),
        ({"linear_feature_map": "favor", "trainable_rope": True, "rotary_value": True}, ("trainable_rope=True",)),
        ({"prefix_lm": True}, ("prefix_lm=True", 'attention_type="linear"')),
    ],
)
def test_fields_that_describe_no_model(fields, facts):
    with refused(ValueError, *facts):
        RoFormerConfig(**{"attention_type": "linear", **fields})


def test_a_call_refuses_the_mask_of_prefixes_that_was_set_afterwards():
    model = make_model("elu", is_decoder=True)
    model.config.prefix_lm = True
    with refused(ValueError, "prefix_lm=True", 'attention_type="linear"'):
        model(make_ids(1, 5))


def test_yarn_without_its_factor_on_scores():
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.0}
    model = make_model("elu", rope_parameters=rope)
    assert model(make_ids(1, 5)).last_hidden_state.isfinite().all()
    with refused(ValueError, "yarn", "attention_factor", "1.0"):  # nor is it set in silence
        model.config.rope_parameters = {**rope, "attention_factor": None}
    assert model.config.rope_parameters["attention_factor"] == 1.0


def test_implementations_of_softmax_attention_are_refused():
    for implementation in ("flash_attention_2", "flex_attention"):
        with refused(ValueError, f'attn_implementation="{implementation}"', 'attention_type="linear"'):
            RoFormerModel._from_config(
                small_config(num_hidden_layers=1, attention_type="linear"), attn_implementation=implementation
            )
    for implementation in ("eager", "sdpa"):  # what every model is asked for by one tool or another
        config = small_config(num_hidden_layers=1, attention_type="linear")
        RoFormerModel._from_config(config, attn_implementation=implementation)(make_ids(1, 3))


def test_masks_of_pairs_are_refused():
    model = make_model("elu")
    with refused(ValueError, 'attention_type="linear"', "attention_mask", (2, 5)):
        model(make_ids(2, 5), attention_mask=torch.ones(2, 1, 5, 5))
    with refused(ValueError, "attention_mask", (2, 4), (2, 5)):
        model(make_ids(2, 5), attention_mask=torch.ones(2, 4))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", MAPS)
def test_a_row_without_tokens_is_finite(name, direction):
    model = make_model(name, RoFormerForMaskedLM, **DIRECTIONS[direction])
    ids, mask = make_ids(2, 70), torch.ones(2, 70, dtype=torch.long)
    mask[0] = 0
    _, found, outputs = attention_of(model, input_ids=ids, attention_mask=mask)
    assert not found[0].any() and outputs.logits.isfinite().all()
    alone = model(ids[1:]).logits
    torch.testing.assert_close(outputs.logits[1:], alone, atol=1e-4, rtol=0)
    model(ids, attention_mask=mask, labels=ids).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_nezha_has_no_linear_attention():
    with refused(ValueError, 'attention_type="linear"', "RoFormer"):
        NezhaConfig(attention_type="linear")
    assert "attention_type" not in NezhaConfig(attention_type="softmax").to_dict()
