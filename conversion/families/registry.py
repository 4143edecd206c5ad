"""The families by name, and the detection of a checkpoint's family."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from ..errors import CheckpointError
from ..folder.settings import Settings
from . import roformer_gpt, roformer_sim, roformer_v1, roformer_v2, simbert, wobert, wonezha
from .family import Family

AUTO = "auto"
FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (roformer_v1, roformer_gpt, roformer_sim, roformer_v2, wobert, simbert, wonezha)
}
TITLES = {name: family.title for name, family in FAMILIES.items()}

# The configuration fields that identify a family.
SIGNS = ("model_type", "architectures", "model", "is_decoder", "application")
EXPORTED_AS = "exported_as"  # the field of the family in configurations of this package
RELATIVE_POSITIONS = ("use_relative_position", "max_relative_position")


@dataclass(frozen=True)
class Structure:
    """The family that the variables indicate, the sign for it, and other families with the same variables."""

    family: str
    sign: str
    others: tuple[str, ...] = ()


BERT = Structure("wobert", "it has a table of positions, like BERT")
POOLED_BERT = replace(BERT, others=("simbert",))
V2 = Structure("v2", "its layers have no biases and no layer norms")
RELATIVE = Structure("wonezha", "it has a table of relative positions")
POOLED = Structure("sim", "it has a pooler and no table of positions", ("roformer", "wonezha"))
PLAIN = Structure("roformer", "it has neither a table of positions nor a pooler", ("gpt", "wonezha"))

_WORDS_OF_FAMILIES = (("nezha", "wonezha"), ("gpt", "gpt"), ("simbert", "simbert"))  # words in configurations and names
WORDS = "bert/embeddings/word_embeddings"
_GAU = ("/gau/", "-GatedAttentionUnit/")  # in names of GAU-alpha's variables, and of its layers in Keras


def choose(
    name: str, variables: Collection[str], settings: Settings, source: str, where: str
) -> tuple[Family, str | None]:
    """Return the requested family or, for "auto", the detected one and its sign.

    `source` is the name of the folder or archive. Raises CheckpointError, which names the checkpoint as `where`, if the
    family has other variables.
    """
    if name == AUTO:
        name, sign = recognise(variables, settings, source, where)
        return FAMILIES[name], sign
    found = structure(variables, where)
    if name != found.family and name not in found.others:
        fitting = " or ".join(f"--family {other}" for other in (found.family, *found.others))
        sign = "its layers have biases and layer norms" if name == "v2" else found.sign
        raise CheckpointError(f"{where} is not a {FAMILIES[name].title} (--family {name}): {sign}; use {fitting}")
    return FAMILIES[name], None


def recognise(variables: Collection[str], settings: Settings, source: str, where: str) -> tuple[str, str]:
    """Return the family's name, and the sign that identifies it.

    RoFormer, RoFormer-GPT and WoNEZHA have the same variables: the configuration decides, then the name of the folder
    or archive; without either, the checkpoint is taken for a RoFormer. So it is with BERT and SimBERT. WoNEZHA may also
    have a pooler.
    """
    found = structure(variables, where)
    exported = settings.ignored.get(EXPORTED_AS)
    if isinstance(exported, str) and exported in FAMILIES:
        return exported, "its configuration says so"
    named, sign = _named_family(settings, source)
    if named in (found.family, *found.others) and not (named == "roformer" and found is POOLED):
        return named, sign
    if found is PLAIN:
        return found.family, f"{found.sign}, and nothing says GPT or NEZHA"
    return found.family, found.sign


def structure(variables: Collection[str], where: str) -> Structure:
    """Return the structure that the variables have; raise CheckpointError if they are not those of a BERT."""
    check_supported(variables, where)
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
    return POOLED if has_pooler else PLAIN


def check_supported(variables: Collection[str], where: str) -> None:
    """Raise CheckpointError if the variables are those of a known kind of model that is not supported."""
    if any(part in name for name in variables for part in _GAU):
        raise CheckpointError(
            f"{where} is a GAU model (gated attention units, as in GAU-alpha), which is not supported"
        )


def _named_family(settings: Settings, source: str) -> tuple[str | None, str]:
    """Return the family named by the configuration or by the name of the folder or archive, and the sign."""
    fields = settings.ignored
    for name in RELATIVE_POSITIONS:
        if fields.get(name):
            return "wonezha", f"its configuration sets {name}"
    spoken = " ".join(str(fields.get(name, "")) for name in SIGNS).lower()
    for word, family in _WORDS_OF_FAMILIES:
        if word in spoken:
            return family, f"its configuration mentions {word.upper()}"
    if "nezha" in source.lower() and fields.get("model_type") != "roformer":  # before the mask, which others have, too
        return "wonezha", f"its name, {source}, says so"
    if fields.get("application") == "unilm":
        return "simbert", "its configuration says that it has UniLM's mask"
    if fields.get("is_decoder") is True or fields.get("application") == "lm":
        return "gpt", "its configuration says that it is causal"
    if fields.get("model_type") == "roformer" and fields.get("is_decoder") is False:
        return "roformer", "its configuration says so"
    for word, family in _WORDS_OF_FAMILIES:
        if word in source.lower():
            return family, f"its name, {source}, says so"
    return None, ""
