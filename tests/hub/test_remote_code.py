"""A published folder elsewhere: with code, with and without this package, and without code in plain transformers."""

import json
import subprocess
import sys
import textwrap

import jieba
import numpy as np
import pytest
import torch
from helpers.absent_package import ABSENT
from helpers.small_models import small_config
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerForSequenceClassification
from modeling_roformer.hub import push
from modeling_roformer.hub.remote_code import files_with_code
from modeling_roformer.registration.registry import auto_model_classes
from modeling_roformer.tokenization import RoFormerTokenizer

REPO = "somebody/model"
TEXTS = [
    "今天天气很好，我想去公园玩。",
    "原告与被告于2015年3月登记结婚，婚后感情一般。",
    "本院认为，双方签订的借款合同合法有效，应予支持。",
    "苹果公司在北京召开了新闻发布会，介绍iPhone 12。",
    "[MASK]的首都是北京",
    "",
]
COMPUTE = """
def compute(model, tokenizer, texts):
    import torch
    with torch.no_grad():
        output = model.eval()(**tokenizer(texts, padding=True, return_tensors="pt"))
    return output[0].numpy()
"""
namespace: dict = {}
exec(COMPUTE, namespace)
compute = namespace["compute"]


def elsewhere(script, hub, tmp_path, *arguments):
    """Runs a script where this package is absent; what it puts into `results` comes back."""
    file = tmp_path / "script.py"
    save = "\nimport numpy\nnumpy.savez(sys.argv[1], **results)\nassert 'modeling_roformer' not in sys.modules\n"
    file.write_text(f"{ABSENT}{COMPUTE}results = {{}}\n{textwrap.dedent(script)}{save}", encoding="utf-8")
    command = [sys.executable, str(file), str(tmp_path / "results.npz"), *map(str, arguments)]
    environment = hub.environment | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(tmp_path / "results.npz"))


@pytest.fixture(scope="module")
def word_vocabulary():
    words = {word for text in TEXTS for word in jieba.cut(text, HMM=False)}
    words = {word.lower() for word in words if not word.isspace() and word not in ("[", "MASK", "]")}
    pieces = {character for word in words for character in word}
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words | pieces | {f"##{p}" for p in pieces})]


def save(folder, cls, vocabulary, word_segmentation="jieba", **fields):
    (folder / "bare").mkdir(parents=True)
    (folder / "bare" / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = RoFormerTokenizer.from_pretrained(folder / "bare", word_segmentation=word_segmentation)
    torch.manual_seed(0)
    model = cls(small_config(vocab_size=len(vocabulary), **fields)).eval()
    with torch.no_grad():  # weights of the size that training leaves, so that differences show
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model", model, tokenizer


@pytest.fixture
def masked_lm(tmp_path, word_vocabulary):
    return save(tmp_path / "masked_lm", RoFormerForMaskedLM, word_vocabulary)


@pytest.fixture
def classifier(tmp_path, word_vocabulary):
    # Characters on a vocabulary with words: transformers' own tokenizer would find other ids.
    return save(tmp_path / "classifier", RoFormerForSequenceClassification, word_vocabulary, None, num_labels=3)


@pytest.mark.slow
def test_without_this_package(hub, tmp_path, word_vocabulary, masked_lm, classifier):
    """With its code a folder loads all the same; without, plain transformers gives the same or refuses. One process."""
    folder, model, tokenizer = masked_lm
    push(folder, REPO, with_code=True)
    push(folder, f"{REPO}-plain")
    v2_fields = {"norm_type": "rms_norm", "use_bias": False}
    v2_folder, v2, _ = save(tmp_path / "v2", RoFormerForMaskedLM, word_vocabulary, **v2_fields)
    push(v2_folder, f"{REPO}-v2", with_code=True)
    local, classifier_model, classifier_tokenizer = classifier
    for name, content in files_with_code(local).items():
        (local / name).write_bytes(content)
    small_config(norm_type="rms_norm").save_pretrained(folder)  # what plain transformers does not compute
    push(folder, f"{REPO}-plain-v2")
    results = elsewhere(
        """
        import json
        from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification
        from transformers import AutoModelForPreTraining, AutoTokenizer, pipeline

        _, _, repo, local, texts = sys.argv
        texts = json.loads(texts)

        # Nobody trusts the code, where there is some.
        for place in (f"{repo}-plain", repo):
            tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModelForMaskedLM.from_pretrained(place)
            for thing in (tokenizer, model):
                assert type(thing).__module__.startswith("transformers.models.roformer."), type(thing)
            results[f"plain ids {place}"] = tokenizer(texts, padding=True, return_tensors="np")["input_ids"]
            results[f"plain logits {place}"] = compute(model, tokenizer, texts)
        try:
            AutoModelForMaskedLM.from_pretrained(f"{repo}-plain-v2")
        except ValueError as error:
            results["refusal"] = str(error)
        assert not any(name.startswith("transformers_modules.") for name in sys.modules)

        for name, place in {"hub": repo, "local": local}.items():
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=True)
            results[f"{name} ids"] = tokenizer(texts, padding=True, return_tensors="np")["input_ids"]
            config = AutoConfig.from_pretrained(place, trust_remote_code=True)
            objects = [tokenizer, config]
            for auto in (AutoModel, AutoModelForPreTraining, AutoModelForMaskedLM, AutoModelForSequenceClassification):
                model = auto.from_pretrained(place, trust_remote_code=True)
                results[f"{name} {auto.__name__}"] = compute(model, tokenizer, texts)
                objects += [model, model.config]
            for thing in objects:
                assert type(thing).__module__.startswith("transformers_modules."), type(thing)
        # A model_type that transformers does not know at all.
        v2 = AutoModelForMaskedLM.from_pretrained(f"{repo}-v2", trust_remote_code=True)
        results["v2"] = compute(v2, AutoTokenizer.from_pretrained(f"{repo}-v2", trust_remote_code=True), texts)
        fill_mask = pipeline("fill-mask", model=repo, trust_remote_code=True)
        assert type(fill_mask.model).__module__.startswith("transformers_modules.")
        results["guesses"] = [guess["token"] for guess in fill_mask(texts[4])]
        """,
        hub,
        tmp_path,
        REPO,
        local,
        json.dumps(TEXTS),
    )
    ids = tokenizer(TEXTS, padding=True, return_tensors="np")["input_ids"]
    logits = compute(model, tokenizer, TEXTS)
    assert np.array_equal(results["hub ids"], ids)
    other_ids = classifier_tokenizer(TEXTS, padding=True, return_tensors="np")["input_ids"]
    assert other_ids.shape != ids.shape
    assert np.array_equal(results["local ids"], other_ids)
    encoder, classifier_encoder = model.roformer, classifier_model.roformer
    expected = {
        "hub AutoModel": compute(encoder, tokenizer, TEXTS),
        "hub AutoModelForMaskedLM": logits,
        "hub AutoModelForPreTraining": logits,
        "v2": compute(v2, tokenizer, TEXTS),
        "local AutoModel": compute(classifier_encoder, classifier_tokenizer, TEXTS),
        "local AutoModelForSequenceClassification": compute(classifier_model, classifier_tokenizer, TEXTS),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, atol=1e-5, rtol=0, err_msg=name)
    mask = ids[4].tolist().index(tokenizer.mask_token_id)
    assert results["guesses"].tolist() == np.argsort(-logits[4, mask])[:5].tolist()
    for name in (f"{REPO}-plain", REPO):
        assert np.array_equal(results[f"plain ids {name}"], ids)
        is_token = (
            tokenizer(TEXTS, padding=True, return_tensors="np")["attention_mask"] == 1
        )  # transformers computes padding
        plain = results[f"plain logits {name}"]
        np.testing.assert_allclose(plain[is_token], logits[is_token], atol=5e-5, rtol=0)
    assert "roformer_v2" in str(results["refusal"])


@pytest.mark.parametrize("holds", ["masked_lm", "classifier"])
def test_with_code_the_installed_package_is_used_and_nobody_is_asked(hub, monkeypatch, request, holds):
    folder, model, tokenizer = request.getfixturevalue(holds)
    push(folder, REPO, with_code=True)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run the code"))
    for trust in ({}, {"trust_remote_code": False}):
        loaded = AutoTokenizer.from_pretrained(REPO, **trust)
        assert type(loaded) is RoFormerTokenizer
        assert loaded(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
        assert type(AutoConfig.from_pretrained(REPO, **trust)) is RoFormerConfig
        for auto in (AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification):
            loaded = auto.from_pretrained(REPO, **trust)
            assert type(loaded) is auto_model_classes()[auto.__name__]
            encoder = getattr(loaded, "roformer", loaded).state_dict()
            assert all(torch.equal(encoder[name], tensor) for name, tensor in model.roformer.state_dict().items())
    assert not any(name.startswith("transformers_modules.somebody") for name in sys.modules)


@pytest.mark.parametrize("holds", ["masked_lm", "classifier"])
def test_auto_map_names_every_auto_class_that_is_served(request, holds):
    folder, _, _ = request.getfixturevalue(holds)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    files = files_with_code(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    config, tokenizer_config = json.loads(files["config.json"]), json.loads(files["tokenizer_config.json"])
    served = auto_model_classes()
    del served["AutoModelForTripletMatching"]  # transformers has no class of its own to fall back to
    assert set(config["auto_map"]) == {"AutoConfig", *served}
    for auto_class, cls in served.items():
        file, _, name = config["auto_map"][auto_class].partition(".")
        assert name == cls.__name__ and f"class {name}(".encode() in files[f"{file}.py"]
    _, reference = tokenizer_config["auto_map"]["AutoTokenizer"]
    assert f"{reference.partition('.')[0]}.py" in files
    # All else stays as it was.
    for name, content in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        assert {key: value for key, value in content.items() if key != "auto_map"} == json.loads(before[name])
