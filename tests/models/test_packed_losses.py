"""Losses of several texts in a row, as Trainer and TRL compute them: those of padded batches."""

import pytest
import torch
from cases import DECODER, EAGER, LINEAR, NO_DROPOUT, close
from helpers.flattened import EVERYTHING, TEXTS
from helpers.small_models import small_model
from transformers import DataCollatorWithFlattening


def padded(texts, labels):
    """Return the batch of these texts and labels with padding; a text's first label is ignored, as by the collator."""
    width = max(map(len, texts))
    ids, mask, wanted = torch.zeros(3, len(texts), width, dtype=torch.long)
    wanted.fill_(-100)
    for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
        ids[i, : len(text)], mask[i, : len(text)] = text, 1
        wanted[i, 1 : len(text)] = label[1:]
    return {"input_ids": ids, "attention_mask": mask, "labels": wanted}


HEADS = {
    "causal": ("RoFormerForCausalLM", DECODER),
    "causal linear": ("RoFormerForCausalLM", {**DECODER, **LINEAR}),
    "causal eager": ("RoFormerForCausalLM", {**DECODER, **EAGER}),
    "masked": ("RoFormerForMaskedLM", {}),
    "masked sparse": ("RoFormerForMaskedLM", {"sparse_prediction": True}),
    "masked linear": ("RoFormerForMaskedLM", LINEAR),
    "tokens": ("RoFormerForTokenClassification", {"num_labels": 90}),
    "nezha": ("NezhaForMaskedLM", {}),
}
COLLATORS = [{}, EVERYTHING, {**EVERYTHING, "return_position_ids": False}, {"return_seq_idx": True}]


def make(head, **more):
    name, fields = HEADS[head]
    return small_model(name, **fields, **NO_DROPOUT, **more)


def labels_of(head, texts):
    if head.startswith("causal"):
        return texts
    return [text.masked_fill(torch.arange(len(text)) % 3 == 2, -100) for text in texts]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("num_items", [None, 40])
@pytest.mark.parametrize("head", HEADS)
def test_losses_are_those_of_padded_batches(head, num_items, training):
    labels = labels_of(head, TEXTS)
    examples = [{"input_ids": x, "labels": y} for x, y in zip(TEXTS, labels, strict=True)]
    model = make(head).double().train(training)
    more = {} if num_items is None else {"num_items_in_batch": torch.tensor(num_items)}
    expected = model(**padded(TEXTS, labels), **more).loss
    gradients = torch.autograd.grad(expected, model.parameters())
    for options in COLLATORS:
        found = model(**DataCollatorWithFlattening(**options)(examples), **more).loss
        close(found, expected, 2e-6)  # of a causal model, in float32
        for one, other in zip(torch.autograd.grad(found, model.parameters()), gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


def trl_batch(texts, pad_to_multiple_of=None):
    """Return the batch of TRL's `DataCollatorForLanguageModeling(padding_free=True)`; packed rows are flattened too."""
    n = sum(map(len, texts))
    fill = 0 if pad_to_multiple_of is None else -n % pad_to_multiple_of
    ids = torch.cat([*texts, torch.zeros(fill, dtype=torch.long)])
    positions = torch.cat([*(torch.arange(len(text)) for text in texts), torch.zeros(fill, dtype=torch.long)])
    labels = ids.masked_fill(positions == 0, -100)
    ends = torch.cat([(positions == 0).nonzero().flatten(), torch.tensor([len(ids)])]).to(torch.int32)
    batch = {"input_ids": ids, "position_ids": positions, "labels": labels}
    batch["seq_idx"] = torch.repeat_interleave(torch.arange(len(ends) - 1, dtype=torch.int32), ends.diff())
    lengths = dict.fromkeys(("max_length_q", "max_length_k"), int(ends.diff().max()))
    return {name: x[None] for name, x in batch.items()} | {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends} | lengths


@pytest.mark.parametrize("pad_to_multiple_of", [None, 8])
@pytest.mark.parametrize("head", ["causal", "causal linear", "causal eager"])
def test_losses_of_trls_layout_are_those_of_padded_batches(head, pad_to_multiple_of):
    model = make(head).double().train()
    found = model(**trl_batch(TEXTS, pad_to_multiple_of), use_cache=False)
    close(found.loss, model(**padded(TEXTS, TEXTS)).loss, 2e-6)
    close(found.logits[0, :22], torch.cat([model(text[None]).logits[0] for text in TEXTS]))
