"""The layers of a bert4keras model, and the released checkpoints' variables for their weights.

bert4keras names its layers itself (`variable_mapping` in its models.py), and Keras numbers the weights inside them. So
a layer is identified by its name, and a weight by its kind and its position among the layer's weights of that kind: the
second kernel of an attention layer belongs to the keys.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..errors import CheckpointError

WORDS = "Embedding-Token"
RELATIVE_POSITIONS = "Embedding-Relative-Position"

_DENSE, _NORM = ("kernel", "bias"), ("beta", "gamma")


def _parts(variable: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{variable}/{name}" for name in names)


# The variables of a layer's weights, each kind in the layer's order.
LAYERS = {
    WORDS: ("bert/embeddings/word_embeddings",),
    "Embedding-Segment": ("bert/embeddings/token_type_embeddings",),
    "Embedding-Position": ("bert/embeddings/position_embeddings",),
    "Embedding-Norm": _parts("bert/embeddings/LayerNorm", _NORM),
    "Embedding-Mapping": _parts("bert/encoder/embedding_hidden_mapping_in", _DENSE),
    RELATIVE_POSITIONS: ("bert/embeddings/relative_position_embeddings",),
    "Pooler-Dense": _parts("bert/pooler/dense", _DENSE),
    "NSP-Proba": ("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"),
    "MLM-Dense": _parts("cls/predictions/transform/dense", _DENSE),
    "MLM-Norm": _parts("cls/predictions/transform/LayerNorm", _NORM),
    "MLM-Bias": ("cls/predictions/output_bias",),
}
ENCODER_LAYERS = {
    "MultiHeadSelfAttention": (
        *_parts("attention/self/query", _DENSE),
        *_parts("attention/self/key", _DENSE),
        *_parts("attention/self/value", _DENSE),
        *_parts("attention/output/dense", _DENSE),
    ),
    "MultiHeadSelfAttention-Norm": _parts("attention/output/LayerNorm", _NORM),
    "FeedForward": (*_parts("intermediate/dense", _DENSE), *_parts("output/dense", _DENSE)),
    "FeedForward-Norm": _parts("output/LayerNorm", _NORM),
}
# bert4keras' layers without weights, between and after those; any other layer at the end belongs to the task.
_WEIGHTLESS = re.compile(
    r"(Input|Embedding|Transformer|Attention|MLM|NSP|Output-MLM)-.+|Pooler|.+-(Dropout|Add|Norm)", re.DOTALL
)
_ENCODER_LAYER = re.compile(r"Transformer-(0|[1-9]\d{0,5})-(.+)")
_MASKS = {"Attention-LM-Mask": "lm", "Attention-UniLM-Mask": "unilm"}
# Other versions call the layer of any mask Attention-Mask, and people's own masks are called in the same way.
_MASK_LAYER = "Attention-"
_SCORES = re.compile(r"Transformer-.+-Attention-Bias")  # the sum of a mask and the scores of the layer below
_LATER = re.compile(r"Pooler|(Pooler|NSP|MLM|Output)-.+")  # layers that follow the encoder, in any order
_KINDS = {"output_weights": "kernel", "output_bias": "bias"}


@dataclass(frozen=True)
class KerasLayer:
    """A layer as stored in a file.

    `weights` maps the name of each weight inside the layer ("kernel", "dense_1/bias"), in the layer's order, to its
    stored name. `kind` (the layer's class), `activation` and `inputs` (names of layers) are known if the file has the
    model's configuration, and `name` if the file has names; otherwise they are "" or None.
    """

    name: str
    weights: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    activation: str = ""
    inputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KerasModel:
    """The parts of a model.

    `variables` maps names of the released checkpoints to stored names. `task_layers` follow the encoder and are not
    bert4keras' own, with or without weights; `own_layers` are bert4keras' own, by name, and `encoder_end` names the
    encoder's last layer. `mask` is "lm", "unilm" or, without a layer of a mask (`mask_layer`), ""; None if the name of
    that layer does not tell it. Layers without weights, such as masks and those of RoFormer-V2's MLM head, are only
    known if the model's layers are `named`.
    """

    variables: dict[str, str]
    task_layers: list[KerasLayer]
    own_layers: dict[str, KerasLayer]
    encoder_end: str
    has_language_model: bool
    mask: str | None
    mask_layer: str
    named: bool


def read_model(layers: list[KerasLayer]) -> KerasModel:
    """Find the encoder among the layers of a model, which may have been built with any prefix.

    Raises CheckpointError, without the file's name, if there is not exactly one, or if a layer has unknown weights.
    """
    prefixes = [layer.name.removesuffix(WORDS) for layer in layers if layer.weights and layer.name.endswith(WORDS)]
    if len(prefixes) != 1:
        found = f"{len(prefixes)} models with a layer" if prefixes else "no layer"
        first = ", ".join(layer.name for layer in layers if layer.weights)[:100] or "none with weights"
        raise CheckpointError(f"has {found} {WORDS}, but a bert4keras model has exactly one (its layers: {first})")
    prefix = prefixes[0]
    variables: dict[str, str] = {}
    own: dict[int, str] = {}  # bert4keras' layers by their positions, without the prefix
    for place, layer in enumerate(layers):
        name = layer.name.removeprefix(prefix)
        names = _variables_of(name) if layer.name.startswith(prefix) else None
        if names is not None and layer.weights:
            variables |= _match(layer, names)
        is_weightless = layer.name.startswith(prefix) and not layer.weights and _WEIGHTLESS.fullmatch(name)
        if names is not None or is_weightless:
            own[place] = name
    end = max(place for place, name in own.items() if not _LATER.fullmatch(name))
    mask_layer = next((name for name in own.values() if name.startswith(_MASK_LAYER)), "")
    named = any(not layers[place].weights for place in own)  # a nested model's are not, though layers around it are
    if named:
        _check_computation(own.values())
    return KerasModel(
        variables=variables,
        task_layers=[
            layer for place, layer in enumerate(layers) if place not in own and (place > end or layer.weights)
        ],
        own_layers={layers[place].name: layers[place] for place in own},
        encoder_end=layers[end].name,
        has_language_model=any(name.startswith(("MLM-", "Output-MLM-")) for name in own.values()),
        mask=_MASKS.get(mask_layer) if mask_layer else "",
        mask_layer=prefix + mask_layer if mask_layer else "",
        named=named,
    )


def _check_computation(names: Collection[str]) -> None:
    """Raise CheckpointError if the layers of a model, with and without weights, compute something else than here."""
    if not any(name.startswith("Embedding-") and name.endswith("Position") for name in names):
        raise CheckpointError("has no layer of positions, such as Embedding-Rotary-Position: its positions are unknown")
    for name in names:
        if _SCORES.fullmatch(name):
            raise CheckpointError(
                f"has the layer {name}, which adds the attention scores of the layer below "
                "(residual_attention_scores=True of bert4keras): this is not supported"
            )
    if "Embedding-Token-Segment" in names and "Embedding-Segment" not in names:
        raise CheckpointError(
            "has segments, but no layer Embedding-Segment: they share the embeddings of the tokens "
            "(shared_segment_embeddings=True of bert4keras), which is not supported"
        )


def _variables_of(name: str) -> tuple[str, ...] | None:
    """Return the variables of a bert4keras layer; None for layers without weights and layers of others."""
    if name in LAYERS:
        return LAYERS[name]
    match = _ENCODER_LAYER.fullmatch(name)
    if match is None or match[2] not in ENCODER_LAYERS:
        return None
    return _parts(f"bert/encoder/layer_{match[1]}", ENCODER_LAYERS[match[2]])


def _match(layer: KerasLayer, variables: tuple[str, ...]) -> dict[str, str]:
    """Return variable -> stored name; all weights of a kind exist, or (RoFormer-V2) none."""
    if len(variables) == 1:  # the names of such weights differ: embeddings; beta, in old files bias
        return {variables[0]: next(iter(layer.weights.values()))}
    found: dict[str, str] = {}
    for kind in dict.fromkeys(_kind(variable) for variable in variables):
        wanted = [variable for variable in variables if _kind(variable) == kind]
        stored = [stored for name, stored in layer.weights.items() if name.rpartition("/")[2] == kind]
        found |= zip(wanted, stored, strict=False)
    if unknown := sorted(set(layer.weights.values()) - set(found.values())):
        raise CheckpointError(f"has the weight {unknown[0]} in the layer {layer.name}, which bert4keras lacks")
    return found


def _kind(variable: str) -> str:
    last = variable.rpartition("/")[2]
    return _KINDS.get(last, last)
