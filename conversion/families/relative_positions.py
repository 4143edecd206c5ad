"""NEZHA's table of relative positions, which Keras saves with the weights although it is computed and never trained."""

import numpy as np

from ..errors import CheckpointError
from ..folder.settings import Settings
from ..formats.dtypes import cast
from ..formats.source import Source
from .wonezha import MAX_RELATIVE_POSITION

RELATIVE_POSITIONS = "bert/embeddings/relative_position_embeddings"
TITLE = "relative positions, which are computed"
TOLERANCE = 1e-4  # Keras' own table comes from angles in float32


def computed_positions(source: Source, settings: Settings) -> dict[str, str]:
    """The table, if the source has one, with what the summary calls it.

    Raises CheckpointError unless it is the one that NEZHA computes here.
    """
    entry = source.entries.get(RELATIVE_POSITIONS)
    if entry is None:
        return {}
    import torch

    from ...nezha_attention import relative_position_embeddings

    max_relative_position = settings.size("max_relative_position", MAX_RELATIVE_POSITION)
    head_dim = settings.values["hidden_size"] // settings.values["num_attention_heads"]
    expected, _ = relative_position_embeddings(torch.arange(1)[None], head_dim, max_relative_position)
    if entry.shape != tuple(expected.shape):
        raise CheckpointError(
            f"{source.path} does not match {settings.path.name}: its relative positions have shape {entry.shape}, but "
            f"the configuration implies {tuple(expected.shape)}"
        )
    found = cast(source.read(RELATIVE_POSITIONS), entry.dtype, "float64")
    if not np.abs(found - expected.numpy()).max() < TOLERANCE:
        raise CheckpointError(f"{source.path} has relative positions that are not NEZHA's sines and cosines")
    return {RELATIVE_POSITIONS: TITLE}
