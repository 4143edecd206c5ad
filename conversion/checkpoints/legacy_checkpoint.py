"""Read checkpoints of the original framework, variable by variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...output.console import sentence_of
from ..errors import CheckpointError
from ..families.registry import RELATIVE_POSITIONS, SIGNS, choose
from ..families.roformer_start import NOTE, start_from
from ..families.wonezha import computed_positions
from ..folder.legacy_folder import INDEX, LegacyFiles, is_hdf5
from ..folder.settings import Settings, read_settings
from ..folder.vocabulary import Vocabulary, read_vocabulary
from ..formats.keras_bundle import KerasBundle
from ..formats.keras_hdf5 import KerasHDF5
from ..formats.source import Source
from ..formats.tensor_bundle import TensorBundle
from .checkpoint import Checkpoint, make_plan
from .exported import OWN, as_exported, exported_tokenizer, is_exported
from .task_layers import find_task

if TYPE_CHECKING:
    from ...tokenization.tokenizer import RoFormerTokenizer


def read_legacy(files: LegacyFiles, family: str, target: str | None, head: str, name: str) -> Checkpoint:
    """Read a checkpoint of the original framework; `name` is that of its folder or archive."""
    settings = read_settings(files.config)
    vocabulary = read_vocabulary(files.vocab)
    source = _open(files)
    task = find_task(source, head)
    found, sign = choose(task.family(family), task.of_the_family(source.entries), settings, name, str(source.path))
    kind = as_exported(found, settings) if target is None else start_from(found, target, str(source.path))
    config = kind.config(settings, vocabulary)
    task_head = task.head(kind, settings, vocabulary, str(source.path))
    if task_head is not None:
        task_head.configure(config)
    title = found.title_of(vocabulary)
    left_out = {**task.left_out, **computed_positions(source, settings)}
    known = {*SIGNS, *RELATIVE_POSITIONS, *(OWN if is_exported(settings) else ())}
    return Checkpoint(
        family=found.name,
        title=title,
        sign=sign,
        source=source,
        vocabulary=vocabulary,
        tokenizer=_tokenizer(settings, vocabulary, kind.tokenizer(config), starts_anew=target is not None),
        config=config,
        plan=make_plan(source, kind, config, settings, vocabulary, task_head, left_out),
        note=None if target is None else NOTE.format(title=title),
        ignored_settings=sorted(settings.ignored.keys() - known),
        rows=task.rows(task_head),
    )


def _open(files: LegacyFiles) -> Source:
    """Open the weights; raise CheckpointError if their format is not supported."""
    path = files.weights
    if path.name.endswith(INDEX):
        path = path.with_name(path.name.removesuffix(INDEX))
    elif path.is_file():
        if is_hdf5(path):
            return KerasHDF5(path)
        raise CheckpointError(f"{path} is not in a supported format: it does not start like Keras' HDF5")
    bundle = TensorBundle(path)
    return bundle if bundle.object_graph is None else KerasBundle(path)


def _tokenizer(
    settings: Settings, vocabulary: Vocabulary, of_the_family: dict[str, object], starts_anew: bool
) -> RoFormerTokenizer:
    from ...tokenization.tokenizer import RoFormerTokenizer

    exported = exported_tokenizer(settings)
    if starts_anew:  # a RoFormer has no length limit
        exported.pop("model_max_length", None)
    try:
        return RoFormerTokenizer(vocabulary.ids, **{**of_the_family, **exported})
    except Exception as error:  # any error that an invalid field value causes
        if not exported:
            raise
        raise CheckpointError(f"{settings.path} does not describe a valid tokenizer: {sentence_of(error)}") from None
