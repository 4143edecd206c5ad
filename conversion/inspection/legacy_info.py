"""Describe a legacy checkpoint: its configuration, its vocabulary and the index of its variables."""

from collections import Counter
from math import prod
from pathlib import Path

from ...model_cards.cards import is_published
from ...model_cards.releases import RELEASES
from ..checkpoints.legacy_checkpoint import match_legacy, recognise
from ..checkpoints.task_layers import NONE, find_task
from ..errors import CheckpointError
from ..families.family import extra
from ..families.registry import FAMILIES, check_supported
from ..folder.legacy_folder import VOCABULARY, is_hdf5
from ..folder.settings import Settings, read_settings
from ..folder.vocabulary import read_vocabulary
from ..formats.dtypes import FLOATS
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source
from ..formats.tensor_bundle import TensorBundle
from .checkpoint_info import CheckpointInfo
from .saved_info import generation_notes, vocabulary_info


def legacy_info(
    folder: Path, config_file: Path, weights: str, shown: str, name: str, unpacked: bool = True
) -> CheckpointInfo:
    """Describe the checkpoint of the original framework in `folder`; `weights` is its HDF5 file or its prefix."""
    notes: list[str] = []
    source, kind = _open(folder / weights, unpacked, notes)
    check_supported(source.entries, shown)
    settings = read_settings(config_file)
    values = settings.values
    vocabulary = None
    try:
        if (folder / VOCABULARY).is_file():
            vocabulary = read_vocabulary(folder / VOCABULARY)
        else:
            notes.append(f"{VOCABULARY} is missing")
    except ValueError as error:
        notes.append(str(error))
    is_whole, match = not notes, None
    if vocabulary is not None and not _lacks_names(source):
        try:
            match = match_legacy(source, settings, vocabulary, name)
        except CheckpointError as error:
            notes.append(str(error))
    if match is None:
        family, sign = (None, None) if _lacks_names(source) else _recognised(source, settings, name)
        extras = {entry: what for entry in source.entries if (what := extra(entry, source.entries)) is not None}
        used = [entry for entry in source.entries if entry not in extras and source.entries[entry].dtype in FLOATS]
    else:
        source, family, sign = match.source, match.found.name, match.sign
        extras = {entry: what for what, names in match.plan.extras.items() for entry in names}
        used = [weight.variable for weight in match.plan.weights]
    dtypes: dict[str, int] = {}
    for entry in map(source.entries.get, used):
        dtypes[entry.dtype] = dtypes.get(entry.dtype, 0) + prod(entry.shape)
    word_level = vocabulary is not None and vocabulary.word_level
    known = FAMILIES.get(family)
    title = known and (known.title if vocabulary is None else known.title_of(vocabulary))
    loads_with = "bert4keras" if known and is_whole else None
    notes += generation_notes(folder)
    if match is not None and not notes:
        loads_with = "bert4keras; `roformer convert` turns it into a saved model"
    return CheckpointInfo(
        path=shown,
        kind=kind,
        family=title if match is None else match.title,
        sign=sign,
        task=match.rows.get("task layer") if match is not None else None,
        layers=values["num_hidden_layers"],
        hidden_size=values["hidden_size"],
        attention_heads=values["num_attention_heads"],
        feed_forward_size=values["intermediate_size"],
        embedding_size=None if values["embedding_size"] == values["hidden_size"] else values["embedding_size"],
        activation=values["hidden_act"],
        parameters=sum(dtypes.values()) or None,
        dtypes=dtypes,
        vocabulary=vocabulary_info(vocabulary.ids) if vocabulary else {"entries": values["vocab_size"]},
        positions=_positions(family, values),
        trained_length=_trained_length(family, values, word_level, name),
        loads_with=loads_with,
        left_out=dict(Counter(extras.values())),
        notes=notes,
    )


def _lacks_names(source: Source) -> bool:
    """Return whether the names of a tf.keras model's layers are in a data file that was not read."""
    return type(source) is TensorBundle and source.object_graph is not None


def _recognised(source: Source, settings: Settings, name: str) -> tuple[str | None, str | None]:
    """Return the family of a checkpoint that cannot be converted as it is, and the sign, if they are known."""
    try:
        choice = recognise(source, find_task(source, NONE), settings, name)
    except CheckpointError:
        return None, None
    return choice.family.name, choice.sign


def _open(weights: Path, unpacked: bool, notes: list[str]) -> tuple[Source, str]:
    """Return the variables, and the kind of their files; problems with their data are added to `notes`."""
    if is_hdf5(weights):
        return KerasHDF5(weights), "Keras weights, HDF5"
    bundle = TensorBundle(weights, data=False)
    kind = "TensorFlow checkpoint"
    if not unpacked:
        if bundle.object_graph is not None:
            notes.append("the names of its layers are in a data file, which is not read from inside the .zip")
        return bundle, kind
    try:
        if bundle.object_graph is not None:
            return KerasBundle(weights), "tf.keras weights"
        bundle.check_shards()
    except CheckpointError as error:
        notes.append(str(error))
    return bundle, kind


def _positions(family: str | None, values: dict) -> dict[str, object]:
    if family is None:
        return {}
    if family in ("wobert", "simbert"):
        return {"type": "a table", "length": values["max_position_embeddings"]}
    return {"type": "relative"} if family == "wonezha" else {"type": "rotary", "theta": 10000.0}


def _trained_length(family: str | None, values: dict, word_level: bool, name: str) -> int | None:
    if family in ("wobert", "simbert"):
        return values["max_position_embeddings"]
    for part in name.split("/"):  # the names of the archive and of the folder in it
        published = part.removesuffix(".zip")
        if published in RELEASES and RELEASES[published].kind == family and is_published(published, values, word_level):
            return RELEASES[published].trained_length
    return None
