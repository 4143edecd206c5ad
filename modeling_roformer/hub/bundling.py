"""A model folder with its code, as `push --with-code` publishes it, for programs that do not import this package."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from modeling_roformer.files.atomic_folder import output_folder, overlap
from modeling_roformer.model_cards import card_of_folder

from .published_content import CARD, published_content, with_needs

logger = logging.getLogger(__name__)


def bundle(
    directory: str | Path, output: str | Path, *, force: bool = False, tell: Callable[[str], object] = logger.warning
) -> None:
    """Copy a saved model together with its code, so that `trust_remote_code=True` loads it without this package.

    Args:
        directory: a model folder, as for `push`. It is only read, and the same files are left out.
        output: the folder to create. It appears only when it is complete.
        force: replace the saved model at `output`, in one step.
        tell: called with a sentence that names the files that are left out, other than hidden ones.

    Raises:
        ValueError: the folder is not a complete model, or one folder is inside the other.
        FileExistsError: `output` is not empty, and may not be replaced.
    """
    directory, output = Path(directory), Path(output)
    if overlap(directory, output):
        raise ValueError(f"{output} and {directory} are the same folder, or one is inside the other: name another one")
    with output_folder(output, force=force) as folder:
        files = published_content(directory, True, tell)
        card = directory / CARD
        text = card.read_text(encoding="utf-8") if card.exists() else card_of_folder(directory)
        files[CARD] = with_needs(text, directory, with_code=True).encode("utf-8")
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                shutil.copyfile(content, path)
