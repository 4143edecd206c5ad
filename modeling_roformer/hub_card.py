"""The model card that goes with a published folder: it says what a reader's machine needs to load it."""

from collections.abc import Iterable
from pathlib import Path

import transformers
from safetensors import safe_open
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .model_cards import card_for
from .model_folder import read_json
from .tokenization.characters import is_cjk
from .tokenization.vocabulary import has_words, read_vocabulary

NEEDS_PACKAGE = """
## What it needs

transformers alone does not load this model: install the package `modeling_roformer`, and import it first.

```python
import modeling_roformer  # registers the classes with transformers
```
"""
HAS_CODE = """
## What it needs

The code that computes this model is in this repository: where the package `modeling_roformer` is not installed, load it
with `trust_remote_code=True`.
"""


def needs_package(directory: str | Path) -> bool:
    """Whether transformers alone refuses the model or the tokenizer in a folder, or lacks its class.

    transformers' own tables are asked; what this package adds to them does not count.
    """
    config = read_json(Path(directory) / "config.json")
    if config.get("model_type") not in CONFIG_MAPPING_NAMES:
        return True
    tokenizer = Path(directory) / "tokenizer_config.json"
    classes = [read_json(tokenizer).get("tokenizer_class")] if tokenizer.exists() else []
    architectures = config.get("architectures")
    classes += architectures if isinstance(architectures, list) else []
    return any(isinstance(name, str) and not hasattr(transformers, name) for name in classes)


def with_needs(card: str, directory: str | Path, with_code: bool) -> str:
    """A card that says what the model needs to be loaded, where it did not say so."""
    if with_code:
        return card if "trust_remote_code" in card else f"{card.rstrip()}\n{HAS_CODE}"
    if needs_package(directory) and "import modeling_roformer" not in card:
        return f"{card.rstrip()}\n{NEEDS_PACKAGE}"
    return card


def new_card(directory: str | Path) -> str:
    """A card made from what a folder says of itself."""
    directory = Path(directory)
    parameters, dtypes = 0, set()
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "np") as weights:
            for name in weights.keys():  # noqa: SIM118, a safetensors file is no dict
                tensor = weights.get_slice(name)
                size = 1
                for length in tensor.get_shape():
                    size *= length
                parameters += size
                dtypes.add(tensor.get_dtype())
    vocabulary = _vocabulary(directory)
    return card_for(
        directory.resolve().name,
        read_json(directory / "config.json"),
        has_words(vocabulary),
        parameters=parameters,
        dtype=", ".join(sorted(dtypes)).replace("BF", "bfloat").replace("F", "float"),
        language="zh" if any(is_cjk(entry) for entry in vocabulary if len(entry) == 1) else None,
    )


def _vocabulary(directory: Path) -> Iterable[str]:
    if (directory / "vocab.txt").exists():
        return read_vocabulary(directory / "vocab.txt")
    model = read_json(directory / "tokenizer.json").get("model")
    return model["vocab"] if isinstance(model, dict) and isinstance(model.get("vocab"), dict) else {}
