"""The copy of a pooler that sentence-transformers reads is renewed; a Dense that it trained is not."""

import pytest
import torch
from helpers.small_models import small_config
from safetensors.torch import load_file, save_file

from modeling_roformer import RoFormerModel
from modeling_roformer.conversion.sentence_transformers_files import write_sentence_transformers_files

CONFIG = small_config(add_pooling_layer=True, pooler_activation="linear")


@pytest.fixture
def folder(tmp_path):
    RoFormerModel(CONFIG).save_pretrained(tmp_path)
    write_sentence_transformers_files(tmp_path)
    return tmp_path


def test_the_copy_is_of_the_pooler_saved_last(folder):
    (model := RoFormerModel(CONFIG)).save_pretrained(folder, max_shard_size="5KB")
    path = folder / "2_Dense" / "model.safetensors"
    assert torch.equal(load_file(path)["linear.weight"], model.pooler.dense.weight)
    save_file(trained := {name: weight + 1 for name, weight in load_file(path).items()}, path)
    RoFormerModel(CONFIG).save_pretrained(folder)
    assert torch.equal(load_file(path)["linear.weight"], trained["linear.weight"])


def test_a_model_without_a_pooler_leaves_no_copy_of_an_earlier_one(folder):
    RoFormerModel(small_config()).save_pretrained(folder)
    assert not (folder / "2_Dense").exists() and not (folder / "modules.json").exists()


def test_a_trained_dense_stays_without_a_pooler(folder):
    """sentence-transformers saves the model first, and then the modules after it."""
    path = folder / "2_Dense" / "model.safetensors"
    save_file(trained := {name: weight + 1 for name, weight in load_file(path).items()}, path)
    RoFormerModel(small_config()).save_pretrained(folder)
    assert torch.equal(load_file(path)["linear.weight"], trained["linear.weight"])
    assert (folder / "modules.json").exists()
