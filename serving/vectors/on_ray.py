"""The vectors of a corpus, computed by the workers of a Ray."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...cluster.stream import Watch, map_on_ray
from ..errors import ServingError
from .encoder import TextEncoder, check_model, model_identity
from .texts import Shard
from .vector_folder import Made


@dataclass
class ShardWork:
    """What a worker does with a shard.

    make_encoder, make_file: see `compute_here`; model, identity: the model's folder, and what it must hold.
    """

    make_encoder: Callable[[], TextEncoder]
    make_file: Callable[..., memoryview]
    model: str
    identity: str

    def __post_init__(self) -> None:
        if model_identity(check_model(self.model)) != self.identity:
            raise ServingError(f"{self.model} is another model on a machine of the cluster: copy the folder there anew")
        self.encoder = self.make_encoder()

    def __call__(self, shard: Shard, watch: Watch) -> Made:
        """As in one process, but that it says which texts come next, and that suspects come by themselves."""
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
        data = bytes(self.make_file(shard, vectors, cut, self.encoder.max_length))
        return Made(shard.name, len(shard), shard.read, shard.left_out, cut, self.encoder.max_length, data)


def name_texts(shard: Shard, places: Sequence[int]) -> str:
    """What texts of a shard are called in an error."""
    names = [shard.ids[i] for i in places]
    return (
        f"the text {names[0]}" if len(names) == 1 else f"one of the {len(names):,} texts from {names[0]} to {names[-1]}"
    )


def compute_on_ray(
    shards: Callable[[], Iterator[Shard]],
    make_encoder: Callable[[], TextEncoder],
    make_file: Callable[..., memoryview],
    model: str,
    identity: str,
    address: str,
    workers: int | None,
    on_gpus: bool,
) -> Iterator[Made]:
    """The shards' files, in any order. Texts are read and files written where this is called, and nowhere else."""
    work = partial(ShardWork, make_encoder, make_file, model, identity)
    return map_on_ray(shards, work, name_texts, address=address, workers=workers, on_gpus=on_gpus)
