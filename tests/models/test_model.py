"""Models against transformers' own RoFormer, in both directions, and against the formulas written out in float64."""

import pytest
import torch
import transformers.models.roformer.modeling_roformer as theirs
from helpers.paths import REPOSITORY
from transformers.models.roformer.configuration_roformer import RoFormerConfig as TheirConfig

import modeling_roformer as ours

SIZES = dict(
    vocab_size=300, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, num_labels=5
)
VARIANTS = {
    "plain": {},
    "factorised": {"embedding_size": 32},
    "rotary_value": {"rotary_value": True},
    "chunked": {"chunk_size_feed_forward": 8},
}
HEADS = [
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForSequenceClassification",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
    "RoFormerForCausalLM",
    "RoFormerForMultipleChoice",
]
TABLE = "encoder.embed_positions.weight"


def make_pair(head="RoFormerForMaskedLM", **changes):
    """Our model and transformers', with the same weights."""
    torch.manual_seed(1)
    fields = {**SIZES, "initializer_range": 0.1, "is_decoder": head == "RoFormerForCausalLM", **changes}
    their_model = getattr(theirs, head)(TheirConfig(**fields)).eval()
    our_model = getattr(ours, head)(ours.RoFormerConfig(**fields)).eval()
    with torch.no_grad():  # biases and norms are trivial at the start: make them count
        for parameter in their_model.parameters():
            if parameter.requires_grad and parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    our_model.load_state_dict(their_model.state_dict())
    return our_model, their_model


def make_batch(b=3, s=40, padded=True):
    generator = torch.Generator().manual_seed(0)
    batch = {
        "input_ids": torch.randint(5, SIZES["vocab_size"], (b, s), generator=generator),
        "token_type_ids": torch.randint(0, 2, (b, s), generator=generator),
        "attention_mask": torch.ones(b, s, dtype=torch.long),
    }
    if padded and b > 1:
        batch["attention_mask"][1, s // 2 :] = 0
        batch["input_ids"][1, s // 2 :] = 0
    return batch


def batch_for(head, **sizes):
    """A batch in the form that a head takes: multiple choice has a dimension of choices."""
    batch = make_batch(**sizes)
    if head == "RoFormerForMultipleChoice":
        return {name: torch.stack([tensor, tensor.flip(0)], dim=1) for name, tensor in batch.items()}
    return batch


def assert_same(one, other, mask, atol=5e-5):
    """Outputs of two models, padding positions aside; those of whole texts have one row each."""
    assert list(one.keys()) == list(other.keys())
    for name in one:
        if not isinstance(one[name], torch.Tensor):
            continue
        a, b = one[name], other[name]
        if a.ndim >= 2 and a.shape[:2] == mask.shape:
            a, b = a[mask.bool()], b[mask.bool()]
        torch.testing.assert_close(a, b, atol=atol, rtol=0)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_transformers(head, variant):
    our_model, their_model = make_pair(head, **VARIANTS[variant])
    batch = batch_for(head)
    with torch.no_grad():
        assert_same(our_model(**batch), their_model(**batch), batch["attention_mask"])


@pytest.mark.parametrize("head", HEADS)
def test_equals_transformers_at_its_longest(head):
    our_model, their_model = make_pair(head)
    batch = batch_for(head, b=1, s=1536)
    with torch.no_grad():
        assert_same(our_model(**batch), their_model(**batch), batch["attention_mask"])


@pytest.mark.parametrize("head", HEADS)
def test_saved_folder_loads_in_transformers_and_back(head, tmp_path):
    our_model, their_model = make_pair(head, embedding_size=32)
    batch = batch_for(head)
    our_model.save_pretrained(tmp_path / "ours")
    theirs_loaded, report = getattr(theirs, head).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["unexpected_keys"] and all(key.endswith(TABLE) for key in report["missing_keys"])
    their_model.save_pretrained(tmp_path / "theirs")
    ours_loaded = getattr(ours, head).from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        expected = our_model(**batch)
        assert_same(theirs_loaded.eval()(**batch), expected, batch["attention_mask"])
        assert_same(ours_loaded(**batch), expected, batch["attention_mask"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_matrices_and_hidden_states_equal_transformers(variant):
    our_model, their_model = make_pair("RoFormerModel", **VARIANTS[variant])
    batch = make_batch()
    want = dict(output_attentions=True, output_hidden_states=True)
    with torch.no_grad():
        one, other = our_model(**batch, **want), their_model(**batch, **want)
    keep = batch["attention_mask"].bool()
    assert len(one.attentions) == len(other.attentions) == SIZES["num_hidden_layers"]
    assert len(one.hidden_states) == len(other.hidden_states) == SIZES["num_hidden_layers"] + 1
    for a, b in zip(one.attentions, other.attentions, strict=True):
        torch.testing.assert_close(a.transpose(1, 2)[keep], b.transpose(1, 2)[keep], atol=1e-5, rtol=0)
    for a, b in zip(one.hidden_states, other.hidden_states, strict=True):
        torch.testing.assert_close(a[keep], b[keep], atol=5e-5, rtol=0)


def test_the_config_asks_for_matrices_too():
    our_model, _ = make_pair("RoFormerModel")
    our_model.config.output_attentions = True
    outputs = our_model(**make_batch())
    assert our_model.config._attn_implementation == "sdpa"
    assert len(outputs.attentions) == SIZES["num_hidden_layers"]


def test_tuples_equal_transformers():
    our_model, their_model = make_pair()
    batch = make_batch(padded=False)
    want = dict(labels=batch["input_ids"], output_hidden_states=True, return_dict=False)
    with torch.no_grad():
        one, other = our_model(**batch, **want), their_model(**batch, **want)
    assert isinstance(one, tuple)
    assert len(one) == len(other)
    torch.testing.assert_close(one[0], other[0], atol=5e-5, rtol=0)
    torch.testing.assert_close(one[1], other[1], atol=5e-5, rtol=0)
    assert len(one[2]) == len(other[2])


LABELS = {
    "RoFormerForMaskedLM": [{}],
    "RoFormerForTokenClassification": [{}],
    "RoFormerForQuestionAnswering": [{}],
    "RoFormerForCausalLM": [{}],
    "RoFormerForMultipleChoice": [
        {},
        {"summary_type": "first", "summary_use_proj": True, "summary_activation": "tanh"},
        {"summary_type": "mean"},
    ],
    "RoFormerForSequenceClassification": [
        {"num_labels": 5},
        {"num_labels": 1},
        {"num_labels": 5, "problem_type": "regression"},
        {"num_labels": 5, "problem_type": "multi_label_classification"},
        {"num_labels": 5, "problem_type": None, "float_labels": True},
    ],
}


def labels_for(head, fields, batch):
    b, s = batch["input_ids"].shape
    if head == "RoFormerForQuestionAnswering":
        return {"start_positions": torch.tensor([3, 8, s + 4]), "end_positions": torch.tensor([5, 9, s + 9])}
    if head == "RoFormerForMultipleChoice":
        return {"labels": torch.tensor([0, 1, 0])}
    if head != "RoFormerForSequenceClassification":
        high = SIZES["num_labels"] if head == "RoFormerForTokenClassification" else SIZES["vocab_size"]
        labels = torch.randint(0, high, (b, s))
        labels[:, ::2] = -100
        return {"labels": labels}
    if fields["num_labels"] == 1:
        return {"labels": torch.rand(b)}
    if fields.get("problem_type") or fields.get("float_labels"):
        return {"labels": torch.randint(0, 2, (b, fields["num_labels"])).float()}
    return {"labels": torch.randint(0, fields["num_labels"], (b,))}


@pytest.mark.parametrize(
    ("head", "fields"), [(head, fields) for head, variants in LABELS.items() for fields in variants]
)
def test_losses_and_gradients_equal_transformers(head, fields):
    our_model, their_model = make_pair(head, **{k: v for k, v in fields.items() if k != "float_labels"})
    batch = batch_for(head)
    labels = labels_for(head, fields, make_batch())
    our_loss, their_loss = our_model(**batch, **labels).loss, their_model(**batch, **labels).loss
    torch.testing.assert_close(our_loss, their_loss, atol=1e-5, rtol=0)
    assert our_model.config.problem_type == their_model.config.problem_type
    our_loss.backward()
    their_loss.backward()
    gradients = {name: p.grad for name, p in their_model.named_parameters() if p.grad is not None}
    assert gradients
    for name, parameter in our_model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=5e-5, rtol=0, msg=name)


def test_only_differences_of_positions_matter():
    model, _ = make_pair("RoFormerModel")
    batch = make_batch(b=2, s=30, padded=False)
    shifted = torch.arange(30)[None] + torch.tensor([[500], [12_345]])
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        torch.testing.assert_close(model(**batch, position_ids=shifted).last_hidden_state, expected, atol=5e-5, rtol=0)
        other = model(**batch, position_ids=torch.arange(0, 60, 2)[None]).last_hidden_state
    assert (other - expected).abs().max() > 1e-2


@pytest.mark.parametrize("length", [8192, pytest.param(16384, marks=pytest.mark.slow)])
def test_long_texts_run(length):
    config = ours.RoFormerConfig(**{**SIZES, "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 32})
    model = ours.RoFormerModel(config).eval()
    ids = torch.randint(5, SIZES["vocab_size"], (1, length))
    with torch.no_grad():
        hidden = model(ids).last_hidden_state
        # The end of a long text, seen alone at its own positions, agrees where it attends to itself only.
        keep = torch.zeros(1, length, dtype=torch.long)
        keep[:, -64:] = 1
        masked = model(ids, attention_mask=keep).last_hidden_state[:, -64:]
        alone = model(ids[:, -64:], position_ids=torch.arange(length - 64, length)[None]).last_hidden_state
    assert hidden.shape == (1, length, 32)
    assert hidden.isfinite().all()
    torch.testing.assert_close(masked, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_mask_of_one_row_for_all_queries_equals_transformers(implementation):
    """The "extended" mask that BERT's own code made of padding, boolean or added to the scores."""
    our_model, their_model = make_pair("RoFormerModel")
    our_model.set_attn_implementation(implementation)
    batch = make_batch()
    keep = batch.pop("attention_mask")
    added = (1.0 - keep[:, None, None].float()) * torch.finfo(torch.float32).min
    with torch.no_grad():
        expected = their_model(**batch, attention_mask=added)
        for mask in (added, keep[:, None, None].bool()):
            assert_same(our_model(**batch, attention_mask=mask), expected, keep)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("RoFormerForMaskedLM", {}),
        ("RoFormerForTripletMatching", {}),
        ("NezhaForMaskedLM", {}),
        *(
            ("RoFormerForCausalLM", {"attention_type": "linear", "linear_feature_map": kind, "is_decoder": is_decoder})
            for kind in ("elu", "softmax", "cosine", "favor")
            for is_decoder in (False, True)
        ),
    ],
)
def test_shapes_on_the_meta_device(name, fields):
    config = ours.NezhaConfig if name.startswith("Nezha") else ours.RoFormerConfig
    with torch.device("meta"):
        model = getattr(ours, name)(config(**{**SIZES, "num_labels": 2, **fields})).train()
    batch = {name: x.to("meta") for name, x in make_batch().items()}
    if "Triplet" in name:
        batch = {name: torch.stack([x, x], dim=1) for name, x in batch.items()}
        assert model(**batch, labels=torch.zeros(3, dtype=torch.long, device="meta")).logits.shape == (3, 2)
    else:
        assert model(**batch, labels=batch["input_ids"]).logits.shape == (3, 40, 300)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["yarn", "dynamic", "linear"])
def test_scaled_frequencies_are_traced(kind):
    rope = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 16}
    model = ours.RoFormerModel(
        ours.RoFormerConfig(**SIZES, rope_parameters=rope, return_dict=False, initializer_range=0.1)
    ).eval()
    ids = make_batch()["input_ids"]
    with torch.no_grad():
        traced = torch.jit.trace(model, (ids,), check_trace=False)
        torch.testing.assert_close(traced(ids)[0], model(ids)[0])


def test_each_module_of_models_has_tests_of_its_name():
    modules = {path.stem for path in (REPOSITORY / "modeling_roformer").glob("*.py")} - {"__init__", "__main__"}
    tests = {path.stem.removeprefix("test_") for path in (REPOSITORY / "tests").rglob("test_*.py")}
    assert "model" in modules and modules - tests == set()
