"""examples/paper/windows.py: the mean over windows that are read alone, and a run of the script."""

import json

import pytest
import torch
import windows
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.triplets import TRIPLETS, make_model, tokenizer  # noqa: F401
from torch.nn import functional as F
from transformers import AutoTokenizer

from modeling_roformer import AutoModelForTripletMatching
from modeling_roformer.training import TripletCollator

LABELLED = [triplet | {"label": number % 2} for number, triplet in enumerate(TRIPLETS)]
LEARNED = {"position_encoding": "learned", "hidden_size": 16, "num_hidden_layers": 1, "initializer_range": 0.3}


@pytest.fixture(scope="module")
def model():
    return make_model("bi", **LEARNED, max_position_embeddings=512)


@torch.no_grad()
def test_one_window_gives_the_logits_of_the_bi_scorer(model, tokenizer):  # noqa: F811
    plain = model(**TripletCollator(tokenizer, "bi", 12)(LABELLED))
    for number in 1, 3:
        batch = windows.collate_windows(LABELLED, tokenizer, number, 12)
        if number > 1:  # texts of more than a window are cut after it, so the other windows are padding
            batch["attention_mask"][:, :, 1:] = 0
            batch["input_ids"][:, :, 1:] = 7
        outputs = windows.read_windows(model, **batch)
        torch.testing.assert_close(outputs.logits, plain.logits)
        torch.testing.assert_close(outputs.loss, plain.loss)


@torch.no_grad()
def test_2048_tokens_are_the_mean_over_four_windows_of_512(model, tokenizer):  # noqa: F811
    generator = torch.Generator().manual_seed(0)
    letters = [token for token in tokenizer.get_vocab() if len(token) == 1]
    numbers = [torch.randint(len(letters), (length,), generator=generator) for length in (3000, 1400, 5)]
    texts = ["".join(letters[i] for i in of.tolist()) for of in numbers]
    triplet = dict(zip("ABC", texts, strict=True)) | {"label": 1}
    batch = windows.collate_windows([triplet], tokenizer, 4, 512)
    assert batch["input_ids"].shape == (1, 3, 4, 512) and batch["labels"].tolist() == [1]
    vectors, first, last = [], tokenizer.cls_token_id, tokenizer.sep_token_id
    for text in texts:
        ids, states = tokenizer(text, add_special_tokens=False)["input_ids"][: 4 * 510], []
        for start in range(0, len(ids), 510):
            window = torch.tensor([[first, *ids[start : start + 510], last]])
            states.append(model.roformer(window).last_hidden_state[0])
        vectors.append(torch.cat(states).mean(dim=0))
    cosines = torch.stack([F.cosine_similarity(vectors[0], other, dim=0) for other in vectors[1:]])
    logits = windows.read_windows(model, **batch).logits[0]
    torch.testing.assert_close(logits, cosines / model.config.triplet_temperature, rtol=1e-4, atol=1e-4)


def test_a_run_saves_results_and_a_plain_model(model, tokenizer, tmp_path, monkeypatch, capfd, no_pictures):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("base")
    tokenizer.save_pretrained("base")
    lines = [json.dumps(triplet | {"label": "BC"[triplet["label"]]}, ensure_ascii=False) for triplet in LABELLED * 4]
    (tmp_path / "triplets.jsonl").write_text("\n".join(lines), encoding="utf-8")

    def run(*more):
        script = REPOSITORY / "examples" / "paper" / "windows.py"
        words = ["base", "--train", "triplets.jsonl", "--test", "triplets.jsonl", "--epochs", 1, "--output", "run"]
        return run_script(script, [*words, "--max-length", 36, "--learning-rate", 0.01, *more], monkeypatch, capfd)

    code, _, err = run("--windows", 3, "--batch-size", 4)
    assert code == 0, err
    result = json.loads((tmp_path / "run" / "results.json").read_text())["trained"]["0"]
    assert len(result["rows"]) == len(result["results"]) == 12 and "validation" in result
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]
    assert (settings["max_length"], settings["windows"], settings["scorer"]) == (36, 3, "bi")
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["architectures"] == ["RoFormerForTripletMatching"]
    assert AutoTokenizer.from_pretrained("run/model").model_max_length == 12
    trained = AutoModelForTripletMatching.from_pretrained("run/model")
    assert not torch.equal(next(trained.parameters()), next(model.parameters()))
    for words in ("--scorer", "cross"), ("--windows", 0), ("--windows", 20):
        code, _, err = run(*words)
        assert code == 1
        assert_states(err, "windows: ", "--windows", "--scorer bi", "--max-length")
