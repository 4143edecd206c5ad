"""Families that are asked for by name: their numbers are bert4keras' own, and their words too."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from paths import REPOSITORY, SHARED, needs_shared
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_roformer import RoFormerForCausalLM, RoFormerForMaskedLM
from modeling_roformer.conversion.convert import convert

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
AUTO = {"v2": AutoModelForMaskedLM, "gpt": AutoModelForCausalLM, "sim": AutoModelForCausalLM}


def assert_parity(model, reference: dict[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """Logits or probabilities at every position that is not padding, and pooled vectors."""
    tokens = torch.from_numpy(reference["token_ids"]).long()
    with torch.inference_mode():
        outputs = model(
            tokens,
            token_type_ids=torch.from_numpy(reference["segment_ids"]).long(),
            attention_mask=(tokens != 0).long(),
        )
    found = {"logits": outputs.logits, "probabilities": outputs.logits.softmax(-1)}
    real = (tokens != 0).numpy()
    compared = [name for name in ("logits", "probabilities") if name in reference]
    assert compared
    for name in compared:
        assert np.ptp(reference[name][real]) > 0.01
        np.testing.assert_allclose(found[name].numpy()[real], reference[name][real], rtol=0, atol=tolerance)
    if "pooled" in reference:
        np.testing.assert_allclose(outputs.pooler_output.numpy(), reference["pooled"], rtol=0, atol=tolerance)


@pytest.fixture(params=AUTO)
def family(request):
    return request.param


@pytest.fixture
def folder(family, tmp_path):
    report = convert(LEGACY / family, tmp_path / family, family=family, verify=True)
    assert report.verified
    return tmp_path / family


def test_numbers_are_bert4keras(family, folder):
    model = AUTO[family].from_pretrained(folder).eval()
    assert type(model) is (RoFormerForMaskedLM if family == "v2" else RoFormerForCausalLM)
    assert_parity(model, np.load(LEGACY / family / "reference.npz"))


@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_decoding_gives_bert4keras_tokens(family, folder, use_cache):
    if family == "v2":
        return  # no decoder
    reference = np.load(LEGACY / family / "reference.npz")
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = torch.from_numpy(reference["prompt"]).long()
    new = reference["greedy"].shape[1]
    found = model.generate(
        prompt,
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        use_cache=use_cache,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert found[:, prompt.shape[1] :].tolist() == reference["greedy"].tolist()


def test_configurations_say_what_they_are(family, folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    separator = (LEGACY / family / "vocab.txt").read_text(encoding="utf-8").split("\n").index("[SEP]")
    expected = {
        "v2": {"model_type": "roformer_v2", "norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"},
        "gpt": {"model_type": "roformer", "is_decoder": True, "prefix_lm": False, "eos_token_id": separator},
        "sim": {
            "model_type": "roformer_x",
            "is_decoder": True,
            "prefix_lm": True,
            "add_pooling_layer": True,
            "pooler_activation": "linear",
            "eos_token_id": separator,
        },
    }[family]
    assert {name: config[name] for name in expected} == expected
    assert config["architectures"] == ["RoFormerForMaskedLM" if family == "v2" else "RoFormerForCausalLM"]


def test_the_pooler_of_sim_comes_from_automodel_too(tmp_path):
    convert(LEGACY / "sim", tmp_path / "sim", family="sim")
    model = AutoModel.from_pretrained(tmp_path / "sim").eval()
    reference = np.load(LEGACY / "sim" / "reference.npz")
    tokens = torch.from_numpy(reference["token_ids"]).long()
    with torch.inference_mode():
        pooled = model(
            tokens, (tokens != 0).long(), torch.from_numpy(reference["segment_ids"]).long()
        ).pooler_output.numpy()
    np.testing.assert_allclose(pooled, reference["pooled"], rtol=0, atol=2e-5)


@needs_shared
@pytest.mark.parametrize("name", ["roformer_v2", "roformer_v2_relu", "roformer_gpt", "roformer_sim"])
def test_numbers_of_the_shared_checkpoints(name, tmp_path):
    family = name.split("_")[1]
    convert(SHARED / "legacy_tf" / name, tmp_path / name, family=family, verify=True)
    recorded = np.load(SHARED / "legacy_tf" / name / "reference.npz")
    reference = {key: recorded[key] for key in ("token_ids", "segment_ids")}
    if family == "sim":
        reference |= {"pooled": recorded["output_0"], "logits": recorded["output_1"]}
    else:
        reference["probabilities" if family == "gpt" else "logits"] = recorded["output_0"]
    assert_parity(AUTO[family].from_pretrained(tmp_path / name).eval(), reference)


def test_prompts_of_gpt_go_on(tmp_path):
    """Its tokenizer ends no prompt with [SEP], after saving too, and plain transformers' own refuses the folder."""
    convert(LEGACY / "gpt", tmp_path / "gpt", family="gpt")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "gpt")
    assert tokenizer.tokenize("明月", add_special_tokens=True) == ["[CLS]", "明", "月"]
    assert tokenizer.tokenize("明", "月", add_special_tokens=True) == ["[CLS]", "明", "[SEP]", "月"]
    assert tokenizer("明", "月").token_type_ids == [0, 0, 0, 1]
    tokenizer.save_pretrained(tmp_path / "again")
    shutil.copy(tmp_path / "gpt" / "config.json", tmp_path / "again")
    assert AutoTokenizer.from_pretrained(tmp_path / "again")("明月").input_ids == tokenizer("明月").input_ids
    with pytest.raises(ValueError, match="modeling_roformer"):
        transformers.models.roformer.RoFormerTokenizer.from_pretrained(tmp_path / "gpt")


@pytest.mark.parametrize("family", ["gpt", "sim"])
def test_the_pipeline_generates_what_the_model_does(family, tmp_path):
    convert(LEGACY / family, tmp_path / family, family=family)
    generate = pipeline("text-generation", model=str(tmp_path / family))
    tokenizer, model = generate.tokenizer, generate.model
    ids = torch.tensor([tokenizer("明月照着远处").input_ids])
    segments = torch.zeros_like(ids)
    for _ in range(6):
        with torch.inference_mode():
            new = model(ids, token_type_ids=segments, use_cache=False).logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], 1)
        segments = torch.cat([segments, torch.full_like(new, int(family == "sim"))], 1)
        if new.item() == tokenizer.sep_token_id:
            break
    answer = generate("明月照着远处", max_new_tokens=6, do_sample=False, return_tensors=True)[0]
    assert answer["generated_token_ids"] == ids[0].tolist()
