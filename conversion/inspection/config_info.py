"""The facts that a config.json states, of a saved model or of the one that a checkpoint becomes."""

import re
from collections.abc import Mapping

from modeling_roformer.model_cards.cards import is_published
from modeling_roformer.model_cards.kinds import kind_of, size_of
from modeling_roformer.model_cards.releases import RELEASES
from modeling_roformer.tokenization.vocabulary import has_words


def config_info(config: Mapping, word_level: bool, name: str, in_card: str = "") -> dict[str, object]:
    """Return the sizes, positions and trained length of a model, as fields of `CheckpointInfo`.

    `name` is the checkpoint's published name, or several of them with "/" between them; `in_card` is the trained length
    that its card states.
    """
    width, embedding = size_of(config, "hidden_size"), config.get("embedding_size")
    return {
        "layers": size_of(config, "num_hidden_layers"),
        "hidden_size": width,
        "attention_heads": size_of(config, "num_attention_heads"),
        "feed_forward_size": size_of(config, "intermediate_size"),
        "embedding_size": None if embedding == width else embedding,
        "activation": size_of(config, "hidden_act"),
        "positions": _positions(config, word_level),
        "trained_length": _trained_length(config, word_level, name, in_card),
    }


def vocabulary_info(entries: Mapping[str, int]) -> dict[str, object]:
    """Return the numbers of entries and of words in a vocabulary, and the unit into which it splits Chinese."""
    words = sum(has_words([entry]) for entry in entries)
    return {"entries": len(entries), "words": words, "unit": "word" if words else "character"}


def _positions(config: dict, word_level: bool) -> dict[str, object]:
    kind = kind_of(config, word_level)
    if kind in ("bert", "wobert"):
        return {"type": "a table", "length": config.get("max_position_embeddings")}
    if kind in ("nezha", "wonezha"):
        return {"type": "relative", "up_to_distance": config.get("max_relative_position", 64)}
    if kind is None:
        return {}
    if (encoding := config.get("position_encoding", "rotary")) != "rotary":
        return {"type": encoding} | ({"length": _table_length(config)} if encoding == "learned" else {})
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    scaling = rope.get("rope_type", rope.get("type", "default"))
    known = {"type": "rotary", "theta": theta, "scaling": None if scaling == "default" else scaling}
    known["factor"] = rope.get("factor")
    known["values_too"] = "yes" if config.get("rotary_value") else None
    known["frequencies"] = "trained" if config.get("trainable_rope") else None
    return {name: value for name, value in known.items() if value is not None}


def _trained_length(config: dict, word_level: bool, name: str, in_card: str) -> int | None:
    rope = config.get("rope_parameters") or {}
    if isinstance(length := rope.get("original_max_position_embeddings"), int):
        return length
    if kind_of(config, word_level) in ("bert", "wobert"):
        return config.get("max_position_embeddings")
    if config.get("position_encoding") == "learned":
        return _table_length(config)
    if stated := re.fullmatch(r"up to ([\d,]+) tokens", in_card):  # by the script that trained it
        return int(stated[1].replace(",", ""))
    names = [part.removesuffix(".zip") for part in name.split("/")]  # of an archive, and of the folder in it
    return next((RELEASES[part].trained_length for part in names if is_published(part, config, word_level)), None)


def _table_length(config: dict) -> int:
    """Return the number of learned positions of a RoFormer; the default is that of `RoFormerConfig`."""
    return config.get("max_position_embeddings", 1536)
