"""Vectors of a corpus, computed by Ray workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...cluster.stream import Watch
from ..errors import ServingError
from .encoder import TextEncoder, check_model, model_identity
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
        vectors = np.empty((len(shard), self.encoder.width), dtype=np.float32)
        alone = set(watch.suspects)
        rest = [i for i in range(len(shard)) if i not in alone]
        ids, cut = self.encoder.tokenize_and_count([shard.texts[i] for i in rest])
        for batch in self.encoder.batches(ids):
            places = [rest[i] for i in batch]
            watch(places)
            names = [shard.ids[i] for i in places]
            vectors[places] = self.encoder.pooled([ids[i] for i in batch], names).cpu().numpy()
        for i in sorted(alone):
            watch([i])
            ids, is_cut = self.encoder.tokenize_and_count([shard.texts[i]])
            vectors[i] = self.encoder.vectors(ids, [shard.ids[i]])[0]
            cut += is_cut
        made = self.make_file(shard, vectors, cut, self.encoder.max_length)
        return replace(made, data=bytes(made.data))  # a memoryview cannot be sent


def name_texts(shard: Shard, places: Sequence[int]) -> str:
    """Return a name for some texts of a shard, for errors."""
    first, last = shard.ids[places[0]], shard.ids[places[-1]]
    return f"the text {first}" if len(places) == 1 else f"one of the {len(places):,} texts from {first} to {last}"
