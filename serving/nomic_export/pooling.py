"""The files of sentence-transformers that state how a server makes the vector of a text, in their old field names.

vLLM and text-embeddings-inference read these. Without them, both take the first token's hidden state.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file

from modeling_roformer.conversion.sentence_transformers_files import POOLINGS

from ..errors import ServingError
from ..pooling import MODULES, TRANSFORMER

if TYPE_CHECKING:
    from torch.nn import Linear

    from modeling_roformer import RoFormerModel

    from ..sentence_vectors import SentenceVectors

MODES = {"cls": "cls_token", "mean": "mean_tokens"}
DENSE = "2_Dense"
# vLLM leaves out a Dense whose activation it does not have, with a message in its log alone.
LINEAR, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
_ORDERS = (["Pooling"], ["Pooling", "Dense"], ["Pooling", "Normalize"], ["Pooling", "Dense", "Normalize"])


def write_pooling(
    folder: Path, source: Path, vectors: "SentenceVectors", model: "RoFormerModel", max_length: int
) -> list[str]:
    """Write the list of modules of the model in `source`, and their files, and return the names of those after the
    encoder.

    Raises:
        ServingError: the servers do not have such modules.
    """
    mode, dense, activation, normalizes = (
        _of_modules(source, vectors) if vectors.parts else _own(vectors.pooling, model)
    )
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": DENSE, "Normalize": "3_Normalize"}
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), *(["Normalize"] if normalizes else [])]
    files: dict[str, object] = {
        MODULES: [
            {"idx": i, "name": str(i), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
            for i, kind in enumerate(kinds)
        ],
        TRANSFORMER: {"max_seq_length": max_length, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": model.config.hidden_size,
            **{f"pooling_mode_{name}": name == MODES[mode] for name in POOLINGS},
        },
    }
    if dense:
        files[f"{DENSE}/config.json"] = {
            "in_features": dense.in_features,
            "out_features": dense.out_features,
            "bias": dense.bias is not None,
            "activation_function": activation,
        }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if dense:
        tensors = {f"linear.{name}": tensor.contiguous() for name, tensor in dense.state_dict().items()}
        save_file(tensors, folder / DENSE / "model.safetensors", metadata={"format": "pt"})
    return kinds[1:]


def _own(pooling: str, model: "RoFormerModel") -> tuple[str, "Linear | None", str, bool]:
    """Return the mode of pooling, a linear layer with its activation, and whether vectors are normalised."""
    if pooling == "pooler":
        return "cls", model.pooler.dense, LINEAR, False
    return "mean", None, LINEAR, pooling == "bi"


def _of_modules(source: Path, vectors: "SentenceVectors") -> tuple[str, "Linear | None", str, bool]:
    """Return the same of modules that sentence-transformers saved."""
    parts = list(vectors.parts)
    kinds, settings = [type(part).__name__ for part in parts], [part.get_config_dict() for part in parts]
    dense = parts[1] if "Dense" in kinds else None
    activation = settings[1]["activation_function"] if dense else LINEAR
    unusual = [] if kinds in _ORDERS else [f"the modules {', '.join(kinds)}"]
    unusual += [f"pooling_mode {mode!r}" for mode in [settings[0].get("pooling_mode")] if mode not in MODES]
    unusual += [activation] * (activation not in (LINEAR, TANH))
    unusual += ["use_residual"] * getattr(dense, "use_residual", False)
    if unusual:
        raise ServingError(
            f"{source / MODULES} makes vectors by {', '.join(unusual)}, which vLLM and text-embeddings-inference "
            "do not have: export the model with `roformer export-onnx --vectors`"
        )
    return settings[0]["pooling_mode"], dense and dense.linear, activation, "Normalize" in kinds
