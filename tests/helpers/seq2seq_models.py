"""Small models for sequence to sequence, for their tests: ours, and transformers' Marian with the same weights."""

import re

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from modeling_roformer import RoFormerForConditionalGeneration, RoFormerSeq2SeqConfig

START, PAD, EOS = 2, 1, 0
SIZES = dict(
    vocab_size=50,
    d_model=32,
    encoder_layers=2,
    encoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_layers=3,
    decoder_attention_heads=2,
    decoder_ffn_dim=40,
    activation_function="swish",
    scale_embedding=True,
    pad_token_id=PAD,
    bos_token_id=None,
    eos_token_id=EOS,
    decoder_start_token_id=START,
)
# Marian's names of weights, and ours.
NAMES = {
    r"\.layers\.": ".encoder.layer.",
    r"embed_tokens": "embeddings.word_embeddings",
    r"self_attn_layer_norm": "attention.output.LayerNorm",
    r"encoder_attn_layer_norm": "crossattention.output.LayerNorm",
    r"self_attn": "attention",
    r"encoder_attn": "crossattention",
    r"q_proj": "self.query",
    r"k_proj": "self.key",
    r"v_proj": "self.value",
    r"out_proj": "output.dense",
    r"fc1": "intermediate.dense",
    r"fc2": "output.dense",
    r"final_layer_norm": "output.LayerNorm",
}


def randomise(model):
    """Initialise weights as large as trained ones, so that a wrong position shows."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:  # Marian's table of positions is none
                std = 0.05 if parameter.ndim == 1 else 0.3 if "embed" in name else 0.5
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(std * noise + float("norm.weight" in name.lower()))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(0.1 * torch.randn(model.final_logits_bias.shape, generator=generator))
    return model.eval()


def make_model(model_class=RoFormerForConditionalGeneration, **fields):
    return randomise(model_class(RoFormerSeq2SeqConfig(**{**SIZES, **fields})))


def marian_and_ours(**fields):
    """Return transformers' Marian, and ours with the same weights and sinusoidal positions."""
    marian = randomise(MarianMTModel(MarianConfig(**{**SIZES, "forced_eos_token_id": None, **fields})))
    ours = RoFormerForConditionalGeneration(
        RoFormerSeq2SeqConfig(**{**SIZES, "position_encoding": "sinusoidal", **fields})
    )
    weights = {}
    for name, tensor in marian.state_dict().items():
        for theirs, our in NAMES.items():
            name = re.sub(theirs, our, name)
        weights[name] = tensor
    for name in [name for name in weights if "embed_positions" in name or name == "model.shared.weight"]:
        del weights[name]
    ours.load_state_dict(weights)  # strict: no name is left over, on either side
    return marian, ours.eval()


def make_ids(*shape, seed=0):
    return torch.randint(3, 50, shape, generator=torch.Generator().manual_seed(seed))


def padded(texts, side="right"):
    """Pad texts of several lengths to a batch: ids and mask."""
    length = max(len(text) for text in texts)
    ids = torch.full((len(texts), length), PAD)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(length - len(text), None)
        ids[row, place], mask[row, place] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


WORDS = [
    "a",
    "dog",
    "runs",
    "in",
    "the",
    "park",
    "two",
    "men",
    "play",
    "ball",
    ".",
    "ein",
    "hund",
    "läuft",
    "im",
    "park",
    "zwei",
    "männer",
    "spielen",
    "ball",
]


def make_tokenizer():
    """Make an ordinary fast tokenizer of words, which ends each text with </s>."""
    words = dict.fromkeys(["</s>", "<pad>", "<s>", "<unk>", *WORDS])
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", bos_token="<s>", unk_token="<unk>"
    )
