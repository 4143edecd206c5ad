"""The model card that goes with a published folder: it says what a reader's machine needs to load it."""

from pathlib import Path

from ..model_cards.kinds import why_package_is_needed
from .model_folder import read_json

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
    """Whether transformers alone refuses a folder's model or tokenizer, lacks its class, or would compute another one."""
    tokenizer = Path(directory) / "tokenizer_config.json"
    tokenizer_config = read_json(tokenizer) if tokenizer.exists() else None
    return why_package_is_needed(read_json(Path(directory) / "config.json"), tokenizer_config) is not None


def with_needs(card: str, directory: str | Path, with_code: bool) -> str:
    """A card that says what the model needs to be loaded; that section is added if it is missing."""
    if with_code:
        return card if "trust_remote_code" in card else f"{card.rstrip()}\n{HAS_CODE}"
    if needs_package(directory) and "import modeling_roformer" not in card:
        return f"{card.rstrip()}\n{NEEDS_PACKAGE}"
    return card
