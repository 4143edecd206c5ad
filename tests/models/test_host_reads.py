"""Number of times that a forward pass waits for the device, to read a value on the host: at most twice in training."""

from collections import Counter
from functools import partial

import pytest
import torch
from helpers.flattened import ENDS, flatten
from helpers.small_models import small_config
from helpers.training_steps import CASES, CLASSES, IDS, MASKS, make_step, number_of_reads
from helpers.waits import host_reads

import modeling_roformer as ours


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool(x.all()), "_local_scalar_dense"),
        (lambda x: x[x > 1], "index"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: torch.isin(x, x), "isin"),
        (lambda x: torch.equal(x, x.clone()), "equal"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.cpu(), "cpu"),
    ],
)
def test_reads_are_counted(function, name):
    assert host_reads(lambda: function(torch.arange(3))) == {name: 1}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", CASES)
def test_reads_of_a_training_step(case, mask):
    model, inputs = make_step(case, mask)

    def step():
        outputs = model(**inputs)
        outputs[0].sum().backward()  # the loss where there is one

    reads = host_reads(step)
    assert reads.total() <= number_of_reads(case), reads


@pytest.mark.parametrize("head", ["RoFormerModel", "RoFormerForMaskedLM", "RoFormerForSequenceClassification"])
def test_leaving_out_padding_adds_one_read(head, packs_any_padding):
    model = getattr(ours, head)(small_config(num_labels=3))
    labels = {"RoFormerForMaskedLM": IDS.masked_fill(IDS == 0, -100), "RoFormerForSequenceClassification": CLASSES}
    inputs = {"attention_mask": MASKS["with padding"]} | ({"labels": labels[head]} if head in labels else {})
    calls = [partial(model, IDS, **inputs, unpad_inputs=unpad) for unpad in (False, True)]
    computed, left_out = map(host_reads, calls)
    assert left_out == computed + Counter(tolist=1)


def test_reads_of_many_texts_in_a_row():
    """The host reads the ranges of all inputs at once, and the lengths, by which texts are grouped on a CPU."""
    model, batch = ours.RoFormerModel(small_config()), flatten([torch.tensor([5, 6, 7])] * 100, ENDS)
    assert host_reads(partial(model, **batch)) == {"tolist": 2}


@pytest.mark.parametrize("cached", [True, False])
def test_reads_of_a_generated_word(cached):
    model = ours.RoFormerForCausalLM(small_config(num_labels=3, is_decoder=True)).eval()
    mask = MASKS["with padding"]
    with torch.no_grad():
        cache = model(IDS, attention_mask=mask).past_key_values if cached else None
        mask = torch.nn.functional.pad(mask, (1, 0), value=1) if cached else mask[:, :1]
        reads = host_reads(lambda: model(IDS[:, :1], attention_mask=mask, past_key_values=cache))
    assert reads.total() == 1, reads


def test_padding_without_a_mask_is_warned_of(caplog):
    """The warning is transformers', and comes once; it needs no read of its own."""
    from transformers.utils import logging

    logging.get_logger("transformers.modeling_utils").warning_once.cache_clear()
    logging.enable_propagation()
    try:
        model = ours.RoFormerModel(small_config(num_labels=3))
        model(IDS.clamp(min=1))
        assert "attention_mask" not in caplog.text
        model(IDS)
        assert "attention_mask" in caplog.text
    finally:
        logging.disable_propagation()
