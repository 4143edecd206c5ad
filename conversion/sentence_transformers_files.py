"""The files that sentence-transformers reads next to a model, for vectors from a pooler over [CLS].

The library does not use a model's own pooler. It picks the first hidden state and applies a dense layer, whose weights
are therefore written again, in a folder of their own. All versions of the library that run with transformers 5 can read
these names and fields.
"""

import json
import shutil
from pathlib import Path

from modeling_roformer.pooler_copy import DENSE, has_pooler_copy, write_pooler_copy

MODULES = "modules.json"
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
# Rotary positions are computed, so texts need no truncation; this is transformers' value for no limit.
NO_LIMIT = int(1e30)


def write_sentence_transformers_files(folder: str | Path) -> None:
    """Make a converted RoFormer-Sim, whose pooler is linear, loadable with `SentenceTransformer(folder)`."""
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    width = config["hidden_size"]
    longest = config["max_position_embeddings"] if config.get("position_encoding") == "learned" else NO_LIMIT
    modules = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    files = {
        MODULES: [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (name, path) in enumerate(modules.items())
        ],
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "sentence_bert_config.json": {"max_seq_length": longest, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            **{f"pooling_mode_{name}": name == "cls_token" for name in POOLINGS},
        },
        "2_Dense/config.json": {
            "in_features": width,
            "out_features": width,
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_pooler_copy(folder)


def copy_sentence_transformers_files(source: Path, folder: Path) -> None:
    """Copy the modules after the encoder from a folder of sentence-transformers; write a copy of the pooler again."""
    for name in (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    for module in json.loads((source / MODULES).read_text(encoding="utf-8")):
        path = (source / module["path"]).resolve()
        if path.parent == source.resolve() and path.is_dir():  # others are the encoder, or lie outside
            shutil.copytree(path, folder / path.name)
    if has_pooler_copy(source, source / DENSE):  # the folder may have another dtype
        write_pooler_copy(folder)
