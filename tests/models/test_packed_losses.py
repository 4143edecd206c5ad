"""Losses of several texts in a row, as Trainer and TRL compute them: those of padded batches."""

import pytest
import torch
from cases import DECODER, EAGER, LINEAR, NO_DROPOUT, close
from helpers.flattened import EVERYTHING, TEXTS
from helpers.small_models import small_model
from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments


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


@pytest.mark.parametrize("options", [None, *COLLATORS], ids=["trl", "positions", "all", "ends", "seq_idx"])
@pytest.mark.parametrize("head", ["causal", "causal linear", "masked"])
def test_trainer_learns_what_it_learns_from_padded_batches(head, options, tmp_path):
    """Accumulated steps, whose parts have different numbers of labels, and an evaluation."""
    texts = [TEXTS[i % 5].roll(i) for i in range(12)]
    examples = [{"input_ids": x, "labels": y} for x, y in zip(texts, labels_of(head, texts), strict=True)]

    def pad(examples):
        return padded([x["input_ids"] for x in examples], [x["labels"] for x in examples])

    def trl(examples):
        batch = trl_batch([x["input_ids"] for x in examples])
        return batch | {
            "labels": torch.cat([x["labels"] for x in examples])[None].masked_fill(batch["position_ids"] == 0, -100)
        }

    collators = [pad, trl if options is None else DataCollatorWithFlattening(**options)]
    found = []
    for i, collator in enumerate(collators):
        steps = {"gradient_accumulation_steps": 2, "num_train_epochs": 2, "learning_rate": 1e-2, "logging_steps": 1}
        batches = {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 12, "prediction_loss_only": True}
        arguments = TrainingArguments(tmp_path / str(i), seed=1, report_to=[], use_cpu=True, **steps, **batches)
        model = make(head).double()
        trainer = Trainer(model, arguments, train_dataset=examples, eval_dataset=examples, data_collator=collator)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert len(losses) == 4
        found.append((losses, trainer.evaluate()["eval_loss"], [p.detach() for p in model.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
