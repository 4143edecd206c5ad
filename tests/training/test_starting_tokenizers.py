"""Tokenizers from which training starts: those of a bert4keras folder are what `convert` makes of it."""

import shutil

import pytest
from helpers.legacy_checkpoints import edit_config
from helpers.paths import REPOSITORY
from transformers import AutoTokenizer

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.tf_exporter import export_tf
from modeling_roformer.training import load_tokenizer

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
TEXT = "听见A和a，明月Z"


def cased(folder):
    """Copy a checkpoint, and give its vocabulary the entry A."""
    shutil.copytree(LEGACY / "word", folder)
    path = folder / "vocab.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("\nz\n", "\nA\n"), encoding="utf-8", newline="\n")
    return folder


@pytest.mark.parametrize("make", [cased, lambda folder: shutil.copytree(LEGACY / "word", folder)])
def test_a_checkpoint_and_what_it_is_converted_to_have_the_same_ids(make, tmp_path):
    folder = make(tmp_path / "legacy")
    convert(folder, tmp_path / "saved")
    export_tf(tmp_path / "saved", tmp_path / "exported")
    expected = AutoTokenizer.from_pretrained(tmp_path / "saved")
    entries = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert (entries.index("A") in expected(TEXT).input_ids) if make is cased else not {"A"} & set(entries)
    for place in (folder, folder / "vocab.txt", tmp_path / "saved", tmp_path / "exported"):
        found = load_tokenizer(place)
        assert found(TEXT).input_ids == expected(TEXT).input_ids
        assert found.do_lower_case == expected.do_lower_case == (make is not cased)
        assert load_tokenizer(str(place), word_segmentation=None).word_segmentation is None


@pytest.mark.parametrize("model_type", [..., "bert", "roformer"])
def test_a_configuration_of_either_name(model_type, tmp_path):
    """bert4keras' configuration may be called config.json, as that of a saved model is."""
    folder = cased(tmp_path / "legacy")
    expected = load_tokenizer(folder)(TEXT).input_ids
    edit_config(folder, model_type=model_type)
    (folder / "bert_config.json").rename(folder / "config.json")
    assert load_tokenizer(folder)(TEXT).input_ids == expected


def test_a_saved_models_other_files_are_read(tmp_path):
    """Such as those with added tokens, beside vocab.txt."""
    folder = tmp_path / "saved"
    convert(LEGACY / "word", folder)
    tokenizer = RoFormerTokenizer(str(folder / "vocab.txt"))
    tokenizer.add_tokens(["[新]"])
    tokenizer.save_pretrained(folder)
    assert load_tokenizer(folder).tokenize("月[新]") == ["月", "[新]"]


def test_an_exported_tokenizer_and_an_option_decide_over_the_vocabulary(tmp_path):
    """A model may have been trained on lower-cased texts with a cased vocabulary."""
    folder = cased(tmp_path / "legacy")
    convert(folder, tmp_path / "saved")
    RoFormerTokenizer(str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(tmp_path / "saved")
    export_tf(tmp_path / "saved", tmp_path / "exported")
    assert load_tokenizer(tmp_path / "exported").do_lower_case
    assert load_tokenizer(folder, do_lower_case=True).do_lower_case
