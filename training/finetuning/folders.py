"""Labels that are names of folders, as in THUCNews: `体育/0.txt`."""

from pathlib import Path

import datasets

from modeling_roformer.data import find_files, has_text, read_batches
from modeling_roformer.data.batches import DocumentBatch
from modeling_roformer.data.reader import as_document
from modeling_roformer.output.progress import tracked

from ..errors import TrainingError, raises_training_error


@raises_training_error()
def load_folders(folder: str | Path) -> datasets.Dataset:
    """Load text files as `text`, each with the name of its folder as `label`, in the order of their paths.

    Args:
        folder: a folder with a folder for each label, which has the text files of this label.

    Raises a TrainingError that names the file: it lies elsewhere, is not text in UTF-8, or is blank.
    """
    top = Path(folder)
    if not top.is_dir():
        raise TrainingError(f"{folder} is not a folder; expected one with a folder of text files for each label")
    texts, labels = [], []
    for file in tracked(find_files([top]), f"reading {folder}"):
        parents = file.relative_to(top).parts[:-1]
        if len(parents) != 1:
            raise TrainingError(f"{file} is not in a folder of its label; expected {top / 'LABEL' / file.name}")
        texts.append(_text_of(file))
        labels.append(parents[0])
    return datasets.Dataset.from_dict({"text": texts, "label": labels})


def _text_of(file: Path) -> str:
    text = ""
    for batch in as_document(read_batches(file)):
        if not isinstance(batch, DocumentBatch):
            raise TrainingError(f"{file} is a table or JSON; expected text files in the folders of labels")
        text = batch.text()
    if not has_text(text):
        raise TrainingError(f"{file} is empty: write its text into it, or remove it")
    return text
