"""The variables of training in a checkpoint: an optimiser's slots, averages of weights, and counters."""

import re
from collections.abc import Iterator, Mapping

from ..formats.source import Tensor
from .weights import MODEL

# A slot belongs to a variable of the model: `bert/…/kernel/adam_m`. It has the
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
