"""The content of a published folder: its files without local paths, its code, and the card.

The card of a published folder lists what is needed to load the model.
"""

from collections.abc import Callable
from pathlib import Path

from ..files.reading import read_json
from ..model_cards.kinds import why_package_is_needed
from .model_folder import check_model_folder, shown
from .paths import without_local_paths
from .remote_code import files_with_code, missing_code

CARD = "README.md"
NEEDS_PACKAGE = """
## What it needs

transformers alone does not load this model: install the package `modeling_roformer`, and import it first.

```python
import modeling_roformer  # registers the classes with transformers
```
"""
HAS_CODE = """
## What it needs

The code that computes this model is next to it: where the package `modeling_roformer` is not installed, load the model
with `trust_remote_code=True`.
"""


def published_content(
    directory: Path, with_code: bool, tell: Callable[[str], object]
) -> tuple[dict[str, Path | bytes], Callable[[], list[str]]]:
    """Check a model folder; return its files as they are published, by name, and a function that names changed files.

    The arguments and the errors are those of `push`.
    """
    published = check_model_folder(directory)
    files: dict[str, Path | bytes] = {**published.files}
    if with_code:
        files |= files_with_code(directory)
    elif absent := missing_code(directory, files):
        raise ValueError(
            f"auto_map or custom_pipelines in {directory} name {', '.join(map(shown, absent))}, which is missing or "
            "not published: put it into the folder, or push with --with-code"
        )
    files |= without_local_paths(files)
    if note := published.note():
        tell(note)
    return files, published.changed


def with_needs(card: str, directory: Path, with_code: bool) -> str:
    """Return the card with a section on what is needed to load the model, unless the card has one."""
    if with_code:
        return card if "trust_remote_code" in card else f"{card.rstrip()}\n{HAS_CODE}"
    tokenizer_config = read_json(directory / "tokenizer_config.json", default={})
    needs_package = why_package_is_needed(read_json(directory / "config.json"), tokenizer_config) is not None
    if needs_package and "import modeling_roformer" not in card:
        return f"{card.rstrip()}\n{NEEDS_PACKAGE}"
    return card
