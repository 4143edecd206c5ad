"""The families by name, and the detection of a checkpoint's family."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import CheckpointError
from ..folder.settings import Settings
from . import roformer_gpt, roformer_sim, roformer_v1, roformer_v2, simbert, wobert, wonezha
from .family import BIDIRECTIONAL, MASKS, Family
from .signs import APPLICATIONS, Sign, Signs, agreed, read_signs

AUTO = "auto"
FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (roformer_v1, roformer_gpt, roformer_sim, roformer_v2, wobert, simbert, wonezha)
}
TITLES = {name: family.title for name, family in FAMILIES.items()}

EXPORTED_AS = "exported_as"  # the field of the family in configurations of this package


@dataclass(frozen=True)
class Structure:
    """The structure of a checkpoint: the `sign` that the variables show, and the families that have these variables.

    Without other signs, the first family is chosen. Families `on_request` leave variables out, and are chosen only with
    --family.
    """

    sign: str
    families: tuple[str, ...]
    on_request: tuple[str, ...] = ()

    def positions(self) -> list[str]:
        """Return where positions may come from, in the order of the families."""
        return list(dict.fromkeys(FAMILIES[name].positions for name in self.families))


BERT = Structure("it has a table of positions, like BERT", ("wobert",))
POOLED_BERT = replace(BERT, families=("wobert", "simbert"))
V2 = Structure("its layers have no biases and no layer norms", ("v2",))
RELATIVE = Structure("it has a table of relative positions", ("wonezha",))
POOLED = Structure("it has a pooler and no table of positions", ("sim", "wonezha"), on_request=("roformer",))
PLAIN = Structure("it has neither a table of positions nor a pooler", ("roformer", "gpt", "wonezha"))

WORDS = "bert/embeddings/word_embeddings"


@dataclass(frozen=True)
class Choice:
    """The family of a checkpoint, and the `sign` of it, None if it was requested.

    `mask` is the mask of the signs in `mask_sign`, None if there are none. It may be another than the family's.
    `is_by_name` is true if the sign is the name of the folder or archive alone.
    """

    family: Family
    sign: str | None
    mask: str | None = None
    mask_sign: str = ""
    is_by_name: bool = False

    def check_mask(self, kind: Family, where: str) -> None:
        """Raise CheckpointError if the checkpoint's mask does not exist in `kind`, the family of the new model.

        The name of a folder or archive alone cannot give a family another mask than its own.
        """
        if self.mask in (None, kind.mask):
            return
        family = f"{self.family.title} ({self.sign})" if self.sign else self.family.title
        trouble = f"{where} is a {family}, but {self.mask_sign}"
        masks = {mask: application for application, mask in APPLICATIONS.items()}
        fields = [f'"application": "{masks[mask]}"' for mask in dict.fromkeys((self.mask, kind.mask))]
        if kind.base != "roformer":
            remedy = "--as roformer makes a RoFormer with that mask, to train further"
            if self.is_by_name:
                remedy += f"; if the name is wrong, write {fields[1]} into its configuration"
            raise CheckpointError(
                f"{trouble}: a {self.family.title} with {MASKS[self.mask]} cannot be converted; {remedy}"
            )
        if self.is_by_name:
            raise CheckpointError(
                f"{trouble}: write {fields[0]} ({MASKS[self.mask]}) or {fields[1]} ({MASKS[kind.mask]}) into its "
                "configuration"
            )
        if (kind.name, self.mask) == ("gpt", BIDIRECTIONAL):
            raise CheckpointError(f"{trouble}: use --family roformer")


def choose(
    requested: str,
    variables: Collection[str],
    settings: Settings,
    own: Mapping[str, object],
    source: str,
    where: str,
    *,
    is_keras: bool = False,
    mask: str | None = None,
) -> Choice:
    """Return the requested family or, for "auto", the detected one.

    The variables decide which families are possible. Among these, the first of the following that has a sign decides:
    the mask in the file itself (`mask`), the configuration's `application`, the requested family, the other fields of
    the configuration (only this package writes those of `own`), the name of the folder or archive (`source`).

    Raises CheckpointError, which names the checkpoint as `where`, if a sign does not fit the variables, another sign or
    the requested family.
    """
    structure = detect_structure(variables, where, is_keras)
    signs = read_signs(settings, own, source)
    exported = settings.ignored.get(EXPORTED_AS)
    if requested == AUTO and exported in FAMILIES:
        family, levels = FAMILIES[exported], [_in_file(mask), signs.application, signs.configuration]
        masks, mask_signs = _first(levels, where)
        return Choice(family, "its configuration says so", *_chosen_mask(family, masks, mask_signs))
    if requested != AUTO and requested not in (*structure.families, *structure.on_request):
        fitting = _options((*structure.families, *structure.on_request))
        sign = "its layers have biases and layer norms" if requested == "v2" else structure.sign
        raise CheckpointError(
            f"{where} is not a {FAMILIES[requested].title} (--family {requested}): {sign}; use {fitting}"
        )
    positions, position_signs = _positions(requested, structure, signs, where)
    names = [name for name in structure.families if FAMILIES[name].positions == positions]
    levels = [_in_file(mask), signs.application, signs.configuration, signs.name]
    if requested != AUTO and any(FAMILIES[name].mask != FAMILIES[requested].mask for name in names):
        levels.insert(2, [Sign(f"--family {requested}", masks=(FAMILIES[requested].mask,))])
    masks, mask_signs = _first(levels, where)
    by_mask = (name for mask in masks for name in names if FAMILIES[name].mask == mask)
    name = next(by_mask, names[0]) if requested == AUTO else requested
    mask_choice = (*_chosen_mask(FAMILIES[name], masks, mask_signs), bool(mask_signs) and mask_signs[0] in signs.name)
    if requested != AUTO:
        return Choice(FAMILIES[name], None, *mask_choice)
    texts = [structure.sign] if name == structure.families[0] else []
    texts += [sign.text for sign in position_signs]
    is_usual_layer = mask is not None and name == names[0]  # which needs no sentence
    if mask_choice[0] == FAMILIES[name].mask and not is_usual_layer:
        texts += [sign.text for sign in mask_signs]
    if name == PLAIN.families[0] and len(texts) == 1:
        texts.append("nothing says GPT" if is_keras else "nothing says GPT or NEZHA")
    return Choice(FAMILIES[name], ", and ".join(texts), *mask_choice)


def _in_file(mask: str | None) -> list[Sign]:
    return [] if mask is None else [Sign(f"its layers have {MASKS[mask]}", masks=(mask,))]


def _first(levels: Iterable[list[Sign]], where: str) -> tuple[tuple[str, ...], list[Sign]]:
    """Return the masks of the first level that has signs of masks, and these signs."""
    for signs in levels:
        if masks := agreed(signs, "masks", where):
            return masks, [sign for sign in signs if sign.masks]
    return (), []


def _chosen_mask(family: Family, masks: tuple[str, ...], signs: list[Sign]) -> tuple[str | None, str]:
    """Return the mask of a family by the masks that its signs allow, and the text of the signs."""
    mask = family.mask if family.mask in masks else next(iter(masks), None)
    return mask, ", and ".join(sign.text for sign in signs)


def _positions(requested: str, structure: Structure, signs: Signs, where: str) -> tuple[str, list[Sign]]:
    """Return where positions come from, and the signs that say so beside the variables.

    The configuration decides over the name.
    """
    possible = structure.positions()
    if requested != AUTO and len(possible) == 1:
        return possible[0], []
    stated = agreed(signs.configuration, "positions", where)
    evidence = [sign for sign in signs.configuration if sign.positions]
    named = agreed(signs.name, "positions", where)
    if common := tuple(value for value in stated or named if value in named):
        stated, evidence = common, evidence + [sign for sign in signs.name if sign.positions]
    fitting = [value for value in possible if not stated or value in stated]
    misfit = next((sign for sign in evidence if possible[0] not in sign.positions), None)
    if requested != AUTO:
        positions = FAMILIES[requested].positions
        if positions in fitting:
            return positions, evidence
        trouble = f"{where} cannot be a {FAMILIES[requested].title} (--family {requested})"
        misfit = next(sign for sign in evidence if positions not in sign.positions)
    # A BERT without a table of positions can be a NEZHA, but it can also be a configuration that was copied.
    elif fitting and (fitting[0] == possible[0] or len(stated) == 1):
        return fitting[0], evidence if len(possible) > 1 else []
    else:
        trouble = f"{where} has two signs of different models: {structure.sign}"
    remedy = "rename the folder or archive" if misfit in signs.name else "correct the configuration"
    options = [name for name in structure.families if FAMILIES[name].positions in fitting or len(possible) == 1]
    use = f"use {_options(options)}, or " if options else ""
    joint = ", but" if requested == AUTO else ":"
    raise CheckpointError(f"{trouble}{joint} {misfit.text}; {use}{remedy}")


def _options(names: Iterable[str]) -> str:
    return " or ".join(f"--family {name}" for name in names)


def detect_structure(variables: Collection[str], where: str, is_keras: bool = False) -> Structure:
    """Return the structure that the variables have; raise CheckpointError if they are not those of a BERT.

    Keras saves the relative positions of a NEZHA, although they are computed: a file without them is not one.
    """
    if WORDS not in variables:
        first = ", ".join(sorted(variables)[:3]) or "none"
        raise CheckpointError(f"{where} is not a RoFormer checkpoint: it lacks {WORDS} (its first variables: {first})")
    has_pooler = any(name.startswith("bert/pooler/") for name in variables)
    if wobert.POSITIONS in variables:
        return POOLED_BERT if has_pooler else BERT
    if wonezha.RELATIVE_POSITIONS in variables:
        return RELATIVE
    encoder = [name for name in variables if name.startswith("bert/encoder/layer_")]
    if encoder and all(name.endswith("/kernel") for name in encoder):
        return V2
    structure = POOLED if has_pooler else PLAIN
    if is_keras:
        families = tuple(name for name in structure.families if name != wonezha.FAMILY.name)
        return replace(structure, sign=f"{structure.sign}, not even a NEZHA's, which Keras saves", families=families)
    return structure
