"""Gradients: every parameter has one, and padding, packing and gradient checkpointing do not change it."""

import pytest
import torch
from cases import NO_DROPOUT, VARIANTS, make_ids, make_variant, source_of

LENGTHS = (3, 6, 1, 3)
TEXTS = make_ids(4, 6)
MASK = (torch.arange(6) < torch.tensor(LENGTHS)[:, None]).long()
IS_TOKEN = MASK.bool()
POSITIONS = torch.arange(6).expand(4, 6)
SEGMENTS = make_ids(4, 6, seed=2) % 2


def hidden_states(model, way):
    """Return the outputs of all tokens, shape (tokens, hidden_size), and those of the pooler if there is one."""
    inputs = {"input_ids": TEXTS, "token_type_ids": SEGMENTS}
    source = source_of(model, len(TEXTS))
    if way == "alone":
        calls = []
        for i, n in enumerate(LENGTHS):
            text = {name: x[i : i + 1, :n] for name, x in inputs.items()}
            calls.append(model(**text, **{name: x[i : i + 1] for name, x in source.items()}, use_cache=False))
        states, pooled = torch.cat([call[0][0] for call in calls]), [call.get("pooler_output") for call in calls]
        return states, None if pooled[0] is None else torch.cat(pooled)
    if way == "in a row":
        row = {name: x[IS_TOKEN][None] for name, x in (inputs | {"position_ids": POSITIONS}).items()}
        outputs = model(**row, use_cache=False)
        return outputs.last_hidden_state[0], outputs.get("pooler_output")
    outputs = model(**inputs, **source, attention_mask=MASK, use_cache=False, unpad_inputs=way == "unpadded")
    return outputs.last_hidden_state[IS_TOKEN], outputs.get("pooler_output")


def gradients_of(model, way):
    """Return the gradient of a weighted sum of the outputs by each parameter's name."""
    generator = torch.Generator().manual_seed(5)
    total = 0
    for x in hidden_states(model, way):
        if x is not None:
            total = total + (x * torch.randn(x.shape, generator=generator, dtype=x.dtype)).sum()
    model.zero_grad()
    total.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_each_text_alone(variant, packs_any_padding):
    model = make_variant(variant, **NO_DROPOUT).train()
    expected = gradients_of(model, "alone")
    for name, gradient in expected.items():
        # Without rotation, a bias of keys adds one number to all scores of a query, which the softmax ignores.
        assert gradient.isfinite().all() and ("key.bias" in name or gradient.abs().max() > 1e-6), name
    ways = ["padded", "unpadded"] if "cross" in variant else ["padded", "unpadded", "in a row"]
    for use_reentrant in (None, False, True):
        if use_reentrant is not None:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        for way in ways:
            for name, gradient in gradients_of(model, way).items():
                precision = 1e-9 if gradient.dtype == torch.float64 else 1e-5  # trained frequencies are float32
                torch.testing.assert_close(
                    gradient, expected[name], atol=precision, rtol=precision, msg=f"{way} {name}"
                )
