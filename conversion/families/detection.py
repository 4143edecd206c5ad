"""Detect the family of a checkpoint, in every format.

The tensors leave a list of candidates, each a family with a mask. Signs narrow it down, in the order of `Level`. A sign
that contradicts a stronger one is ignored; any other contradiction is an error that names both sides.
docs/converting.md lists the signs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from modeling_roformer.model_cards.kinds import architecture_of

from ..errors import CheckpointError
from . import wobert, wonezha
from .family import BIDIRECTIONAL, CAUSAL, MASKS, RELATIVE, ROTARY, TABLE, UNILM, Family
from .registry import FAMILIES


class Structure(NamedTuple):
    """The `sign` that tensors show, and the families with such tensors; without other signs, the first is chosen.

    Families `on_request` leave tensors out, and are chosen only with --family.
    """

    sign: str
    families: tuple[str, ...]
    on_request: tuple[str, ...] = ()


class Level(IntEnum):
    """The strength of a sign, the strongest first."""

    LAYERS = 0
    CONFIGURATION = 1
    REQUEST = 2
    NAME = 3


class Sign(NamedTuple):
    """A sign, described by `text`. It fits these `positions` and `masks`, or any if they are empty."""

    text: str
    positions: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    level: Level = Level.CONFIGURATION


class Candidate(NamedTuple):
    """A family, where its positions come from, and a mask that its models may have."""

    family: str
    positions: str
    masks: str


V2 = Structure("its layers have no biases and no layer norms", ("v2",))
BERT = Structure("it has a table of positions, like BERT", ("wobert",))
POOLED_BERT = BERT._replace(families=("wobert", "simbert"))
NEZHA = Structure("it has a table of relative positions", ("wonezha",))
PLAIN = Structure("it has neither a table of positions nor a pooler", ("roformer", "gpt", "wonezha"))
SIM = Structure("it has a pooler and no table of positions", ("sim", "wonezha"), on_request=("roformer",))
POOLED = PLAIN._replace(sign="it has a pooler that is not linear, and no table of positions")

# bert4keras' argument `application` -> the mask.
APPLICATIONS = {"encoder": BIDIRECTIONAL, "lm": CAUSAL, "unilm": UNILM}
# Words in names and in configurations -> the positions and the masks that they mean; () if they say nothing of them.
WORDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nezha": ((RELATIVE,), ()),
    "simbert": ((TABLE,), (UNILM,)),
    "gpt": ((), (CAUSAL,)),
}
# Words of configurations only: names mention what a model started from, as in roformer-from-bert.
CONFIGURED_WORDS = WORDS | {"roformer": ((ROTARY,), ()), "bert": ((TABLE, RELATIVE), ())}
WORD_FIELDS = ("model_type", "architectures", "model")
RELATIVE_FIELDS = ("use_relative_position", "max_relative_position")
FIELDS = (*WORD_FIELDS, *RELATIVE_FIELDS, "is_decoder", "application")  # all that are signs
DECODERS = ("ForCausalLM", "LMHeadModel")  # the ends of the names of classes that may have any mask
WITHOUT_TASK = (*DECODERS, "ForMaskedLM", "ForPreTraining", "Model")  # those of classes that SimBERT is saved in


@dataclass(frozen=True)
class Detection:
    """The family of a checkpoint, and the `sign` of it, None if it was requested.

    `mask` is the one that `mask_sign` says, None if nothing says one. It may be another than the family's.
    """

    family: Family
    sign: str | None
    mask: str | None = None
    mask_sign: Sign | None = None

    def check_mask(self, kind: Family, where: str) -> None:
        """Raise CheckpointError if the checkpoint's mask does not exist in `kind`, the family of the new model.

        The name of a folder or archive alone cannot give a family another mask than its own.
        """
        is_by_name = self.mask_sign is not None and self.mask_sign.level is Level.NAME
        if self.mask in (None, kind.mask) or (kind.base == "roformer" and not is_by_name):
            return
        family = f"{self.family.title} ({self.sign})" if self.sign else self.family.title
        trouble = f"{where} is a {family}, but {self.mask_sign.text}"
        names = {mask: name for name, mask in APPLICATIONS.items()}
        own, other = (f'"application": "{names[mask]}" ({MASKS[mask]})' for mask in (kind.mask, self.mask))
        if kind.base == "roformer":
            raise CheckpointError(f"{trouble}: write {other} or {own} into its configuration")
        remedy = "--as roformer makes a RoFormer with that mask, to train further"
        if is_by_name:
            remedy += f"; if the name is wrong, write {own} into its configuration"
        raise CheckpointError(f"{trouble}: a {self.family.title} with {MASKS[self.mask]} cannot be converted; {remedy}")


def detect(
    variables: Collection[str],
    config: Mapping[str, object],
    requested: str,
    name: str,
    source: Path,
    config_file: Path,
    *,
    key_signs: Collection[Sign] = (),
    is_keras: bool = False,
    is_pytorch: bool = False,
    mask: str | None = None,
    exported: str | None = None,
) -> Detection:
    """Return the requested family or, for "auto", the detected one.

    `variables` are the names of the tensors in the released checkpoints, `config` the fields of the configuration,
    `name` the name of the folder or archive, `key_signs` what PyTorch's key prefixes say, and `mask` what the layers of
    a Keras model show. `exported` is the family that this package wrote into the configuration.

    Raises CheckpointError if a sign does not fit the tensors, another sign or the requested family.
    """
    structure = _structure(variables, config, source, is_keras, is_pytorch)
    stated = [] if mask is None else [Sign(f"its layers have {MASKS[mask]}", masks=(mask,), level=Level.LAYERS)]
    stated += _application_sign(config, config_file)
    described = [*_decoder_sign(config, structure.families, requested), *_words_of(config), *key_signs]
    signs = [*stated, *described, *_words(name, WORDS, f"its name, {name}, says", Level.NAME)]
    families, asked = structure.families, FAMILIES.get(requested)
    has_one_position = len({FAMILIES[family].positions for family in families}) == 1

    def contradiction(sign: Sign, other: str) -> CheckpointError:
        told = [each for each in signs if each.level < Level.REQUEST or each is sign]
        convertible = (
            each
            for each in _candidates(families)
            if each.masks == FAMILIES[each.family].mask or FAMILIES[each.family].base == "roformer"
        )
        options = dict.fromkeys(each.family for each in convertible if _fits(each, told))
        options = options or (has_one_position and families)
        use = f"use {' or '.join(f'--family {family}' for family in options)}, or " if options else ""
        remedy = "rename the folder or archive" if sign.level is Level.NAME else f"correct {config_file.name}"
        trouble = f"has two signs of different models: {other}, but {sign.text}"
        if asked is not None:
            trouble = f"is not a {asked.title} (--family {requested}): {sign.text}"
        return CheckpointError(f"{source} {trouble}; {use}{remedy}")

    if asked is not None and requested not in (*families, *structure.on_request):
        sign = "its layers have biases and layer norms" if requested == "v2" else structure.sign
        raise contradiction(Sign(sign), "")
    candidates = _candidates(families)
    if asked is None and exported is not None:
        candidates, signs = _candidates((exported,)), [*stated, *described]
    elif requested in structure.on_request:  # the configuration describes what is left out
        candidates, signs = _candidates((requested,)), stated
    elif asked is not None:
        candidates = [candidate for candidate in candidates if candidate.family == requested]
    if asked is not None and (requested in structure.on_request or _has_other_masks(asked, families)):
        signs = [*signs, Sign(f"--family {requested}", masks=(asked.mask,), level=Level.REQUEST)]
    # Tensors, or an exported configuration, say where positions come from.
    has_known_positions = (asked is not None and has_one_position) or (asked is None and exported is not None)
    deciding: dict[str, list[Sign]] = {"positions": [], "masks": []}
    for sign in sorted(signs, key=lambda sign: sign.level):
        for what, before in deciding.items():
            if not (meant := getattr(sign, what)) or (what == "positions" and has_known_positions):
                continue
            left = [candidate for candidate in candidates if getattr(candidate, what) in meant]
            if left:
                candidates = left
                before.append(sign)
            elif not before or before[0].level == sign.level:
                raise contradiction(sign, before[-1].text if before else structure.sign)
    candidates = [candidate for candidate in candidates if candidate.positions == candidates[0].positions]
    first = [candidate for candidate in candidates if candidate.family == candidates[0].family]
    chosen = next((each for each in first if each.masks == FAMILIES[each.family].mask), first[0])
    # A BERT without a table of positions can be a NEZHA, but it can also be a configuration that was copied.
    is_vague = all(len(sign.positions) > 1 for sign in deciding["positions"])
    if asked is None and exported is None and chosen.positions != FAMILIES[families[0]].positions and is_vague:
        raise contradiction(deciding["positions"][0], structure.sign)
    if structure is SIM and is_pytorch and asked is None and chosen.family == "sim":
        _check_pooler(config, source, config_file)
    family = FAMILIES[chosen.family]
    mask_signs = deciding["masks"]
    found = Detection(family, None, *((chosen.masks, mask_signs[0]) if mask_signs else ()))
    if asked is not None:
        return found
    if exported is not None:
        return replace(found, sign="its configuration says so")
    texts = [structure.sign] if chosen.family == families[0] else []
    if not has_one_position:
        told = deciding["positions"]
        texts += [sign.text for sign in told if sign not in key_signs or len(told) == 1]
    is_usual_layer = mask is not None and chosen.family == families[0]  # which needs no sentence
    if found.mask == family.mask and not is_usual_layer:
        texts += [sign.text for sign in mask_signs]
    if chosen.family == PLAIN.families[0] and len(texts) == 1:
        texts.append("nothing says GPT" if is_keras else "nothing says GPT or NEZHA")
    return replace(found, sign=", and ".join(dict.fromkeys(texts)))


def _candidates(families: tuple[str, ...]) -> list[Candidate]:
    """Return each family with its own mask, and the first one with the masks that are no other family's own."""
    found = []
    for name in families:
        family = FAMILIES[name]
        same = [other for other in families if FAMILIES[other].positions == family.positions]
        free = [mask for mask in MASKS if all(FAMILIES[other].mask != mask for other in same)]
        found += [Candidate(name, family.positions, mask) for mask in (family.mask, *(free if name == same[0] else ()))]
    return found


def _has_other_masks(family: Family, families: tuple[str, ...]) -> bool:
    others = (FAMILIES[name] for name in families)
    return any(other.positions == family.positions and other.mask != family.mask for other in others)


def _fits(candidate: Candidate, signs: Iterable[Sign]) -> bool:
    return all(
        candidate.positions in (sign.positions or candidate.positions) and candidate.masks in (sign.masks or MASKS)
        for sign in signs
    )


def _structure(
    variables: Collection[str], config: Mapping[str, object], source: Path, is_keras: bool, is_pytorch: bool
) -> Structure:
    """Return what the variables show; raise CheckpointError if they are not those of a BERT.

    A RoFormer of this package may have a table of positions. Keras saves the relative positions of a NEZHA, although
    they are computed: a file without them is not one.
    """
    if "bert/embeddings/word_embeddings" not in variables:
        first = ", ".join(sorted(variables)[:3]) or "none"
        raise CheckpointError(
            f"{source} is not a RoFormer checkpoint: it lacks bert/embeddings/word_embeddings (its first variables: "
            f"{first})"
        )
    has_pooler = any(name.startswith("bert/pooler/") for name in variables)
    if wobert.POSITIONS in variables and config.get("position_encoding") != "learned":
        return POOLED_BERT if has_pooler else BERT
    if wonezha.RELATIVE_POSITIONS in variables:
        return NEZHA
    encoder = [name for name in variables if name.startswith("bert/encoder/layer_")]
    if encoder and all(name.endswith("/kernel") for name in encoder):
        return V2
    structure = SIM if has_pooler else PLAIN
    if has_pooler and is_pytorch and config.get("pooler_activation") not in (None, "linear"):
        structure = POOLED
    if is_keras:
        families = tuple(name for name in structure.families if name != wonezha.FAMILY.name)
        return structure._replace(sign=f"{structure.sign}, not even a NEZHA's, which Keras saves", families=families)
    return structure


def _application_sign(config: Mapping[str, object], config_file: Path) -> list[Sign]:
    """Return what bert4keras' field `application` says; raise CheckpointError if it has an unknown value."""
    application = config.get("application")
    if application is None:
        return []
    if not isinstance(application, str) or application not in APPLICATIONS:
        raise CheckpointError(
            f"{config_file}: application is {application!r}, but must be one of {', '.join(APPLICATIONS)}"
        )
    mask = APPLICATIONS[application]
    return [Sign(f'its configuration says {MASKS[mask]} ("application": "{application}")', masks=(mask,))]


def _decoder_sign(config: Mapping[str, object], families: Collection[str], requested: str) -> list[Sign]:
    """Return what transformers' fields say of the mask. They have no field for UniLM's, which Sim and SimBERT have.

    A class of BERT that the configuration names is a SimBERT's only on request.
    """
    decodes, named = config.get("is_decoder"), architecture_of(config)
    prefix = config.get("prefix_lm") if config.get("model_type") not in ("bert", "nezha") else None
    may_be_sim = "sim" in families or ("simbert" in families and (named is None or requested == "simbert"))
    hidden = (UNILM,) if prefix is None and may_be_sim and (named is None or named.endswith(WITHOUT_TASK)) else ()
    if prefix:
        return [Sign("its configuration says that it reads a prefix (prefix_lm)", masks=(UNILM,))]
    if decodes:
        return [Sign("its configuration says that it is causal (is_decoder)", masks=(CAUSAL, *hidden))]
    if decodes is False:
        return [Sign("its configuration says that it is not causal (is_decoder)", masks=(BIDIRECTIONAL, *hidden))]
    if named is not None and not named.endswith(DECODERS):
        return [Sign(f"its configuration names {named}", masks=(BIDIRECTIONAL, *hidden))]
    return []


def _words_of(config: Mapping[str, object]) -> list[Sign]:
    """Return what a configuration's fields of relative positions and its words say."""
    found = [
        Sign(f"its configuration sets {name}", positions=(RELATIVE,)) for name in RELATIVE_FIELDS if config.get(name)
    ]
    words = CONFIGURED_WORDS
    if config.get("position_encoding") == "learned":  # a RoFormer of this package
        words = words | {"roformer": ((), ())}
    text = " ".join(str(config.get(field, "")) for field in WORD_FIELDS)
    return found + _words(text, words, "its configuration mentions")


def _words(text: str, words: Mapping, says: str, level: Level = Level.CONFIGURATION) -> list[Sign]:
    titles = {"roformer": "RoFormer"}
    return [
        Sign(f"{says} {titles.get(word, word.upper())}", *meaning, level)
        for word, meaning in words.items()
        if word in text.lower()
    ]


def _check_pooler(config: Mapping[str, object], source: Path, config_file: Path) -> None:
    """Raise CheckpointError unless the configuration of PyTorch weights says what the pooler's activation is."""
    if config.get("pooler_activation") is None and not config.get("prefix_lm"):
        raise CheckpointError(
            f"{source} has a pooler, but {config_file.name} lacks its activation: use --family sim for RoFormer-Sim's "
            'pooler, --family roformer to leave it out, or add "pooler_activation": "tanh" for BERT\'s'
        )
