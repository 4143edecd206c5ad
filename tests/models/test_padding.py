"""A padded batch: each text has the outputs of it alone, whether its padding is computed or left out."""

import pytest
import torch
from cases import NEZHA, VARIANTS, close, make_ids, make_variant, select_row, source_of
from helpers.properties import max_examples
from helpers.small_models import small_model
from hypothesis import given
from hypothesis import strategies as st

RIGHT = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]])
# Cosines and sines of the positions that a text has after padding are rounded to float32.
ATOL = {"right": 1e-9, "left": 1e-5, "holes": 1e-9}
HOLES = torch.tensor([[1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1]])
MASKS = {"right": RIGHT, "left": RIGHT.flip(1), "holes": HOLES}


def make_batch(mask):
    """Return ids, segments and the mask; padding is of segment 0, as from the tokenizer."""
    segments = torch.randint(0, 2, mask.shape, generator=torch.Generator().manual_seed(2))
    return {"input_ids": make_ids(*mask.shape), "attention_mask": mask, "token_type_ids": segments * mask}


def is_left_out(model, mask):
    """Return whether the model may leave this padding out: texts begin with a token, and no rows are needed."""
    config = model.config
    needs_rows = config.model_type == "nezha" or getattr(config, "prefix_lm", False) or config.chunk_size_feed_forward
    is_eager_decoder = config.is_decoder and config._attn_implementation == "eager"
    return bool(mask[:, 0].all()) and not needs_rows and not is_eager_decoder


@torch.no_grad()
@pytest.mark.parametrize("side", MASKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_text_has_the_outputs_that_it_has_alone(variant, side, packs_any_padding):
    model, mask = make_variant(variant), MASKS[side]
    batch, is_token = make_batch(mask), mask != 0
    batch |= source_of(model, len(mask))
    if side == "holes":  # the tokens have other positions than alone, on which learned ones and dynamic NTK depend
        batch["position_ids"] = torch.arange(6).expand(mask.shape)
    padded, unpadded = (model(**batch, use_cache=False, unpad_inputs=unpad) for unpad in (False, True))
    for row, keep in enumerate(is_token):
        inputs = select_row(batch, row)
        del inputs["attention_mask"]
        tokens = {name: x if name.startswith("encoder") else x[:, keep] for name, x in inputs.items()}
        alone = model(**tokens, use_cache=False)
        for outputs in (padded, unpadded):
            close(outputs.last_hidden_state[row, keep], alone.last_hidden_state[0], ATOL[side])
            if "pooler_output" in outputs:
                close(outputs.pooler_output[row], alone.pooler_output[0], ATOL[side])
    assert unpadded.last_hidden_state[~is_token].any() != is_left_out(model, mask)


@torch.no_grad()
@pytest.mark.parametrize("variant", [name for name in VARIANTS if "linear" in name])
def test_a_text_of_padding_alone_is_finite(variant):
    """Linear attention divides by a sum over no tokens."""
    model, mask = make_variant(variant), torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]])
    inputs = {"input_ids": make_ids(2, 4), **source_of(model, 2)}
    found = model(**inputs, attention_mask=mask).last_hidden_state
    assert found.isfinite().all()
    close(found[1:], model(**select_row(inputs, 1)).last_hidden_state)


@max_examples(40)
@given(data=st.data())
def test_any_mask_and_positions(data, packs_any_padding):
    b, s = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 12))
    tokens = st.lists(st.booleans(), min_size=s - 1, max_size=s - 1)
    mask = torch.tensor([[True, *data.draw(tokens)] for _ in range(b)])
    dtype = data.draw(st.sampled_from([torch.bool, torch.long, torch.float32]))
    batch = {**make_batch(mask.long()), "attention_mask": mask.to(dtype)}
    rows = data.draw(st.sampled_from([0, 1, b]))
    if rows:
        batch["position_ids"] = torch.randint(0, 500, (rows, s), generator=torch.Generator().manual_seed(s))
    model = small_model(rotary_value=data.draw(st.booleans())).double()
    with torch.no_grad():
        padded, unpadded = (model(**batch, unpad_inputs=unpad).last_hidden_state for unpad in (False, True))
    close(unpadded, padded.masked_fill(~mask[..., None], 0))


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "factorised", "linear elu", *NEZHA])
def test_embeddings_may_come_instead_of_ids(variant, packs_any_padding):
    model, batch = make_variant(variant), make_batch(HOLES)
    expected = model(**batch).last_hidden_state
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    close(model(**batch, inputs_embeds=embeddings).last_hidden_state, expected)


@torch.no_grad()
@pytest.mark.parametrize("side", MASKS)
@pytest.mark.parametrize("fields", [{}, {"summary_type": "first"}, {"summary_type": "mean"}], ids=str)
def test_choices_are_scored_the_same(fields, side, packs_any_padding):
    """By default their head reads the last position, padding or not."""
    model = small_model("RoFormerForMultipleChoice", **fields).double()
    batch = {name: x[:, None] for name, x in make_batch(MASKS[side]).items()}
    close(*(model(**batch, unpad_inputs=unpad).logits for unpad in (False, True)))


# Heads that read a text's first token, by model and fields; (b, choices, s) for multiple choice.
FIRST_TOKEN = {
    "classification": ("RoFormerForSequenceClassification", {"num_labels": 3}),
    "one layer": ("RoFormerForSequenceClassification", {"classifier_layers": 1}),
    "V2": ("RoFormerForSequenceClassification", {"norm_type": "rms_norm", "use_bias": False}),
    "linear": ("RoFormerForSequenceClassification", {"attention_type": "linear"}),
    "rotary values": ("RoFormerForSequenceClassification", {"rotary_value": True}),
    "learned": ("RoFormerForSequenceClassification", {"position_encoding": "learned"}),
    "sinusoidal": ("RoFormerForSequenceClassification", {"position_encoding": "sinusoidal"}),
    "choice": ("RoFormerForMultipleChoice", {"summary_type": "first"}),
    "NEZHA": ("NezhaForSequenceClassification", {"num_labels": 3}),
    "NEZHA's choice": ("NezhaForMultipleChoice", {}),
    "next sentence": ("NezhaForNextSentencePrediction", {}),
}


@torch.no_grad()
@pytest.mark.parametrize("side", MASKS)
@pytest.mark.parametrize("name", FIRST_TOKEN)
def test_heads_read_the_first_token_of_a_text_wherever_it_lies(name, side):
    head, fields = FIRST_TOKEN[name]
    model, batch, has_choices = small_model(head, **fields).double(), make_batch(MASKS[side]), "Choice" in head
    if side == "holes":
        batch["position_ids"] = torch.arange(6).expand(len(HOLES), 6)
    shaped = (lambda inputs: {key: x[:, None] for key, x in inputs.items()}) if has_choices else dict
    padded = model(**shaped(batch)).logits
    for row, keep in enumerate(batch.pop("attention_mask") != 0):
        alone = {key: x[row : row + 1, keep] for key, x in batch.items()}
        close(padded[row], model(**shaped(alone)).logits[0], ATOL[side])


@torch.no_grad()
def test_a_row_of_padding_alone_has_logits():
    model = small_model("RoFormerForSequenceClassification")
    assert model(make_ids(2, 4), torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]])).logits.isfinite().all()


@pytest.mark.slow
@torch.no_grad()
def test_exported_heads_read_the_first_token():
    model, batch = small_model("RoFormerForSequenceClassification").double(), make_batch(MASKS["left"])
    expected = model(**batch).logits
    example = make_batch(torch.ones(3, 9, dtype=torch.long))
    dynamic = {key: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for key in example}
    program = torch.export.export(model, (), example, dynamic_shapes=dynamic).module()
    close(program(**batch)[0], expected)
    close(torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")(**batch).logits, expected)
