"""Loading of a model whose head is new, as training expects."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("transformers.modeling_utils")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"^(\S+) +\| (MISSING|MISMATCH|UNEXPECTED|CONVERSION)\b", re.MULTILINE)
_BACKBONE = re.compile(r"(\w+\.)?(embeddings|encoder|decoder|layers?|pooler)\.")


@contextmanager
def new_head() -> Iterator[None]:
    """Hide transformers' load report in a block if it only lists the weights of a new head, or of one for other labels.

    >>> with new_head():
    ...     model = AutoModelForSequenceClassification.from_pretrained("roformer-mini-zh", num_labels=3)
    """
    _LOGGER.addFilter(_says_more)
    try:
        yield
    finally:
        _LOGGER.removeFilter(_says_more)


def _says_more(record: logging.LogRecord) -> bool:
    """Return whether a record is another message than a report of a new head."""
    rows = _ROW.findall(_COLOUR.sub("", record.getMessage()))
    is_of_head = [status in ("MISSING", "MISMATCH") and not _BACKBONE.match(name) for name, status in rows]
    return not (rows and all(is_of_head))
