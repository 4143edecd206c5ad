"""Vectors of a corpus, computed by Ray workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...cluster.stream import Watch
from ..errors import ServingError
from ..pooling import check_model
from .encoder import Rows, TextEncoder, model_identity
from .texts import Shard
from .vector_folder import Made


@dataclass
class ShardWork:
    """Work of a Ray worker on a shard; `make_encoder` and `make_file` as in `compute_here`."""

    make_encoder: Callable[[], TextEncoder]
    make_file: Callable[..., Made]
    model: str  # folder
    identity: str  # of the model

    def __post_init__(self) -> None:
        if model_identity(check_model(self.model)) != self.identity:
            raise ServingError(
                f"{self.model} is another model on a machine of the cluster: copy the folder there again"
            )
        self.encoder = self.make_encoder()

    def __call__(self, shard: Shard, watch: Watch) -> Made:
        """Compute a shard. Report each batch before it runs, and run suspects one at a time."""
        alone = sorted(watch.suspects)
        found = [self._rows(shard, [i for i in range(len(shard)) if i not in alone], watch)]
        for i in alone:
            watch([i])
            found.append(self._rows(shard, [i], watch))
        order = np.argsort([i for rows, _ in found for i in rows.of], kind="stable")
        parts = {
            name: [part for rows, _ in found for part in getattr(rows, name)]
            for name in ("ids", "texts", "tokens", "of")
        }
        rows = Rows(
            **{name: [part[i] for i in order] for name, part in parts.items()}, cut=sum(rows.cut for rows, _ in found)
        )
        vectors = np.concatenate([vectors for _, vectors in found])[order]
        made = self.make_file(shard, rows, vectors, self.encoder.max_length)
        return replace(made, data=bytes(made.data))  # a memoryview cannot be sent

    def _rows(self, shard: Shard, places: list[int], watch: Watch) -> tuple[Rows, np.ndarray]:
        """Return the rows of some texts of a shard, and their vectors."""
        rows = self.encoder.rows([shard.ids[i] for i in places], [shard.texts[i] for i in places])
        rows = replace(rows, of=[places[i] for i in rows.of])
        vectors = np.empty((len(rows.ids), self.encoder.width), dtype=np.float32)
        for batch in self.encoder.batches(rows.tokens):
            watch(sorted({rows.of[i] for i in batch}))
            names = [rows.ids[i] for i in batch]
            vectors[batch] = self.encoder.pooled([rows.tokens[i] for i in batch], names).cpu().numpy()
        return rows, vectors


def name_texts(shard: Shard, places: Sequence[int]) -> str:
    """Return a name for some texts of a shard, for errors."""
    first, last = shard.ids[places[0]], shard.ids[places[-1]]
    return f"the text {first}" if len(places) == 1 else f"one of the {len(places):,} texts from {first} to {last}"
