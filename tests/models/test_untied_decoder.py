"""A language model whose decoder has weights of its own (`tie_word_embeddings=False`): its bias is one, under two
names."""

import pytest
import torch
from helpers.small_models import small_model
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from transformers.models.roformer import modeling_roformer as theirs

import modeling_roformer as ours

HEADS = ["RoFormerForMaskedLM", "RoFormerForCausalLM", "NezhaForMaskedLM", "NezhaForPreTraining"]
OURS_AND_THEIRS = HEADS[:2]
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 11, 3]])


def make_model(head, library=ours, tied=False, seed=0):
    decoder = {"is_decoder": True} if head.endswith("CausalLM") else {}
    fields = {"tie_word_embeddings": tied, "initializer_range": 0.1, **decoder}
    model = small_model(getattr(library, head), seed, **fields)
    with torch.no_grad():
        for parameter in model.parameters():  # the two biases of transformers come to differ
            if parameter.requires_grad and parameter.ndim == 1:
                parameter.normal_()
    return model


def logits(model):
    with torch.no_grad():
        outputs = model(IDS)
    return outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]


@pytest.mark.parametrize("head", HEADS)
def test_every_parameter_is_used_in_parallel_training_without_an_error(head, tmp_path):
    make_model(head).save_pretrained(tmp_path / "model")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/peers", rank=0, world_size=1)
    try:
        for model in (make_model(head), type(make_model(head)).from_pretrained(tmp_path / "model").train()):
            parallel = DistributedDataParallel(model)
            labels = {"labels": IDS}
            if head == "NezhaForPreTraining":
                labels["next_sentence_label"] = torch.tensor([0, 1])
            for _ in range(2):
                parallel(IDS, **labels).loss.backward()
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kept", [BIAS, DECODER_BIAS])
def test_either_name_of_the_bias_is_enough(head, kept, tmp_path):
    model = make_model(head)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert torch.equal(weights[BIAS], weights[DECODER_BIAS])
    assert weights[BIAS].any()
    del weights[BIAS if kept == DECODER_BIAS else DECODER_BIAS]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(logits(loaded), logits(model))
    assert loaded.cls.predictions.bias is loaded.cls.predictions.decoder.bias
    assert loaded.cls.predictions.decoder.weight is not loaded.get_input_embeddings().weight


@pytest.mark.parametrize("head", OURS_AND_THEIRS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_a_checkpoint_means_the_same_in_transformers(head, tied, source, tmp_path):
    model = make_model(head, ours if source == "ours" else theirs, tied)
    other = getattr(theirs if source == "ours" else ours, head)
    assert torch.equal(model.cls.predictions.bias, model.cls.predictions.decoder.bias) == (tied or source == "ours")
    model.save_pretrained(tmp_path)
    loaded, report = other.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not {name for name in report["missing_keys"] if "embed_positions" not in name}
    torch.testing.assert_close(logits(loaded.eval()), logits(model), atol=1e-5, rtol=0)
    state_dict = model.state_dict()
    fresh = make_model(head, theirs if source == "ours" else ours, tied, seed=1)
    fresh.load_state_dict(state_dict, strict=source == "theirs")  # ours has no table of positions
    torch.testing.assert_close(logits(fresh), logits(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", HEADS)
def test_the_bias_stays_one_in_a_resized_vocabulary(head):
    model = make_model(head)
    model.resize_token_embeddings(40)
    assert model.cls.predictions.bias is model.cls.predictions.decoder.bias
    assert len(model.cls.predictions.bias) == logits(model).shape[-1] == 40


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("tied", [False, True])
def test_a_fresh_head_starts_without_bias(head, tied, tmp_path):
    model = make_model(head, tied=tied)
    model.base_model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, tie_word_embeddings=tied)
    assert loaded.cls.predictions.bias is loaded.cls.predictions.decoder.bias
    assert torch.equal(loaded.cls.predictions.bias, torch.zeros_like(loaded.cls.predictions.bias))
