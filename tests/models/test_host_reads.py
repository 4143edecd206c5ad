"""Number of times that a forward pass waits for the device, to read a value on the host: at most twice in training."""

from collections import Counter
from functools import partial

import pytest
import torch
from helpers.small_models import small_config
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import modeling_roformer as ours

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASKS = {
    "with padding": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "without padding": torch.ones(2, 4, dtype=torch.long),
    "no mask": None,
}
SEGMENTS = torch.zeros(2, 4, dtype=torch.long)
CLASSES = torch.tensor([0, 1])
CROSS = {
    "encoder_hidden_states": torch.zeros(2, 3, 32),
    "encoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2}
CASES = {
    # head: fields of the config, arguments besides tokens, segments and mask, sequences a sample, reads
    "RoFormerModel": ({}, {"position_ids": torch.arange(4)[None]}, None, 1),
    "RoFormerModel eager": ({"attn_implementation": "eager"}, {}, None, 1),
    "RoFormerModel dynamic": ({"rope_parameters": DYNAMIC}, {}, None, 1),
    "RoFormerModel learned": ({"position_encoding": "learned"}, {"position_ids": torch.arange(4)[None]}, None, 1),
    "RoFormerModel learned by shape": ({"position_encoding": "learned"}, {}, None, 1),
    "RoFormerModel sinusoidal": ({"position_encoding": "sinusoidal"}, {}, None, 1),
    "RoFormerModel linear": ({"attention_type": "linear"}, {}, None, 1),
    "RoFormerModel Performer": ({"attention_type": "linear", "linear_feature_map": "favor"}, {}, None, 1),
    "RoFormerForMaskedLM": ({}, {"labels": IDS}, None, 2),
    "RoFormerForMaskedLM sparse": ({"sparse_prediction": True}, {"labels": IDS}, None, 2),
    "RoFormerForCausalLM": ({"is_decoder": True}, {"labels": IDS}, None, 2),
    "RoFormerForCausalLM prefix": ({"is_decoder": True, "prefix_lm": True}, {"labels": IDS}, None, 2),
    "RoFormerForCausalLM cross": ({"is_decoder": True, "add_cross_attention": True}, {"labels": IDS, **CROSS}, None, 2),
    "RoFormerForSequenceClassification": ({}, {"labels": CLASSES}, None, 2),
    "RoFormerForTokenClassification": ({}, {"labels": SEGMENTS}, None, 2),
    "RoFormerForQuestionAnswering": ({}, {"start_positions": CLASSES, "end_positions": CLASSES}, None, 2),
    "RoFormerForMultipleChoice": ({}, {"labels": CLASSES}, 3, 2),
    "RoFormerForTripletMatching": ({}, {"labels": CLASSES}, 2, 2),
    "RoFormerForTripletMatching bi": ({"triplet_scorer": "bi", "triplet_loss": "margin"}, {"labels": CLASSES}, 3, 2),
    "NezhaModel": ({}, {}, None, 1),
    "NezhaForMaskedLM": ({}, {"labels": IDS}, None, 2),
    "NezhaForPreTraining": ({}, {"labels": IDS, "next_sentence_label": CLASSES}, None, 2),
    "NezhaForNextSentencePrediction": ({}, {"labels": CLASSES}, None, 2),
    "NezhaForSequenceClassification": ({}, {"labels": CLASSES}, None, 2),
    "NezhaForTokenClassification": ({}, {"labels": SEGMENTS}, None, 2),
    "NezhaForQuestionAnswering": ({}, {"start_positions": CLASSES, "end_positions": CLASSES}, None, 2),
    "NezhaForMultipleChoice": ({}, {"labels": CLASSES}, 3, 2),
}


class Operations(TorchDispatchMode):
    """Counts the operations whose result, or its shape, the host waits for."""

    names = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_consecutive"}

    def __init__(self, reads: Counter):
        super().__init__()
        self.reads = reads

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name == "index" and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        self.reads[name] += name in self.names or by_mask
        return func(*args, **(kwargs or {}))


class Copies(TorchFunctionMode):
    """Counts what copies a whole tensor to the host, which on a CPU is no operation."""

    def __init__(self, reads: Counter):
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        self.reads[name] += name in ("tolist", "cpu", "numpy")
        return func(*args, **(kwargs or {}))


def host_reads(function) -> Counter:
    reads = Counter()
    with Copies(reads), Operations(reads):
        function()
    return +reads


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool(x.all()), "_local_scalar_dense"),
        (lambda x: x[x > 1], "index"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: torch.equal(x, x.clone()), "equal"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.cpu(), "cpu"),
    ],
)
def test_what_reads_is_counted(function, name):
    assert host_reads(lambda: function(torch.arange(3))) == {name: 1}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", CASES)
def test_reads_of_a_training_step(case, mask):
    fields, arguments, sequences, expected = CASES[case]
    head = case.split()[0]
    config = ours.NezhaConfig if head.startswith("Nezha") else ours.RoFormerConfig
    model = getattr(ours, head)(small_config(config, num_labels=3, **fields)).train()
    ids = IDS.clone() if MASKS[mask] is not None else IDS.clamp(min=1)  # padding without a mask is warned of
    inputs = {"input_ids": ids, "token_type_ids": SEGMENTS, "attention_mask": MASKS[mask]}
    if sequences:
        inputs = {name: None if x is None else torch.stack([x] * sequences, 1) for name, x in inputs.items()}

    def step():
        outputs = model(**inputs, **arguments)
        outputs[0].sum().backward()  # the loss where there is one

    reads = host_reads(step)
    assert reads.total() <= expected, reads


@pytest.mark.parametrize("head", ["RoFormerModel", "RoFormerForMaskedLM", "RoFormerForSequenceClassification"])
def test_leaving_out_padding_adds_one_read(head):
    model = getattr(ours, head)(small_config(num_labels=3))
    labels = {"RoFormerForMaskedLM": IDS.masked_fill(IDS == 0, -100), "RoFormerForSequenceClassification": CLASSES}
    inputs = {"attention_mask": MASKS["with padding"]} | ({"labels": labels[head]} if head in labels else {})
    calls = [partial(model, IDS, **inputs, unpad_inputs=unpad) for unpad in (False, True)]
    computed, left_out = map(host_reads, calls)
    assert left_out == computed + Counter(tolist=1)


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
