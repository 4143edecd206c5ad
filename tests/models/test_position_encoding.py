"""Other position encodings than rotary: against equation 4, against BERT, and wherever a rotary model works."""

import math

import pytest
import torch
from cases import make_ids
from helpers.messages import refused
from helpers.paths import REPOSITORY
from helpers.small_models import small_config, small_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, BertConfig, BertModel, StaticCache

from modeling_roformer import NezhaConfig, RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerModel
from modeling_roformer.conversion import convert, export_tf, info
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.loading import ShapeMismatchError
from modeling_roformer.model_cards.folder_card import card_of_folder
from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

VOCABULARY = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"

LONGEST = 24
OTHERS = ["learned", "sinusoidal", "none"]
TABLE = "embeddings.position_embeddings.weight"


def make_model(encoding, head=RoFormerModel, **fields):
    model = small_model(head, **{"max_position_embeddings": LONGEST, "position_encoding": encoding, **fields})
    if encoding == "learned":  # RoFormer-V2's initialisation is too small for a wrong row to show
        torch.nn.init.normal_(model.base_model.embeddings.position_embeddings.weight, std=0.3)
    return model


def equation_4(i, width):
    row = []
    for t in range(width // 2):
        row += [math.sin(i / 10000 ** (2 * t / width)), math.cos(i / 10000 ** (2 * t / width))]
    return row


@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_sinusoidal_is_equation_4(scale):
    """Added to the words' embeddings, of a width of their own, before the norm; at any length."""
    model = make_model("sinusoidal", embedding_size=10, sinusoidal_scale=scale)
    positions = torch.tensor([[0, 1, 2, 511, 100_000], [7, 7, 3, 0, 1]])
    added = model.embeddings.position_embeddings(positions)
    expected = torch.tensor([[equation_4(i, 10) for i in row] for row in positions.tolist()], dtype=torch.float64)
    expected *= scale
    torch.testing.assert_close(added.double(), expected, atol=1e-6, rtol=0)
    words = model.get_input_embeddings()(make_ids(2, 5))
    expected = model.embeddings.LayerNorm(words + model.embeddings.token_type_embeddings.weight[0] + expected.float())
    torch.testing.assert_close(model.embeddings(make_ids(2, 5), position_ids=positions), expected)
    states = model(make_ids(2, 5), position_ids=positions, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[0], model.embeddings_project(expected))
    assert not any("position" in name for name in [*model.state_dict(), *dict(model.named_buffers())])
    assert model(make_ids(1, 3 * LONGEST)).last_hidden_state.isfinite().all()


def test_sinusoidal_positions_are_exact_in_half_precision():
    model = make_model("sinusoidal", embedding_size=10).to(torch.bfloat16)
    added = model.embeddings.position_embeddings(torch.tensor([[1500]]))
    torch.testing.assert_close(added[0, 0].tolist(), equation_4(1500, 10), atol=1e-6, rtol=0)
    assert model(make_ids(2, 12)).last_hidden_state.dtype == torch.bfloat16


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_learned_is_bert(implementation):
    """Embeddings and layers are BERT's, under BERT's names."""
    torch.manual_seed(0)
    bert = BertModel(
        small_config(BertConfig, max_position_embeddings=LONGEST, initializer_range=0.3), add_pooling_layer=False
    ).eval()
    model = make_model("learned", attn_implementation=implementation)
    model.load_state_dict(bert.state_dict())
    batch = {"input_ids": make_ids(2, LONGEST), "token_type_ids": make_ids(2, LONGEST) % 2}
    mask = torch.ones(2, LONGEST, dtype=torch.long)
    mask[0, 15:] = 0
    positions = torch.randint(0, LONGEST, (2, LONGEST), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        for given in ({}, {"position_ids": positions}):
            found = model(**batch, **given, attention_mask=mask, output_hidden_states=True)
            expected = bert(**batch, **given, attention_mask=mask, output_hidden_states=True)
            for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
                torch.testing.assert_close(one[mask.bool()], other[mask.bool()], atol=5e-5, rtol=0)


def test_without_positions_order_does_not_matter():
    ids, order = make_ids(2, 12), torch.randperm(12, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        differences = {
            encoding: (model(ids).last_hidden_state[:, order] - model(ids[:, order]).last_hidden_state).abs().max()
            for encoding in ["rotary", *OTHERS]
            for model in [make_model(encoding)]
        }
    assert differences.pop("none") < 1e-5
    assert min(differences.values()) > 0.1


def test_a_table_that_is_missing_or_has_no_place_is_named(tmp_path):
    make_model("learned", RoFormerForMaskedLM).save_pretrained(tmp_path)
    with refused(ValueError, tmp_path, f"roformer.{TABLE}"):
        RoFormerForMaskedLM.from_pretrained(tmp_path, position_encoding="rotary")
    with refused(ShapeMismatchError, tmp_path, f"roformer.{TABLE}", (24, 32), (48, 32)):
        RoFormerForMaskedLM.from_pretrained(tmp_path, max_position_embeddings=48)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[f"roformer.{TABLE}"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refused(ValueError, tmp_path, f"roformer.{TABLE}", "output_loading_info=True"):
        RoFormerForMaskedLM.from_pretrained(tmp_path)


def test_texts_longer_than_the_table_are_refused():
    model, decoder = make_model("learned"), make_model("learned", RoFormerForCausalLM, is_decoder=True)
    computed = []
    model.embeddings.word_embeddings.register_forward_hook(lambda *args: computed.append(args))
    facts = 25, "max_position_embeddings", 24
    with refused(ValueError, *facts):
        model(make_ids(1, 25))
    with refused(ValueError, *facts):
        model(inputs_embeds=torch.zeros(1, 25, 32))
    with refused(ValueError, "position_ids", 24, 23):
        model(make_ids(1, 2), position_ids=torch.tensor([[0, 24]]))
    assert not computed
    assert model(make_ids(1, 30), position_ids=torch.arange(30)[None] // 2).last_hidden_state.shape == (1, 30, 32)
    with torch.no_grad():
        cache = decoder(make_ids(1, 20), use_cache=True).past_key_values
        with refused(ValueError, *facts):
            decoder(make_ids(1, 5), past_key_values=cache)
        assert cache.get_seq_length() == 20
        cache = StaticCache(config=decoder.config, max_cache_len=40)
        decoder(make_ids(1, 20), past_key_values=cache)
        with refused(ValueError, *facts):
            decoder(make_ids(1, 5), past_key_values=cache)


def test_nezha_has_positions_of_its_own():
    with refused(ValueError, "position_encoding", "NEZHA"):
        NezhaConfig(position_encoding="learned")
    assert "position_encoding" not in NezhaConfig().to_dict()


@pytest.mark.parametrize(
    ("encoding", "positions", "said"),
    [
        ("learned", "learned, length 24", "inputs cannot be longer than that"),
        ("sinusoidal", "sinusoidal", "inputs can have any length"),
        ("none", "none", "inputs can have any length"),
    ],
)
def test_commands_and_cards_say_what_it_is(encoding, positions, said, tmp_path):
    RoFormerTokenizer(VOCABULARY).save_pretrained(tmp_path)
    make_model(encoding, RoFormerForMaskedLM, vocab_size=154).save_pretrained(tmp_path)
    found = info(tmp_path)
    assert found.rows()["positions"] == positions and found.needs_package
    assert found.trained_length == (LONGEST if encoding == "learned" else None)
    card = card_of_folder(tmp_path)
    phrase = "no position encoding" if encoding == "none" else f"{encoding} position embeddings"
    assert phrase in card and said in card and "roformer_x" in card
    assert "RoPE" not in card.partition("## ")[0] and "rotary-position-embedding" not in card
    legacy = tmp_path.with_name(f"{tmp_path.name}-legacy")
    with refused(CheckpointError, "position_encoding", encoding):
        export_tf(tmp_path, legacy)
    assert not legacy.exists()


def test_a_pytorch_folder_keeps_its_table(tmp_path):
    """Conversion raises what plain transformers is told of lengths; here it is the size of a table."""
    model, folder = make_model("learned", RoFormerForMaskedLM, vocab_size=154), tmp_path / "source"
    model.config.architectures = ["RoFormerForMaskedLM"]
    model.config.save_pretrained(folder)
    RoFormerTokenizer(VOCABULARY).save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    convert(folder, tmp_path / "model")
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "model")
    assert loaded.config.max_position_embeddings == LONGEST
    with torch.no_grad():
        torch.testing.assert_close(loaded(make_ids(2, 12)).logits, model(make_ids(2, 12)).logits)
