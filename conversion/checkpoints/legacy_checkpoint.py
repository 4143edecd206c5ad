"""Read checkpoints of the original framework, variable by variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...output.console import sentence_of
from ..errors import CheckpointError
from ..families.registry import RELATIVE_POSITIONS, SIGNS, choose
from ..families.relative_positions import computed_positions
from ..families.roformer_start import NOTE, start_from
from ..folder.legacy_folder import LegacyFiles
from ..folder.settings import Settings, read_settings
from ..folder.sources import open_source
from ..folder.vocabulary import Vocabulary, read_vocabulary
from .checkpoint import Checkpoint
from .exported import OWN, as_exported, exported_tokenizer, is_exported
from .plan import make_plan
from .task_layers import find_task

if TYPE_CHECKING:
    from ...tokenization.tokenizer import RoFormerTokenizer


def read_legacy(files: LegacyFiles, family: str, target: str | None, head: str, name: str) -> Checkpoint:
    """A checkpoint of the original framework; `name` is that of its folder or archive."""
    settings = read_settings(files.config)
    vocabulary = read_vocabulary(files.vocab)
    source = open_source(files)
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


def _tokenizer(
    settings: Settings, vocabulary: Vocabulary, of_the_family: dict[str, object], starts_anew: bool
) -> RoFormerTokenizer:
    from ...tokenization.tokenizer import RoFormerTokenizer

    exported = exported_tokenizer(settings)
    if starts_anew:  # a RoFormer has no maximum length
        exported.pop("model_max_length", None)
    try:
        return RoFormerTokenizer(vocabulary.ids, **{**of_the_family, **exported})
    except Exception as error:  # whatever an invalid field value causes
        if not exported:
            raise
        raise CheckpointError(f"{settings.path} does not describe a valid tokenizer: {sentence_of(error)}") from None
