"""A folder holds one tokenizer, the one that was saved last; two vocabularies in one folder are refused."""

import builtins
import itertools
import json
import os
from pathlib import Path

import pytest
from helpers.messages import refused
from transformers import AutoTokenizer

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary import VocabularyError, write_vocabulary

TEXTS = ["今天天气非常好，明月照我还。", "看[新]明月 c++ [MASK]", "Hello天气"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEMPLATES = {"default": "{{ messages[0].content }}", "other": "{{ messages[-1].content }}"}


def vocabulary(*entries):
    return {entry: number for number, entry in enumerate([*SPECIAL, *entries])}


def made(entries="今天气好", added=(), template=None, **options):
    tokenizer = RoFormerTokenizer(vocabulary(*entries), **options)
    tokenizer.add_tokens(list(added))
    tokenizer.chat_template = template
    return tokenizer


# Each is saved over each other one, so every file that one of them writes and another does not is left over once.
KINDS = {
    "few characters": (lambda: made(), {}),
    "other characters": (lambda: made("好天今明月照我"), {}),
    "without tokenizer.json": (lambda: made("照我还今天"), {"legacy_format": True}),
    "words": (lambda: made(["天气", "今天", "明月", "好"]), {}),
    "words without tokenizer.json": (lambda: made(["今天", "明月", "天气"]), {"legacy_format": True}),
    "with added tokens": (lambda: made(added=["[新]"], template=TEMPLATES["other"]), {}),
    "added tokens and no tokenizer.json": (lambda: made(added=["明月", "[新]"]), {"legacy_format": True}),
    "several templates": (lambda: made(do_lower_case=False, template=TEMPLATES), {}),
    "a template in the configuration": (lambda: made(template="{{ 1 }}"), {"save_jinja_files": False}),
    "another mask": (lambda: made("好[天", mask_token="天", sep_token="好"), {}),
}


def state(tokenizer):
    """Everything of a tokenizer that a save keeps."""
    return {
        "vocabulary": tokenizer.get_vocab(),
        "added": {number: str(token) for number, token in tokenizer.added_tokens_decoder.items()},
        "special": tokenizer.special_tokens_map,
        "template": tokenizer.chat_template,
        "ids": tokenizer(TEXTS).input_ids,
    }


@pytest.mark.parametrize(("first", "second"), itertools.permutations(KINDS, 2))
def test_the_tokenizer_saved_last_is_loaded(tmp_path, first, second):
    for name in (first, second):
        make, options = KINDS[name]
        tokenizer = make()
        tokenizer.save_pretrained(tmp_path, **options)
    expected = state(tokenizer)
    for load in (RoFormerTokenizer, AutoTokenizer):
        assert state(load.from_pretrained(tmp_path)) == expected


@pytest.mark.parametrize("legacy", [False, True])
def test_files_of_transformers_4_do_not_come_back(tmp_path, legacy):
    """It saved special and added tokens beside tokenizer_config.json; version 5 still prefers them to that."""
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": "气", "pad_token": "好"}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"旧词": 9}))
    tokenizer = made(added=["[新]"])
    tokenizer.save_pretrained(tmp_path, legacy_format=legacy)
    assert state(RoFormerTokenizer.from_pretrained(tmp_path)) == state(tokenizer)


def test_files_with_another_prefix_stay(tmp_path):
    made().save_pretrained(tmp_path)
    made("好天").save_pretrained(tmp_path, filename_prefix="o[1]")
    made("好").save_pretrained(tmp_path, filename_prefix="o[1]", legacy_format=True)
    assert state(RoFormerTokenizer.from_pretrained(tmp_path)) == state(made())
    with_prefix = {path.name.removeprefix("o[1]-") for path in tmp_path.glob("o*")}
    assert with_prefix == {"vocab.txt", "tokenizer_config.json"}


@pytest.mark.parametrize("legacy", [False, True])
def test_a_save_that_is_stopped_leaves_no_mixture(tmp_path, monkeypatch, legacy):
    """Stopped before each write, rename and removal: what is loaded is one tokenizer or the other, or refused."""
    old = made(do_lower_case=False, template=TEMPLATES, added=["[新]"])
    new = made("好天今气明")
    left, found = [0], []

    def stopping(function, writes=lambda *_: True):
        def step(*arguments, **options):
            if writes(*arguments):
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
            return function(*arguments, **options)

        return step

    for number in range(20):
        folder = tmp_path / str(number)
        old.save_pretrained(folder)
        left[0] = number
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "open", stopping(open, lambda *given: given[1:2] in [("w",), ("xb",)]))
            patched.setattr(os, "replace", stopping(os.replace))
            patched.setattr(Path, "unlink", stopping(Path.unlink))
            try:
                new.save_pretrained(folder, legacy_format=legacy)
            except KeyboardInterrupt:
                is_complete = False
            else:
                is_complete = True
        try:
            found.append(state(RoFormerTokenizer.from_pretrained(folder)))
        except VocabularyError:
            found.append(None)
        if is_complete:
            break
    assert number > 3 and found[-1] == state(new)
    assert all(one in (None, state(old), state(new)) for one in found)


@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_may_not_be_written_is_replaced(tmp_path, link):
    """Files of huggingface_hub's cache are links to contents that other revisions share."""
    folder = tmp_path / "model"
    made("好天").save_pretrained(folder)
    old = folder / "tokenizer.json"
    content = old.read_bytes()
    old.chmod(0o444)
    if link:
        old.rename(tmp_path / "blob")
        old.symlink_to(tmp_path / "blob")
    made().save_pretrained(folder, legacy_format=True)
    assert not os.path.lexists(old)
    assert not link or (tmp_path / "blob").read_bytes() == content
    assert state(RoFormerTokenizer.from_pretrained(folder)) == state(made())


@pytest.mark.parametrize(
    ("entries", "facts"),
    [
        ("今天气好明", ["'明'", 9, "missing"]),
        ("今天气", ["'好'", 8, "missing"]),
        ("天今气好", ["'今'", 5, 6]),
    ],
)
@pytest.mark.parametrize("load", [RoFormerTokenizer, AutoTokenizer])
def test_two_vocabularies_in_one_folder_are_refused(tmp_path, load, entries, facts):
    made().save_pretrained(tmp_path)
    write_vocabulary(vocabulary(*entries), tmp_path / "vocab.txt")
    with refused(VocabularyError, tmp_path / "vocab.txt", tmp_path / "tokenizer.json", *facts):
        load.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert load.from_pretrained(tmp_path).get_vocab() == vocabulary(*entries)


def test_a_vocabulary_that_lists_added_tokens_too_is_no_other_one(tmp_path):
    """Some programs write them into vocab.txt, others into tokenizer.json alone. Their ids are the same."""
    tokenizer = made(added=["[新]"])
    tokenizer.save_pretrained(tmp_path)
    write_vocabulary(tokenizer.get_vocab(), tmp_path / "vocab.txt")
    assert state(RoFormerTokenizer.from_pretrained(tmp_path)) == state(tokenizer)
