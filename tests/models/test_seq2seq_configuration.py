"""RoFormerSeq2SeqConfig: what describes no model is refused, when it is made or when a model is."""

import pytest
from helpers.messages import refused
from helpers.seq2seq_models import SIZES

from modeling_roformer import RoFormerSeq2SeqConfig


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"decoder_attention_heads": 5}, ["d_model", 32, "decoder_attention_heads", 5]),
        ({"d_model": 36}, ["d_model", 36, "encoder_attention_heads", 4]),
        ({"activation_dropout": 0.1}, ["activation_dropout", 0.1, 0]),
        ({"decoder_vocab_size": 60}, ["decoder_vocab_size", 60, 50]),
        ({"share_encoder_decoder_embeddings": False}, ["share_encoder_decoder_embeddings", False, True]),
        ({"rope_theta": 500.0}, ["rope_theta", 500.0, "RoFormerSeq2SeqConfig"]),
    ],
)
def test_a_config_that_describes_no_model(fields, facts):
    with refused(ValueError, *facts):
        RoFormerSeq2SeqConfig(**{**SIZES, **fields})


def test_a_config_without_a_choice_leaves_padding_out():
    """Older files have no choice; RoFormerConfig reads them so, too."""
    assert RoFormerSeq2SeqConfig(unpad_inputs=None).unpad_inputs is True
