"""The weights of a model: each has a key in PyTorch's classes, and a variable in the released checkpoints."""

import re
from dataclasses import dataclass

MODEL = ("bert/", "cls/")  # scopes of the model's variables
TASK = "task/"  # the scope of a head's variables in a checkpoint that this package exported
# Keys, after the prefix of a class, whose variables do not follow the rule.
_OTHER_NAMES = {
    "embeddings_project.weight": "bert/encoder/embedding_hidden_mapping_in/kernel",
    "embeddings_project.bias": "bert/encoder/embedding_hidden_mapping_in/bias",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}
_PREFIX = re.compile(r"(roformer|bert|nezha)\.")
_ENCODER = ("embeddings.", "embeddings_project.", "encoder.", "pooler.")


@dataclass(frozen=True)
class Weight:
    """A tensor: the variable `variable` of shape `shape` becomes the weight `key`, transposed if `transpose` is set.

    TensorFlow's dense kernels are (in, out), PyTorch's (out, in).
    """

    key: str
    variable: str
    shape: tuple[int, ...]
    transpose: bool = False


def without_prefix(key: str) -> str:
    """Return a key without the prefix of its class, which a bare model's keys do not have."""
    return _PREFIX.sub("", key, count=1) if _PREFIX.match(key) else key


def is_of_encoder(key: str) -> bool:
    """Return whether a key is that of an encoder's weight, with or without the prefix of its class."""
    return without_prefix(key).startswith(_ENCODER)


def variable_of(key: str) -> str:
    """Return the variable of a key. bert4keras reads variables by name, and ignores those of task heads.

    >>> variable_of("roformer.encoder.layer.0.output.dense.weight")
    'bert/encoder/layer_0/output/dense/kernel'
    >>> variable_of("classifier.bias")
    'task/classifier/bias'
    """
    name = without_prefix(key)
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    scope = "bert/" if is_of_encoder(key) else "" if name.startswith("cls.") else TASK
    path, _, kind = name.replace(".layer.", ".layer_").rpartition(".")
    kinds = {"weight": "/kernel", "bias": "/bias"}
    if path.endswith("LayerNorm"):
        kinds = {"weight": "/gamma", "bias": "/beta"}
    elif path.startswith("embeddings."):
        kinds = {"weight": ""}
    return scope + path.replace(".", "/") + kinds.get(kind, f"/{kind}")


def weight(key: str, *shape: int) -> Weight:
    """Return a weight of a shape in PyTorch's order."""
    variable = variable_of(key)
    if variable.endswith("/kernel") and len(shape) == 2:
        return Weight(key, variable, shape[::-1], transpose=True)
    return Weight(key, variable, shape)


def dense(key: str, inputs: int, outputs: int) -> list[Weight]:
    """Return a dense layer's kernel and bias."""
    return [weight(f"{key}.weight", outputs, inputs), weight(f"{key}.bias", outputs)]


def layer_norm(key: str, width: int) -> list[Weight]:
    """Return a layer norm's gamma and beta."""
    return [weight(f"{key}.weight", width), weight(f"{key}.bias", width)]
