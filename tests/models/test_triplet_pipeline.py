"""The pipeline of triplet matching: its answers, its errors, and what it saves, here and elsewhere."""

import json
import textwrap

import numpy as np
import pytest
from helpers import triplets
from helpers.absent_package import run_without_package
from helpers.messages import refused
from helpers.properties import max_examples
from helpers.small_models import small_config, small_model
from helpers.triplets import CHARACTERS, TRIPLET, TRIPLETS, VOCABULARY, assert_answers, expected_answers
from hypothesis import given
from hypothesis import strategies as st
from transformers import pipeline
from transformers.pipelines.pt_utils import KeyDataset

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerForTripletMatching, RoFormerTokenizer
from modeling_roformer.hub import push
from modeling_roformer.hub.remote_code import files_with_code
from modeling_roformer.triplet_pipeline import TripletMatchingPipeline, encode_triplet

REPO = "somebody/triplets"
tokenizer, folder = triplets.tokenizer, triplets.folder  # the fixtures


def test_the_pipeline_answers_as_computed_by_hand(folder, tokenizer):
    match = pipeline("triplet-matching", model=str(folder))
    assert type(match) is TripletMatchingPipeline and type(match.model) is RoFormerForTripletMatching
    expected = expected_answers(folder, tokenizer, TRIPLETS)
    assert_answers([match(triplet) for triplet in TRIPLETS], expected)
    assert_answers(match(TRIPLETS), expected)
    assert match([]) == []
    # The other way round, the label changes and the score stays.
    turned = [{"A": t["A"], "B": t["C"], "C": t["B"]} for t in TRIPLETS]
    assert_answers(match(turned), [("C" if label == "B" else "B", score) for label, score in expected])


def test_a_model_with_another_head_is_refused(tokenizer):
    for head in ("RoFormerForSequenceClassification", "RoFormerForMultipleChoice", "RoFormerModel"):
        with refused(ValueError, head, "RoFormerForTripletMatching"):
            TripletMatchingPipeline(model=small_model(head), tokenizer=tokenizer)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_lists_generators_and_datasets_in_batches(folder, tokenizer, batch_size):
    match = pipeline("triplet-matching", model=str(folder), batch_size=batch_size)
    rows = [{**triplet, "label": "B", "number": i} for i, triplet in enumerate(TRIPLETS)]  # as data sets have them
    expected = expected_answers(folder, tokenizer, rows)

    assert_answers(match(rows), expected)
    assert_answers(list(match(row for row in rows)), expected)
    assert_answers(list(match(KeyDataset([{"triplet": row} for row in rows], "triplet"))), expected)


def test_padding_on_the_left_is_not_the_pipelines_way(folder):
    """Values are rotated too here, so positions matter, and not only their differences."""
    config = RoFormerConfig.from_pretrained(folder, rotary_value=True)
    model = RoFormerForTripletMatching.from_pretrained(folder, config=config)
    left = RoFormerTokenizer.from_pretrained(folder, padding_side="left")
    match = TripletMatchingPipeline(model=model, tokenizer=left)
    alone = [match(triplet) for triplet in TRIPLETS]
    assert_answers(match(TRIPLETS, batch_size=3), [(one["label"], one["score"]) for one in alone])


def test_long_texts_are_truncated(folder, tokenizer):
    match = pipeline("triplet-matching", model=str(folder))
    rng = np.random.default_rng(0)
    long = {name: "".join(rng.choice(list(CHARACTERS), 1500)) for name in "ABC"}
    assert_answers([match(long)], expected_answers(folder, tokenizer, [long]), atol=1e-4)
    (short,) = expected_answers(folder, tokenizer, [long], max_length=40)
    assert_answers([match(long, max_length=40)], [short])
    assert abs(short[1] - match(long)["score"]) > 1e-3
    limited = RoFormerTokenizer.from_pretrained(folder, model_max_length=40)
    assert_answers([pipeline("triplet-matching", model=str(folder), tokenizer=limited)(long)], [short])
    assert_answers([pipeline("triplet-matching", model=str(folder), max_length=40)(long)], [short])


@max_examples(50)
@given(lengths=st.tuples(*[st.integers(1, 40)] * 3), max_length=st.integers(5, 50))
def test_pairs_are_truncated_longest_first(tokenizer, lengths, max_length):
    triplet = {name: character * length for name, character, length in zip("ABC", "借款合", lengths, strict=True)}
    encoded = encode_triplet(tokenizer, triplet, "cross", max_length)
    for ids, segments, other in zip(encoded["input_ids"], encoded["token_type_ids"], lengths[1:], strict=True):
        first, second = lengths[0], other
        while first + second > max_length - 3:  # one token after the other from the longer text
            if first > second:
                first -= 1
            else:
                second -= 1
        kept = (segments.count(0) - 2, segments.count(1) - 1)
        assert len(ids) == sum(kept) + 3
        if abs(first - second) > 1:
            assert kept == (first, second)
        else:  # which of two equally long texts gives the odd token, implementations decide differently
            assert sorted(kept) == sorted((first, second))
    alone = encode_triplet(tokenizer, triplet, "bi", max_length)
    assert [len(ids) for ids in alone["input_ids"]] == [min(length + 2, max_length) for length in lengths]


@pytest.mark.parametrize(
    ("triplet", "facts"),
    [
        ({"A": "借款", "B": "", "C": "合同"}, ['"B"', "token"]),
        ({"A": " \n", "B": "借款", "C": "合同"}, ['"A"', "token"]),
        ({"A": "借款", "B": "合同", "C": "\u200b"}, ['"C"', "token"]),
        ({"A": "借款", "B": "合同"}, ["dict", '"A"', '"B"', '"C"']),
        ("借款", ["dict", '"A"', '"B"', '"C"']),
        ({"A": ["借款", "合同"], "B": "借款", "C": "合同"}, ["dict", '"A"', '"B"', '"C"']),  # a pair to a tokenizer
    ],
)
def test_a_bad_triplet_is_refused(folder, triplet, facts):
    match = pipeline("triplet-matching", model=str(folder))
    for inputs in (triplet, [TRIPLET, triplet]):
        with refused(ValueError, *facts):
            match(inputs)
    for scorer in ("cross", "bi"):
        with refused(ValueError, *facts):
            encode_triplet(match.tokenizer, triplet, scorer)
    with refused(ValueError, "token"):  # which max_length leaves no room for
        encode_triplet(match.tokenizer, TRIPLET, "cross", max_length=4)


# On disk


def test_a_pipeline_comes_back_with_the_package_and_nobody_is_asked(folder, tmp_path, monkeypatch):
    match = pipeline("triplet-matching", model=str(folder))
    answers = match(TRIPLETS)
    match.save_pretrained(tmp_path / "saved")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run the code"))
    for trust in ({}, {"trust_remote_code": False}, {"trust_remote_code": True}):
        again = pipeline("triplet-matching", model=str(tmp_path / "saved"), **trust)
        assert type(again) is TripletMatchingPipeline and type(again.model) is RoFormerForTripletMatching
        assert again(TRIPLETS) == answers
    assert not list((tmp_path / "saved").glob("*.part"))


def test_only_models_for_triplets_carry_the_pipeline(folder, tokenizer, tmp_path):
    files = files_with_code(folder)
    config = json.loads(files["config.json"])
    (info,) = config["custom_pipelines"].values()
    assert f"class {info['impl'].partition('.')[2]}(".encode() in files[f"{info['impl'].partition('.')[0]}.py"]
    RoFormerForMaskedLM(small_config(vocab_size=len(VOCABULARY))).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    files = files_with_code(tmp_path)
    assert "custom_pipelines" not in json.loads(files["config.json"])


@pytest.mark.slow
def test_with_code_only_it_loads_saves_and_loads_again(hub, folder, tmp_path):
    """On a machine without this package: from a folder and from the Hub."""
    match = pipeline("triplet-matching", model=str(folder))
    match.save_pretrained(tmp_path / "saved")
    push(folder, REPO, with_code=True)
    script = textwrap.dedent(
        """
        import json
        from transformers import pipeline

        _, saved, repo, again, triplets, results = sys.argv
        triplets, answers = json.loads(triplets), {}
        for place in (saved, repo):
            match = pipeline("triplet-matching", model=place, trust_remote_code=True)
            answers[place] = match(triplets, batch_size=2)
            for thing in (match, match.model, match.tokenizer, match.model.config):
                assert type(thing).__module__.startswith("transformers_modules."), type(thing)
        pipeline("triplet-matching", model=saved, trust_remote_code=True).save_pretrained(again)
        answers[again] = pipeline("triplet-matching", model=again, trust_remote_code=True)(triplets)
        try:
            pipeline("triplet-matching", model=saved)
        except ValueError as error:
            assert "trust_remote_code" in str(error)
        else:
            raise AssertionError("ran the code unasked")
        with open(results, "w") as file:
            json.dump(answers, file)
        """
    )
    arguments = [tmp_path / "saved", REPO, tmp_path / "again", json.dumps(TRIPLETS), tmp_path / "results.json"]
    environment = hub.environment | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    run_without_package(script, tmp_path, *arguments, environment=environment)
    expected = [(answer["label"], answer["score"]) for answer in match(TRIPLETS)]
    answers = json.loads((tmp_path / "results.json").read_text())
    assert len(answers) == 3
    for found in answers.values():
        assert_answers(found, expected)
    # What was saved without the package is read with it.
    assert_answers(pipeline("triplet-matching", model=str(tmp_path / "again"))(TRIPLETS), expected)
