"""The vocabulary of a legacy checkpoint: its entries, and whether they are words or characters."""

from dataclasses import dataclass
from pathlib import Path

from modeling_roformer.tokenization.vocabulary import VocabularyError, has_words, read_vocab_txt

from ..errors import CheckpointError


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a vocab.txt with their ids, which are their line numbers from 0."""

    path: Path
    ids: dict[str, int]

    @property
    def words(self) -> int:
        """The number of entries of two or more Han characters."""
        return sum(has_words([entry]) for entry in self.ids)

    @property
    def word_level(self) -> bool:
        """True if there is such an entry: then the model was trained on texts segmented into words."""
        return has_words(self.ids)

    @property
    def is_cased(self) -> bool:
        """True if a capital letter is an entry: no lower-cased text has one."""
        return "A" in self.ids

    def id_of(self, entry: str) -> int:
        """Return the id of an entry that the vocabulary must have."""
        if entry not in self.ids:
            raise CheckpointError(f"{self.path} has no entry {entry}")
        return self.ids[entry]

    def check_special(self, architecture: str) -> None:
        """Raise CheckpointError if a special entry is missing ([MASK] only of masked language models), or padding
        is not id 0, which bert4keras masks."""
        for entry in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *["[MASK]"] * architecture.endswith("ForMaskedLM")):
            self.id_of(entry)
        if self.ids["[PAD]"]:
            raise CheckpointError(f"{self.path} must begin with [PAD], as bert4keras masks id 0: use the model's own")

    def check_padding(self, rows: int, config: Path, weights: Path, padded: bool) -> list[str]:
        """Return the warnings on embeddings with more rows than there are entries; `config` also has their number.

        Raise CheckpointError unless the user says that they are `padded`: a vocab.txt that lost a line looks the same,
        and shifts every id behind it.
        """
        entries = len(self.ids)
        if entries >= rows:
            return []
        counts = (
            f"{self.path} has {entries:,} entries, but vocab_size in {config.name} and the embedding matrix in "
            f"{weights.name} have {rows:,}"
        )
        if not padded:
            raise CheckpointError(
                f"{counts}: restore the lines that the vocabulary lost, or use --padded-vocabulary if the last "
                f"{rows - entries:,} rows never had an entry"
            )
        return [f"{counts}: if the vocabulary lost a line, all ids behind it are wrong"]


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocab.txt as the tokenizer does; raise CheckpointError if it is not a vocabulary."""
    try:
        ids = read_vocab_txt(path)
    except VocabularyError as error:
        raise CheckpointError(str(error).removesuffix(".")) from None
    if not ids:
        raise CheckpointError(f"{path} is empty")
    return Vocabulary(path, ids)
