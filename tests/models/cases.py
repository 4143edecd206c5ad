"""Variants of the architecture by name. A fact that holds for every variant is tested over one of these tables.

A new field of the configuration that changes what a model computes has a line here, and so is tested with padding,
packed texts, caches, gradients, files and exports.
"""

import torch
from helpers.small_models import small_model

DECODER, LINEAR, EAGER = {"is_decoder": True}, {"attention_type": "linear"}, {"attn_implementation": "eager"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
V2 = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
POOLER = {"add_pooling_layer": True, "pooler_activation": "tanh"}


def scaled(rope_type, **more):
    """Return the field of a scaling whose trained length is 4 tokens."""
    return {"rope_parameters": {"rope_type": rope_type, "factor": 4.0, "original_max_position_embeddings": 4, **more}}


FEATURE_MAPS = {
    "elu": {},
    "softmax": {},
    "cosine": {},
    "favor": {"linear_num_features": 24},
    "favor before": {"linear_num_features": 24, "linear_rotation": "before"},
}
LINEAR_MAPS = {
    f"linear {name}": {**LINEAR, "linear_feature_map": name.split()[0], **fields}
    for name, fields in FEATURE_MAPS.items()
}
POSITIONS = {
    "rotary values": {"rotary_value": True},
    "trainable": {"trainable_rope": True},
    "scaled": {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    "YaRN": scaled("yarn"),
    "learned": {"position_encoding": "learned", "max_position_embeddings": 16},
    "sinusoidal": {"position_encoding": "sinusoidal"},
    "no positions": {"position_encoding": "none"},
}
# What is the same in an encoder and in a decoder, but for the pooler and chunks.
LAYERS = {"plain": {}, "eager": EAGER, "V2": V2, "factorised": {"embedding_size": 16}, **POSITIONS, **LINEAR_MAPS}
LAYERS["linear favor, rotary values"] = {**LINEAR_MAPS["linear favor"], "rotary_value": True}
LAYERS["linear, trainable"] = {**LINEAR_MAPS["linear favor"], "trainable_rope": True}
LAYERS["linear, no positions"] = {**LINEAR, "position_encoding": "none"}

# Decoders whose words can be computed one by one, with a cache.
CACHED = {f"{name} decoder": {**fields, **DECODER} for name, fields in LAYERS.items()}
CACHED["UniLM"] = {**DECODER, "prefix_lm": True}
CACHED["cross-attention"] = {**DECODER, "add_cross_attention": True}
CACHED["linear cross-attention"] = {**CACHED["linear elu decoder"], "add_cross_attention": True}
DECODERS = {**CACHED, "dynamic decoder": {**scaled("dynamic"), **DECODER}}
DECODERS["RoFormer-Sim"] = {**DECODER, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
ENCODERS = {
    **LAYERS,
    "dynamic": scaled("dynamic"),
    "linear dynamic": {**LINEAR, **scaled("dynamic")},
    "pooler": POOLER,
    "chunks": {"chunk_size_feed_forward": 1},
    "linear chunks": {**LINEAR, "chunk_size_feed_forward": 1},
}
NEZHA = {"NEZHA": {"max_relative_position": 3}}
VARIANTS = {**ENCODERS, **DECODERS, **NEZHA}


def make_variant(variant, head="Model", **fields):
    """Return a small model of a variant in float64; `head` is the name of its class without that of its family."""
    family = "Nezha" if variant in NEZHA else "RoFormer"
    return small_model(family + head, **{**VARIANTS[variant], **fields}).double()


def make_ids(*shape, seed=1):
    return torch.randint(5, 90, shape, generator=torch.Generator().manual_seed(seed))


def source_of(model, b):
    """Return the arguments that cross-attention reads, for b texts; none if the model has no cross-attention."""
    if not getattr(model.config, "add_cross_attention", False):
        return {}
    states = torch.randn(b, 5, 32, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    mask = torch.ones(b, 5, dtype=torch.long)
    mask[-1, 3:] = 0
    return {"encoder_hidden_states": states, "encoder_attention_mask": mask}


def select_row(inputs, row):
    """Return the arguments of one text of a batch."""
    return {name: x[row : row + 1] for name, x in inputs.items()}


def close(found, expected, atol=1e-10):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)
