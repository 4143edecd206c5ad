"""The definition of a family of checkpoints: its configuration, and the variable of each weight.

A family is one small data object in its own file (see roformer_v1.py); registry.py lists them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from ..formats.source import Source, Tensor

# Where positions come from: rotation of queries and keys, distances of two tokens, or a table of the input.
ROTARY, RELATIVE, TABLE = "rotary", "relative", "table"
# Which tokens a token attends to: all, the earlier ones, or those of the first segment and the earlier ones.
BIDIRECTIONAL, CAUSAL, UNILM = "", "lm", "unilm"
MASKS = {BIDIRECTIONAL: "attention in both directions", CAUSAL: "a causal mask", UNILM: "UniLM's mask"}

Config = Any  # a configuration, or any object with its sizes: transformers takes seconds to import


@dataclass(frozen=True)
class Weight:
    """A tensor: the variable `variable` of shape `shape` becomes the weight `key`, transposed if `transpose` is set.

    TensorFlow's dense kernels are (in, out), PyTorch's (out, in).
    """

    key: str
    variable: str
    shape: tuple[int, ...]
    transpose: bool = False


@dataclass(frozen=True)
class Family:
    """A family of checkpoints, whose models have these `positions` and, without a sign of another, this `mask`.

    `fields` returns the fields of the new configuration, whose model_type is `base`; `weights` lists every weight of
    the model with these fields. `ends` maps fields of the first and last token of texts to tokens, for all formats:
    TensorFlow's configurations have no such fields, and PyTorch's may leave them out. `dropped` maps prefixes of
    variables that are not needed to their kind in the summary.
    `tokenizer` gives the arguments of the tokenizer. `character_title` is the title of checkpoints whose vocabulary has
    no words. `note` names the result, if it is of another kind. `computed` returns the variables of a source that the
    model computes, with their kind in the summary, and `check_values` raises CheckpointError if their values differ.
    """

    name: str
    title: str
    fields: Callable[[Settings, Vocabulary], dict[str, Any]]
    weights: Callable[[Config], list[Weight]]
    base: str = "roformer"
    positions: str = ROTARY
    mask: str = BIDIRECTIONAL
    ends: Mapping[str, str | None] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    tokenizer: Callable[[Config], dict[str, object]] = lambda config: {}
    character_title: str | None = None
    note: str | None = None
    computed: Callable[[Source, Settings], dict[str, str]] = lambda source, settings: {}
    check_values: Callable[[Source, Settings], None] = lambda source, settings: None

    def end_ids(self, id_of: Callable[[str], int | None]) -> dict[str, int | None]:
        """Return the fields of `ends` with the ids that `id_of` gives the tokens."""
        return {name: None if token is None else id_of(token) for name, token in self.ends.items()}

    def title_of(self, vocabulary: Vocabulary) -> str:
        """Return the title of a checkpoint of this family with this vocabulary."""
        return self.title if vocabulary.word_level else self.character_title or self.title


POOLER = {"bert/pooler/dense/": "pooler"}  # of `Family.dropped`


@dataclass(frozen=True)
class Head:
    """A task layer that fine-tuning put on a family's base model; it replaces the family's own head.

    `architecture` is the class that has it; `title` its name in the summary; `weights` are its own weights; `fields`
    its additional configuration fields. With `keeps_own` it is the family's own head in another class. `drops_prefix`
    is the key prefix that every class but the bare model has.
    """

    architecture: str
    title: str
    weights: list[Weight] = field(default_factory=list)
    fields: dict[str, object] = field(default_factory=dict)
    keeps_own: bool = False
    drops_prefix: str = ""

    def weights_on(self, family: list[Weight]) -> list[Weight]:
        """Return the weights of the model with this head, given those of the family with its own head."""
        body = [weight for weight in family if self.keeps_own or not weight.key.startswith(OWN_HEAD)]
        own = {weight.variable for weight in self.weights}
        body = [weight for weight in body if weight.variable not in own]
        return [replace(weight, key=weight.key.removeprefix(self.drops_prefix)) for weight in body] + self.weights

    def configured(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration's fields of the model with this head, given those of the family."""
        return {**fields, "architectures": [self.architecture], **self.fields}


OWN_HEAD = "cls."  # the key prefix of the families' own heads


def dense(key: str, variable: str, inputs: int, outputs: int) -> list[Weight]:
    """Return a dense layer's kernel and bias."""
    kernel = Weight(f"{key}.weight", f"{variable}/kernel", (inputs, outputs), transpose=True)
    return [kernel, Weight(f"{key}.bias", f"{variable}/bias", (outputs,))]


def layer_norm(key: str, variable: str, width: int) -> list[Weight]:
    """Return a layer norm's gamma and beta."""
    return [Weight(f"{key}.weight", f"{variable}/gamma", (width,)), Weight(f"{key}.bias", f"{variable}/beta", (width,))]


# Variables of training in a checkpoint. A slot belongs to a variable of the model: `bert/…/kernel/adam_m`. It has the
# variable's shape, or one of these names.
_SLOT = re.compile(
    r"adam_[mv]|lamb_[mv]|Adam(_1)?|AdamW(_1)?|LAMB(_1)?|Momentum|RMSProp(_1)?|Adagrad|Adadelta(_1)?|Adafactor(_1)?"
    r"|m|v|vr|vc|ag|slow_var"
)
_AVERAGE = re.compile(r"(?i)(.*[/_])?(ema|swa)([/_].*)?|.*average.*")
_STEPS = ("global_step", "beta1_power", "beta2_power", "save_counter")
_SCALAR = re.compile(
    r"loss_scale/.+|(.*[/_])?(steps?|loss_scale|power|learning_rate|lr|epochs?|iter|iterations?|counter|decay)(_\d+)?"
    r"|(.*/)?best_.+|(.*[/_])?(loss|accuracy|acc|f1)"
)
# The scopes that Keras' optimisers give all their variables (`training/Adam/bert/…/kernel/m`), and of averages.
_OF_OPTIMISER = re.compile(
    r"(?i)(training/)?[^/]*(adam|lamb(?!da)|adafactor|adagrad|adadelta|rmsprop|momentum|sgd|optimi[sz]er)[^/]*/.*"
)
_OF_AVERAGES = re.compile(r"(?i)[^/]*(ema|swa|average)[^/]*/(.*)")
MODEL = ("bert/", "cls/")  # scopes of the model's variables

OPTIMISER, AVERAGES, SCALARS = "optimiser state", "moving averages of the weights", "training step"


def extra(name: str, entries: Mapping[str, Tensor]) -> str | None:
    """Return the kind of a variable that models do not need, else None. `entries` are all of its file.

    A variable of any name below another one, and of its shape, was made by an optimiser for that one.
    """
    if _OF_OPTIMISER.fullmatch(name) or "/.OPTIMIZER_SLOT/" in name:  # the latter as tf.keras saves it
        return OPTIMISER
    if (average := _OF_AVERAGES.fullmatch(name)) and average[2] in entries:
        return AVERAGES
    if name in ("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"):
        return "next-sentence head"
    entry = entries[name]
    slots = [(owner, slot) for owner, slot in _owners(name) if owner in entries]
    if name in _STEPS or (_is_of_training(entry) and (slots or not name.startswith(MODEL))):
        return SCALARS
    for owner, slot in slots:
        if entries[owner].shape == entry.shape or _SLOT.fullmatch(slot):
            return AVERAGES if _AVERAGE.fullmatch(slot) else OPTIMISER
    return None


def _is_of_training(entry: Tensor) -> bool:
    """Return whether a tensor is a single integer, or a single number with a name of training's. Weights are not."""
    return entry.shape == () and (entry.dtype.startswith("int") or _SCALAR.fullmatch(entry.name) is not None)


def _owners(name: str) -> Iterator[tuple[str, str]]:
    """Yield each variable that a name may be a slot of, with the name of the slot.

    >>> list(_owners("a/b/adam_m"))
    [('a', 'b/adam_m'), ('a/b', 'adam_m')]
    """
    owner, separator, slot = name.rpartition("_slot_")  # a/b_slot_m
    if separator:
        yield owner, slot
    parts = name.split("/")
    for end in range(1, len(parts)):  # a slot may have slots
        yield "/".join(parts[:end]), "/".join(parts[end:])
