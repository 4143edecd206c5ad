"""Reading of texts and tables: the files of a corpus or a data set, their rows, and the texts in them.

`files.py` finds files, `formats.py` has their formats, `reader.py` alone opens them, `batches.py` has their rows,
`values.py` makes texts of values, `sources.py` opens several files and data sets, `texts.py` streams the texts of a
corpus and `records.py` whole rows, `data_sets.py` makes a `datasets.Dataset`, and `code_digest.py` tells its caches
whose code made them.
"""

from .batches import Batch
from .errors import DataError
from .files import find_files, may_be_on_hub
from .reader import first_row, read_batches
from .texts import Texts, batch_texts, read_texts
from .values import has_text, text_of

__all__ = [
    "Batch",
    "DataError",
    "Texts",
    "batch_texts",
    "find_files",
    "first_row",
    "has_text",
    "may_be_on_hub",
    "read_batches",
    "read_texts",
    "text_of",
]
