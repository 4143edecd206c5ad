"""Compare a converted folder with its source, loading it as users do."""

from pathlib import Path

import numpy as np
import torch

from modeling_roformer.output.console import no_transformers_bar
from modeling_roformer.output.progress import byte_progress

from .checkpoints.plan import Plan
from .errors import CheckpointError
from .formats.dtypes import cast
from .formats.source import Source


def verify_weights(folder: Path, source: Source, plan: Plan, dtype: str, progress: bool = False) -> None:
    """Load the folder with transformers; raise CheckpointError unless every value equals the source's, bit for bit."""
    from modeling_roformer.registration import public_names, registered_transformers

    registered_transformers.AutoTokenizer.from_pretrained(folder)
    has_pooler = any("pooler." in weight.key for weight in plan.weights)
    with no_transformers_bar():
        name = registered_transformers.AutoConfig.from_pretrained(folder).architectures[0]
        architecture = getattr(public_names, name, None) or getattr(registered_transformers, name)
        # transformers' bare BERT gets a new pooler unless it is told that there is none.
        options = {} if name != "BertModel" or has_pooler else {"add_pooling_layer": False}
        model, info = architecture.from_pretrained(folder, dtype="auto", output_loading_info=True, **options)
    trouble = [f"{what.replace('_', ' ')}: {sorted(keys)}" for what, keys in info.items() if keys]
    if trouble:
        raise CheckpointError(f"the converted model does not load completely: {'; '.join(trouble)}")
    state = model.state_dict()
    with byte_progress(progress) as bar:
        task = bar.add_task("verifying", total=sum(source.entries[weight.variable].size for weight in plan.weights))
        for weight in plan.weights:
            entry = source.entries[weight.variable]
            original = source.read(weight.variable)
            expected = cast(original.T if weight.transpose else original, entry.dtype, dtype)
            stored = state[weight.key]
            stored = stored.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else stored.numpy()
            if stored.shape != expected.shape or stored.tobytes() != np.ascontiguousarray(expected).tobytes():
                raise CheckpointError(f"the converted weight {weight.key} differs from the variable {weight.variable}")
            bar.advance(task, entry.size)
