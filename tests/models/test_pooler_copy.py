"""The copy of a pooler that sentence-transformers reads is renewed; a Dense that it trained is not."""

import torch
from helpers.small_models import small_config
from safetensors.torch import load_file, save_file

from modeling_roformer import RoFormerModel
from modeling_roformer.conversion.sentence_transformers_files import write_sentence_transformers_files


def test_the_copy_is_of_the_pooler_saved_last(tmp_path):
    config = small_config(add_pooling_layer=True, pooler_activation="linear")
    RoFormerModel(config).save_pretrained(tmp_path)
    write_sentence_transformers_files(tmp_path)
    (model := RoFormerModel(config)).save_pretrained(tmp_path, max_shard_size="5KB")
    path = tmp_path / "2_Dense" / "model.safetensors"
    assert torch.equal(load_file(path)["linear.weight"], model.pooler.dense.weight)
    save_file(trained := {name: weight + 1 for name, weight in load_file(path).items()}, path)
    RoFormerModel(config).save_pretrained(tmp_path)
    assert torch.equal(load_file(path)["linear.weight"], trained["linear.weight"])


def test_a_model_without_a_pooler_leaves_no_copy_of_an_earlier_one(tmp_path):
    config = small_config(add_pooling_layer=True, pooler_activation="linear")
    RoFormerModel(config).save_pretrained(tmp_path)
    write_sentence_transformers_files(tmp_path)
    RoFormerModel(small_config()).save_pretrained(tmp_path)
    assert not (tmp_path / "2_Dense").exists() and not (tmp_path / "modules.json").exists()


def test_a_trained_dense_stays_without_a_pooler(tmp_path):
    """sentence-transformers saves the model first, and then the modules after it."""
    RoFormerModel(small_config(add_pooling_layer=True, pooler_activation="linear")).save_pretrained(tmp_path)
    write_sentence_transformers_files(tmp_path)
    path = tmp_path / "2_Dense" / "model.safetensors"
    save_file(trained := {name: weight + 1 for name, weight in load_file(path).items()}, path)
    RoFormerModel(small_config()).save_pretrained(tmp_path)
    assert torch.equal(load_file(path)["linear.weight"], trained["linear.weight"])
    assert (tmp_path / "modules.json").exists()
