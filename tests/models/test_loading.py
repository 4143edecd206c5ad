"""A backbone is loaded whole or not at all, with the weights saved last; heads may be fresh."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import peft
import pytest
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY
from helpers.small_models import TINY, small_config
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EncoderDecoderModel,
)

from modeling_roformer import (
    NezhaConfig,
    NezhaModel,
    RoFormerForMaskedLM,
    RoFormerForSequenceClassification,
    RoFormerModel,
    RoFormerSeq2SeqConfig,
    RoFormerSeq2SeqModel,
)
from modeling_roformer.loading import ShapeMismatchError
from modeling_roformer.model_cards.releases import RELEASES

WEIGHT = "roformer.encoder.layer.1.output.dense.weight"
TABLE = "roformer.encoder.embed_positions.weight"


@pytest.fixture
def model():
    torch.manual_seed(0)
    return RoFormerForMaskedLM(small_config()).eval()


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path)
    return tmp_path


def change(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# A form in PyTorch of each kind of release that loads without a conversion.
DIRECT = {"roformer": "v1", "v2": "v2"}


def test_releases_that_need_no_conversion_load_directly():
    """They have no star in the README. The folders were saved by the package that saved the releases."""
    assert {release.kind for release in RELEASES.values() if release.loads_from_hub} == DIRECT.keys()
    for form in DIRECT.values():
        folder = REPOSITORY / "tests" / "fixtures" / "pytorch" / form
        loaded, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
        assert type(loaded) is RoFormerForMaskedLM and not any(report.values())
        assert AutoTokenizer.from_pretrained(folder).tokenize("明月旋转") == ["明月", "旋转"]


@pytest.mark.parametrize("load", [RoFormerModel, RoFormerForMaskedLM, RoFormerForSequenceClassification, AutoModel])
def test_a_misshapen_or_missing_weight_of_the_backbone_is_named(folder, load):
    name = WEIGHT.removeprefix("roformer.") if load in (RoFormerModel, AutoModel) else WEIGHT
    change(folder, lambda weights: weights.update({WEIGHT: torch.zeros(32, 63)}))
    with refused(ShapeMismatchError, folder, name, (32, 63), (32, 64)) as caught:
        load.from_pretrained(folder)
    assert "ignore_mismatched_sizes" not in str(caught.value)  # it does not help here
    change(folder, lambda weights: weights.pop(WEIGHT))
    with refused(ValueError, folder, name, "output_loading_info=True"):
        load.from_pretrained(folder)


@pytest.mark.parametrize("fields", [{}, {"norm_type": "rms_norm", "use_bias": False}])
def test_both_of_two_tied_weights_are_misshapen(fields, tmp_path):
    """`torch.save` writes each under its own name. transformers 5.23 fails on a BERT like that."""
    RoFormerForMaskedLM(small_config(**fields)).save_pretrained(tmp_path)
    tied = {
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def both(weights):
        weights |= {name: weights[source].clone() for name, source in tied.items() if source in weights}

    change(tmp_path, both)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path).config.vocab_size == 100
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 99}))
    for options in ({}, {"ignore_mismatched_sizes": True}):
        with refused(ShapeMismatchError, tmp_path, "roformer.embeddings.word_embeddings.weight", 100, 99):
            AutoModelForMaskedLM.from_pretrained(tmp_path, **options)
    model, report = AutoModelForMaskedLM.from_pretrained(
        tmp_path, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert {name for name, *_ in report["mismatched_keys"]} > {"cls.predictions.decoder.weight"}
    decoder = model.cls.predictions.decoder.weight
    assert decoder is model.get_input_embeddings().weight and decoder.shape[0] == 99 and decoder.isfinite().all()


def test_more_layers_than_the_config_says(folder):
    change(folder, lambda weights: weights.update({WEIGHT.replace("1", "2"): weights[WEIGHT].clone()}))
    with refused(ValueError, folder, "roformer.encoder.layer.2.output.dense.weight", "output_loading_info=True"):
        RoFormerForMaskedLM.from_pretrained(folder)
    RoFormerForMaskedLM.from_pretrained(folder, output_loading_info=True)


def test_fewer_layers_than_the_config_says(folder):
    with refused(
        ValueError, folder, "roformer.encoder.layer.2.attention.output.LayerNorm.bias", 15, "output_loading_info=True"
    ):
        RoFormerForMaskedLM.from_pretrained(folder, config=small_config(num_hidden_layers=3))


def test_missing_weights_are_reported_on_request(folder):
    change(folder, lambda weights: weights.pop(WEIGHT))
    _, report = RoFormerForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert report["missing_keys"] == {WEIGHT}
    RoFormerForMaskedLM.from_pretrained(folder, ignore_mismatched_sizes=True, output_loading_info=True)
    state_dict = RoFormerForMaskedLM(small_config()).state_dict()
    del state_dict[WEIGHT]
    RoFormerForMaskedLM.from_pretrained(None, config=small_config(), state_dict=state_dict)


@pytest.mark.parametrize("load", [RoFormerForSequenceClassification, AutoModelForSequenceClassification])
def test_only_the_head_may_have_other_sizes(tmp_path, load):
    """`ignore_mismatched_sizes=True` changes the number of labels, and is no leave to complete the backbone."""
    torch.manual_seed(0)
    saved = RoFormerForSequenceClassification(small_config(num_labels=3))
    saved.save_pretrained(tmp_path)
    facts = "classifier.out_proj.bias", (3,), (2,), "ignore_mismatched_sizes=True"
    with refused(ShapeMismatchError, tmp_path, *facts) as caught:
        load.from_pretrained(tmp_path, num_labels=2)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, RuntimeError)  # transformers raises that
    options = {"num_labels": 2, "ignore_mismatched_sizes": True}
    loaded = load.from_pretrained(tmp_path, **options)
    assert loaded.classifier.out_proj.weight.shape == (2, 32) and loaded.classifier.out_proj.weight.isfinite().all()
    assert torch.equal(loaded.classifier.dense.weight, saved.classifier.dense.weight)
    for name, tensor in saved.roformer.state_dict().items():
        assert torch.equal(loaded.roformer.state_dict()[name], tensor), name

    words, layer = "roformer.embeddings.word_embeddings.weight", "roformer.encoder.layer.0."
    change(tmp_path, lambda weights: weights.update({words: weights[words][:90].clone()}))
    with refused(ShapeMismatchError, tmp_path, words, (90, 32), (100, 32)) as caught:
        load.from_pretrained(tmp_path, **options)
    assert "ignore_mismatched_sizes" not in str(caught.value)
    change(tmp_path, lambda weights: [weights.pop(name) for name in list(weights) if name.startswith(layer)])
    with refused(ValueError, tmp_path, f"{layer}attention.output.LayerNorm.bias", 15):
        load.from_pretrained(tmp_path, **options)
    _, report = load.from_pretrained(tmp_path, **options, output_loading_info=True)  # as in transformers
    assert len(report["missing_keys"]) == 16 and len(report["mismatched_keys"]) == 3
    more = {WEIGHT.replace("layer.1", "layer.5"): torch.zeros(32, 64)}
    saved.save_pretrained(tmp_path)
    change(tmp_path, lambda weights: weights.update(more))
    with refused(ValueError, tmp_path, *more):
        load.from_pretrained(tmp_path, **options)


def test_a_fresh_head_is_no_error(folder, model):
    classifier = RoFormerForSequenceClassification.from_pretrained(folder, num_labels=3)
    assert classifier.classifier.out_proj.out_features == 3
    assert torch.equal(classifier.roformer.embeddings.word_embeddings.weight, model.get_input_embeddings().weight)


def test_new_cross_attention_is_no_error(folder, said):
    model = EncoderDecoderModel.from_encoder_decoder_pretrained(folder, folder)
    assert "crossattention.self.query.weight" in said.text
    model.decoder.save_pretrained(folder)
    name = "roformer.encoder.layer.1.crossattention.self.query.weight"
    change(folder, lambda weights: weights.pop(name))
    with refused(ValueError, folder, name, "output_loading_info=True"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_backbone_alone_goes_into_every_model(model, tmp_path):
    model.roformer.save_pretrained(tmp_path)
    loaded = RoFormerForMaskedLM.from_pretrained(tmp_path)
    ids = torch.tensor([[2, 30, 7, 3]])
    torch.testing.assert_close(loaded.roformer(ids).last_hidden_state, model.roformer(ids).last_hidden_state)


def test_tables_of_sinusoids_are_dropped_without_a_word(folder, model, said):
    change(folder, lambda weights: weights.update({TABLE: torch.zeros(1536, 8)}))
    loaded = RoFormerForMaskedLM.from_pretrained(folder)
    RoFormerForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert "embed_positions" not in said.text
    assert TABLE not in loaded.state_dict()
    state_dict = {**model.state_dict(), TABLE: torch.zeros(512, 8)}
    model.load_state_dict(state_dict, strict=True)
    assert TABLE in state_dict  # the caller's own is left alone
    bare = {**model.roformer.state_dict(), TABLE.removeprefix("roformer."): torch.zeros(512, 8)}
    model.roformer.load_state_dict(bare, strict=True)


def save_with_pooler(folder, **fields):
    """A checkpoint as the roformer package leaves it: a pooler's weights, and no field that says so."""
    config = small_config(add_pooling_layer=True, pooler_activation="tanh")
    torch.manual_seed(1)
    model = RoFormerForMaskedLM(config).eval()
    model.save_pretrained(folder)
    file = folder / "config.json"
    saved = {
        k: v for k, v in json.loads(file.read_text()).items() if k not in ("add_pooling_layer", "pooler_activation")
    }
    file.write_text(json.dumps({**saved, **fields}))
    return model


@pytest.mark.parametrize("load", [RoFormerModel, RoFormerForMaskedLM, AutoModel])
def test_a_pooler_whose_activation_nobody_names_is_asked_for(load, tmp_path):
    save_with_pooler(tmp_path)
    with refused(ValueError, tmp_path, "pooler", 'pooler_activation="linear"', '"tanh"'):
        load.from_pretrained(tmp_path)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_a_pooler_whose_activation_is_named_is_used(activation, tmp_path):
    model = save_with_pooler(tmp_path, pooler_activation=activation)
    loaded = AutoModel.from_pretrained(tmp_path)
    ids = torch.tensor([[2, 30, 7, 3]])
    first = model.roformer(ids).last_hidden_state[:, 0]
    expected = first @ model.roformer.pooler.dense.weight.T + model.roformer.pooler.dense.bias
    expected = expected.tanh() if activation == "tanh" else expected
    torch.testing.assert_close(loaded(ids).pooler_output, expected)
    on_request = AutoModel.from_pretrained(tmp_path, pooler_activation=activation)
    torch.testing.assert_close(on_request(ids).pooler_output, expected)
    loaded.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(AutoModel.from_pretrained(tmp_path / "again")(ids).pooler_output, expected)


@pytest.mark.parametrize("load", [AutoModel, AutoModelForCausalLM])
def test_roformer_sim_as_the_roformer_package_saved_it_reads_its_prompt_in_both_directions(load):
    folder = REPOSITORY / "tests" / "fixtures" / "pytorch" / "sim"
    reference = np.load(folder / "reference.npz")
    tokens, segments = (torch.from_numpy(reference[name]) for name in ("input_ids", "token_type_ids"))
    with torch.no_grad():
        found = load.from_pretrained(folder)(tokens, (tokens != 0).long(), segments)
    np.testing.assert_allclose(found.pooler_output, reference["pooled"], rtol=0, atol=2e-5)
    if load is AutoModelForCausalLM:
        real = reference["input_ids"] != 0
        np.testing.assert_allclose(found.logits[real], reference["logits"][real], rtol=0, atol=2e-5)


def test_a_pooler_is_never_made_up(folder):
    with refused(ValueError, folder, "pooler.dense.bias", 1, "output_loading_info=True"):
        RoFormerModel.from_pretrained(folder, add_pooling_layer=True, pooler_activation="linear")
    assert not hasattr(RoFormerModel.from_pretrained(folder), "pooler")
    assert RoFormerModel(small_config(pooler_activation="tanh"), add_pooling_layer=True).pooler


BLOCK = """
import modeling_roformer
from transformers import AutoModel, AutoModelForMaskedLM
from modeling_roformer import AutoModelForTripletMatching

AutoModel.from_pretrained("model")
AutoModelForTripletMatching.from_pretrained("model", triplet_scorer="bi")
"""


@pytest.mark.slow
def test_a_head_that_is_left_out_on_purpose_is_not_reported(model, tmp_path):
    """Run as a script whose output is piped: no report, and no colours."""
    model.save_pretrained(tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", BLOCK], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cls." not in done.stderr and "REPORT" not in done.stderr and "\x1b" not in done.stderr + done.stdout


def test_an_unknown_weight_of_a_used_head_is_reported(folder):
    change(folder, lambda weights: weights.update({"cls.predictions.other": torch.ones(2)}))
    _, report = RoFormerForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert list(report["unexpected_keys"]) == ["cls.predictions.other"]


def tiny(seed=0, kind=RoFormerModel):
    torch.manual_seed(seed)
    if kind is RoFormerSeq2SeqModel:
        return kind(small_config(RoFormerSeq2SeqConfig, **TINY, decoder_layers=1))
    return kind(small_config(NezhaConfig if kind is NezhaModel else kind.config_class, **TINY))


def weights(folder):
    return {path.name for path in folder.iterdir() if "model" in path.name}


def assert_same(model, loaded):
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", [RoFormerModel, NezhaModel, RoFormerSeq2SeqModel])
@pytest.mark.parametrize("sizes", [("50GB", "5KB"), ("5KB", "50GB"), ("4KB", "8KB"), ("8KB", "4KB"), ("50GB", "50GB")])
def test_the_weights_saved_last_are_loaded(tmp_path, kind, sizes):
    """transformers 5.24 loads a BERT's single file in place of the shards that were saved over it."""
    for seed, size in enumerate(sizes):
        model = tiny(seed, kind)
        model.save_pretrained(tmp_path, max_shard_size=size)
    assert_same(model, kind.from_pretrained(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    if sizes[1] == "50GB":
        assert weights(tmp_path) == {"model.safetensors"}
    else:
        shards = set(json.loads(index.read_text())["weight_map"].values())
        assert len(shards) > 1 and weights(tmp_path) == {*shards, index.name}


def test_a_variant_replaces_its_own_weights(tmp_path):
    first, second, third = map(tiny, range(3))
    others = {"pytorch_model.bin", "model.onnx", "model.bf16.safetensors", "model.safetensors.index.bf16.json"}
    for name in others:
        (tmp_path / name).write_text(name)
    first.save_pretrained(tmp_path)
    second.save_pretrained(tmp_path, variant="fp16")
    third.save_pretrained(str(tmp_path), True, None, False, "5KB", "fp16")  # by position
    assert others | {"model.safetensors", "model.safetensors.index.fp16.json"} <= weights(tmp_path)
    assert_same(first, RoFormerModel.from_pretrained(tmp_path))
    assert_same(third, RoFormerModel.from_pretrained(tmp_path, variant="fp16"))
    second.save_pretrained(tmp_path, variant="fp16")
    assert weights(tmp_path) == others | {"model.safetensors", "model.fp16.safetensors"}
    assert_same(second, RoFormerModel.from_pretrained(tmp_path, variant="fp16"))


@pytest.mark.parametrize("size", ["50GB", "1KB"])
def test_an_adapter_replaces_no_weights(tmp_path, size):
    """transformers writes the index of its shards under the name of the model's."""
    model = tiny()
    model.save_pretrained(tmp_path)
    before = weights(tmp_path)
    model.add_adapter(peft.LoraConfig(target_modules=["query", "key"]))
    model.save_pretrained(tmp_path, max_shard_size=size)
    added = weights(tmp_path) - before
    assert before <= weights(tmp_path)
    assert ("model.safetensors.index.json" in added) == (size == "1KB") and "adapter_config.json" in os.listdir(
        tmp_path
    )


def test_a_merged_model_is_not_saved_beside_its_adapter(tmp_path):
    """from_pretrained would apply the adapter a second time: the outputs differed by 1.0."""
    tiny().save_pretrained(tmp_path / "base")
    base = RoFormerModel.from_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=["query", "key"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    before = {path.name: path.read_bytes() for path in (tmp_path / "adapter").iterdir()}
    merged = adapted.merge_and_unload()
    with refused(ValueError, tmp_path / "adapter", "adapter_config.json"):
        merged.save_pretrained(tmp_path / "adapter")
    assert {path.name: path.read_bytes() for path in (tmp_path / "adapter").iterdir()} == before
    merged.save_pretrained(tmp_path / "merged")
    assert_same(merged, AutoModel.from_pretrained(tmp_path / "merged"))


@pytest.mark.parametrize(("size", "room"), [("50GB", 2), ("3KB", 0), ("3KB", 2)])
def test_a_save_that_fails_leaves_no_mixture_of_two_models(size, room, tmp_path, monkeypatch):
    """The disk is full after some shards. Those of an earlier model have the same names, a single file has another."""
    before, written = tiny(), []
    before.save_pretrained(tmp_path, max_shard_size=size)

    def write(tensors, path, metadata):
        if len(written) == room:
            raise OSError(28, "No space left on device")
        save_file(tensors, path, metadata)
        written.append(path)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr("transformers.modeling_utils.safe_save_file", write)
        tiny(1).save_pretrained(tmp_path, max_shard_size="3KB")
    if (size, room) == ("3KB", 2):
        with pytest.raises(OSError, match=re.escape(str(tmp_path))):
            RoFormerModel.from_pretrained(tmp_path)
    else:
        assert_same(before, RoFormerModel.from_pretrained(tmp_path))
    tiny(1).save_pretrained(tmp_path, max_shard_size="3KB")
    assert_same(tiny(1), RoFormerModel.from_pretrained(tmp_path))
