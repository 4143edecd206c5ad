"""Every family, found unasked: its numbers are bert4keras' own, and its words too."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from helpers.paths import REPOSITORY, SHARED, needs_shared
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_roformer import NezhaForMaskedLM, RoFormerForCausalLM, RoFormerForMaskedLM
from modeling_roformer.conversion.converter import convert

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
BERT4KERAS = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")
# Checkpoint: the Auto class that loads it, and the class that it gives.
MASKED, CAUSAL = AutoModelForMaskedLM, AutoModelForCausalLM
ARCHITECTURES = {
    "v2": (MASKED, RoFormerForMaskedLM),
    "gpt": (CAUSAL, RoFormerForCausalLM),
    "sim": (CAUSAL, RoFormerForCausalLM),
    "wobert": (MASKED, transformers.BertForMaskedLM),
    "wobert_bert_order": (MASKED, transformers.BertForMaskedLM),
    "wonezha": (MASKED, NezhaForMaskedLM),
}


def assert_parity(model, reference: dict[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """Logits or probabilities at every position that is not padding, and pooled vectors."""
    tokens = torch.from_numpy(reference["token_ids"]).long()
    segments = torch.from_numpy(reference["segment_ids"]).long()
    with torch.inference_mode():
        outputs = model(tokens, token_type_ids=segments, attention_mask=(tokens != 0).long())
    found = {"logits": outputs.logits, "probabilities": outputs.logits.softmax(-1)}
    real = (tokens != 0).numpy()
    compared = [name for name in ("logits", "probabilities") if name in reference]
    assert compared
    for name in compared:
        assert np.ptp(reference[name][real]) > 0.01
        np.testing.assert_allclose(found[name].numpy()[real], reference[name][real], rtol=0, atol=tolerance)
    if "pooled" in reference:
        np.testing.assert_allclose(outputs.pooler_output.numpy(), reference["pooled"], rtol=0, atol=tolerance)


FORMS = ["word", "character", "factorized", "float16", "bfloat16", "float64", "shards"]  # of RoFormer
EVERY = ARCHITECTURES | dict.fromkeys(FORMS, (MASKED, RoFormerForMaskedLM))


@pytest.mark.parametrize("name", EVERY)
def test_numbers_are_bert4keras(name, tmp_path):
    assert convert(LEGACY / name, tmp_path / name, verify=True).verified
    auto_class, architecture = EVERY[name]
    model = auto_class.from_pretrained(tmp_path / name, dtype=torch.float32).eval()
    assert type(model) is architecture
    assert_parity(model, np.load(LEGACY / name / "reference.npz"))


def test_numbers_without_the_pooler(tmp_path):
    report = convert(LEGACY / "pooler", tmp_path / "output", family="roformer", verify=True)
    assert report.extras["pooler"] == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert_parity(MASKED.from_pretrained(tmp_path / "output").eval(), np.load(LEGACY / "pooler" / "reference.npz"))


def test_plain_transformers_loads_the_folder(tmp_path):
    convert(LEGACY / "factorized", tmp_path)
    theirs, info = transformers.RoFormerForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    assert {key.split(".", 1)[1] for key in info["missing_keys"]} <= {"encoder.embed_positions.weight"}
    assert_parity(theirs.eval(), np.load(LEGACY / "factorized" / "reference.npz"), 5e-5)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("family", ["gpt", "sim"])
def test_greedy_decoding_gives_bert4keras_tokens(family, use_cache, tmp_path):
    convert(LEGACY / family, tmp_path / family)
    reference = np.load(LEGACY / family / "reference.npz")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / family)
    prompt = torch.from_numpy(reference["prompt"]).long()
    new = reference["greedy"].shape[1]
    greedy = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = model.generate(prompt, use_cache=use_cache, **greedy)
    assert found[:, prompt.shape[1] :].tolist() == reference["greedy"].tolist()


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_configurations_say_what_they_are(family, tmp_path):
    convert(LEGACY / family, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    vocabulary = (LEGACY / family / "vocab.txt").read_text(encoding="utf-8").split("\n")
    start, separator = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    decoder = {"is_decoder": True, "eos_token_id": separator}
    layers = {"layer_norm_eps": 1e-12, "hidden_act": "gelu"}
    expected = {
        "v2": {"model_type": "roformer_v2", "norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"},
        "gpt": decoder | {"model_type": "roformer", "prefix_lm": False, "bos_token_id": start},
        "sim": decoder
        | {"model_type": "roformer_x", "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"},
        "wobert": layers | {"model_type": "bert", "max_position_embeddings": 16},
        "wobert_bert_order": {"model_type": "bert", "max_position_embeddings": 32},
        "wonezha": layers | {"model_type": "nezha", "max_relative_position": 64},
    }[family] | {"pad_token_id": 0, "architectures": [ARCHITECTURES[family][1].__name__]}
    assert {name: config[name] for name in expected} == expected


def test_a_gpt_and_its_tokenizer_name_the_same_first_and_last_token(tmp_path):
    """Programs read them from either: trl ends texts with `eos_token`, lm-eval begins them with `bos_token`."""
    convert(LEGACY / "gpt", tmp_path / "gpt")
    config, tokenizer = AutoConfig.from_pretrained(tmp_path / "gpt"), AutoTokenizer.from_pretrained(tmp_path / "gpt")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("[CLS]", "[SEP]")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (config.bos_token_id, config.eos_token_id)
    ids = [config.bos_token_id, *tokenizer("天气").input_ids[1:], config.eos_token_id]
    assert tokenizer("天气[SEP]").input_ids == ids


SHARED_CHECKPOINTS = {
    "roformer": "RoFormer",
    "roformer_factorized": "RoFormer",
    "roformer_gpt": "RoFormer-GPT",
    "roformer_sim": "RoFormer-Sim",
    "roformer_v2": "RoFormer-V2",
    "roformer_v2_relu": "RoFormer-V2",
    "wobert": "WoBERT",
    "wobert_bert_order": "WoBERT",
    "wonezha": "WoNEZHA",
}


@needs_shared
@pytest.mark.parametrize("name", SHARED_CHECKPOINTS)
def test_numbers_of_the_shared_checkpoints(name, tmp_path):
    report = convert(SHARED / "legacy_tf" / name, tmp_path / name, verify=True)
    assert report.family == SHARED_CHECKPOINTS[name] and report.sign
    recorded = np.load(SHARED / "legacy_tf" / name / "reference.npz")
    reference = {key: recorded[key] for key in ("token_ids", "segment_ids")}
    if name == "roformer_sim":
        reference |= {"pooled": recorded["output_0"], "logits": recorded["output_1"]}
    else:
        reference["probabilities" if name == "roformer_gpt" else "logits"] = recorded["output_0"]
    auto_class = CAUSAL if name in ("roformer_gpt", "roformer_sim") else MASKED
    assert_parity(auto_class.from_pretrained(tmp_path / name).eval(), reference)


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_bert4keras_live(tmp_path):
    """Other weights than the recorded ones, written and run by TensorFlow and bert4keras now, of every family."""
    script = REPOSITORY / "tests" / "fixtures" / "make_legacy_fixtures.py"
    command = [BERT4KERAS, str(script), "--seed", str(int.from_bytes(os.urandom(3), "big")), str(tmp_path / "made")]
    subprocess.run([*command, *EVERY], check=True, capture_output=True, timeout=600)
    for name, (auto_class, architecture) in EVERY.items():
        convert(tmp_path / "made" / name, tmp_path / name, verify=True)
        model = auto_class.from_pretrained(tmp_path / name, dtype=torch.float32).eval()
        assert type(model) is architecture
        assert_parity(model, np.load(tmp_path / "made" / name / "reference.npz"))


@pytest.mark.parametrize("family", ["gpt", "sim"])
def test_the_pipeline_generates_what_the_model_does(family, tmp_path):
    convert(LEGACY / family, tmp_path / family)
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


BERTS = ["wobert", "wobert_bert_order", "wonezha"]


@pytest.mark.parametrize("family", ["word", *BERTS])
def test_the_file_is_what_save_pretrained_would_write(family, tmp_path):
    convert(LEGACY / family, tmp_path / "ours")
    MASKED.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "saved")
    ours, saved = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "saved"))
    assert ours.keys() == saved.keys() and all(torch.equal(ours[key], saved[key]) for key in ours)
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    start = (tmp_path / "ours" / "model.safetensors").read_bytes()[:8]
    assert int.from_bytes(start, "little") % 8 == 0  # so numbers are aligned
    ours, saved = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("ours", "saved"))
    assert ours == saved and ours["dtype"] == "float32"


PLAIN = """
import sys
from transformers import AutoModelForMaskedLM, AutoTokenizer
import torch
for folder in sys.argv[1:]:
    try:
        print(AutoTokenizer.from_pretrained(folder)(["明月照着[MASK]边的小路。", "rope, the 2 songs"])["input_ids"])
        model = AutoModelForMaskedLM.from_pretrained(folder)
        with torch.inference_mode():
            print(model(torch.tensor([[2, 7, 20, 30, 3]])).logits.double().sum().item())
    except ValueError as error:
        print("ValueError", "nezha" in str(error))
"""


@pytest.mark.slow
def test_plain_transformers_answers_rightly_or_refuses(tmp_path):
    """Without this package: WoBERT has the same ids and logits, WoNEZHA is refused by its name."""
    for family in BERTS:
        convert(LEGACY / family, tmp_path / family)
    command = [sys.executable, "-c", PLAIN, *(str(tmp_path / family) for family in BERTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    lines = iter(done.stdout.splitlines())
    for family in BERTS:
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / family)
        expected = tokenizer(["明月照着[MASK]边的小路。", "rope, the 2 songs"])["input_ids"]
        assert json.loads(next(lines)) == expected
        if family == "wonezha":
            assert next(lines) == "ValueError True"
        else:
            model = AutoModelForMaskedLM.from_pretrained(tmp_path / family)
            with torch.inference_mode():
                total = model(torch.tensor([[2, 7, 20, 30, 3]])).logits.double().sum().item()
            assert float(next(lines)) == pytest.approx(total, abs=1e-3)
    assert next(lines, None) is None, done.stderr
