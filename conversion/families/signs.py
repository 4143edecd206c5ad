"""Signs of a checkpoint's positions and of its mask, in its configuration and in its name.

RoFormer, RoFormer-GPT and NEZHA have the same variables, and no variable shows a mask. `WORDS` and `read_signs` list
everything that is read beside the variables; docs/converting.md has the same table.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CheckpointError
from ..folder.settings import Settings
from .family import BIDIRECTIONAL, CAUSAL, MASKS, RELATIVE, ROTARY, TABLE, UNILM

# Fields that are read for words, and all fields that are signs.
WORD_FIELDS = ("model_type", "architectures", "model")
RELATIVE_POSITIONS = ("use_relative_position", "max_relative_position")
SIGNS = (*WORD_FIELDS, *RELATIVE_POSITIONS, "is_decoder", "application")

# bert4keras' argument `application` -> the mask.
APPLICATIONS = {"encoder": BIDIRECTIONAL, "lm": CAUSAL, "unilm": UNILM}

# Words in names and in configurations -> the positions and the masks that they mean; () if they say nothing of them.
WORDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nezha": ((RELATIVE,), ()),
    "simbert": ((TABLE,), (UNILM,)),
    "gpt": ((), (CAUSAL,)),
}
# Words of configurations only: names mention what a model started from, as in roformer-from-bert.
TITLES = {"roformer": "RoFormer"}  # of words that are not written in capitals
CONFIGURED_WORDS = WORDS | {"roformer": ((ROTARY,), ()), "bert": ((TABLE, RELATIVE), ())}


@dataclass(frozen=True)
class Sign:
    """A sign, described by `text`. It fits these `positions` and `masks`, or any if they are empty."""

    text: str
    positions: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signs:
    """All signs: those of the field `application`, of the rest of the configuration, and of the name."""

    application: list[Sign] = field(default_factory=list)
    configuration: list[Sign] = field(default_factory=list)
    name: list[Sign] = field(default_factory=list)


def read_signs(settings: Settings, own: Mapping[str, object], name: str) -> Signs:
    """Return the signs of a configuration and of a name.

    `own` has the fields that only this package writes. Raises CheckpointError if a field has an unknown value.
    """
    fields = {**settings.ignored, **own}
    signs = Signs(name=_words(name, WORDS, f"its name, {name}, says"))
    if (application := fields.get("application")) is not None:
        if application not in APPLICATIONS:
            raise CheckpointError(
                f"{settings.path}: application is {application!r}, but must be one of {', '.join(APPLICATIONS)}"
            )
        mask = APPLICATIONS[application]
        text = f"its configuration says {MASKS[mask]} (application {application})"
        signs.application.append(Sign(text, masks=(mask,)))
    for relative in RELATIVE_POSITIONS:
        if fields.get(relative):
            signs.configuration.append(Sign(f"its configuration sets {relative}", positions=(RELATIVE,)))
    text = " ".join(str(fields.get(word_field, "")) for word_field in WORD_FIELDS)
    signs.configuration.extend(_words(text, CONFIGURED_WORDS, "its configuration mentions"))
    is_decoder = fields.get("is_decoder")
    if is_decoder:
        masks = (UNILM,) if fields.get("prefix_lm") else (CAUSAL,)
        signs.configuration.append(Sign("its configuration says that it is causal (is_decoder)", masks=masks))
    elif is_decoder is False and fields.get("model_type") == "roformer":  # RoFormer-Sim's mask has no field there
        text = "its configuration says that it is not causal (is_decoder)"
        signs.configuration.append(Sign(text, masks=(BIDIRECTIONAL, UNILM)))
    return signs


def _words(text: str, words: Mapping, says: str) -> list[Sign]:
    return [
        Sign(f"{says} {TITLES.get(word, word.upper())}", *meaning)
        for word, meaning in words.items()
        if word in text.lower()
    ]


def check_application(path: Path, fields: Mapping[str, object]) -> None:
    """Raise CheckpointError if, in a config.json (`path`), `application` says another mask than transformers' fields.

    These decide what a model of PyTorch computes.
    """
    application = fields.get("application")
    mask = CAUSAL if fields.get("is_decoder") else BIDIRECTIONAL
    if fields.get("prefix_lm") and fields.get("model_type") not in ("bert", "nezha"):  # with or without is_decoder
        mask = UNILM
    if application is not None and APPLICATIONS.get(application) != mask:
        raise CheckpointError(
            f'{path} says "application": {json.dumps(application)}, but is_decoder and prefix_lm, which transformers '
            f"reads, mean {MASKS[mask]}: correct one of them there"
        )


def agreed(signs: Iterable[Sign], what: str, where: str) -> tuple[str, ...]:
    """Return the `what`, "positions" or "masks", that fit all signs; () if none says anything of them.

    Raises CheckpointError, which names the checkpoint as `where`, if two signs contradict each other.
    """
    fitting: tuple[str, ...] = ()
    before = None
    for sign in signs:
        if meant := getattr(sign, what):
            both = tuple(value for value in fitting or meant if value in meant)
            if not both:
                raise CheckpointError(f"{where} has two signs of different models: {before.text}, but {sign.text}")
            fitting, before = both, sign
    return fitting
