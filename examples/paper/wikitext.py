"""Prepare WikiText for pre-training: articles for training, held-out articles, and a WordPiece vocabulary.

    python examples/paper/wikitext.py wiki.train.tokens --output english
    python examples/pretrain_mlm.py STAGES.yaml --corpus english/train.txt --eval english/held_out.txt \
        --tokenizer english/vocab.txt --output run

Each article becomes a line. WikiText's own marks are removed: the " @" and "@ " around hyphens and commas, and the
" = " around headings. The vocabulary is lower-case WordPiece, as BERT's, and has every character of the training
articles.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

from modeling_roformer.data import read_texts
from modeling_roformer.files import output_folder
from modeling_roformer.training import ScriptParser, TrainingError, exit_on_error

TITLE = re.compile(r" ?= (?!=)(.+) = *\n?")
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="WikiText, also as .gz")
    parser.add_argument("--output", type=Path, required=True, help="folder for train.txt, held_out.txt and vocab.txt")
    parser.add_argument("--size", type=int, default=8000, help="maximum number of entries of the vocabulary")
    parser.add_argument("--held-out", type=int, default=10, metavar="N", help="hold out every Nth article")
    chosen = parser.parse_args()
    if chosen.held_out < 2:
        parser.error(f"--held-out is {chosen.held_out}; expected at least 2")
    return chosen


def articles(path: Path) -> Iterator[str]:
    """Yield each article as one line. Text before the first title is an article too."""
    lines: list[str] = []
    for _, line in read_texts([path]):
        if TITLE.fullmatch(line) and lines:
            yield " ".join(lines)
            lines = []
        if text := re.sub(r" @(.)@ ", r"\1", line).strip(" =\n"):
            lines.append(text)
    if lines:
        yield " ".join(lines)


def word_pieces(texts: list[str], size: int) -> set[str]:
    """Return a vocabulary of lower-case WordPiece with the special tokens, the same in every run."""
    tokenizer = BertWordPieceTokenizer()
    # Of equally frequent pairs, the trainer merges the one with the smaller ids first. It would number the characters
    # inside words in the order of a hash table, which differs from run to run.
    inside: set[str] = set()
    for text in texts:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)):
            inside.update(word[1:])
    numbered = [*SPECIAL_TOKENS, *(f"##{character}" for character in sorted(inside))]
    tokenizer.train_from_iterator(texts, vocab_size=size, min_frequency=2, limit_alphabet=size, special_tokens=numbered)
    return set(tokenizer.get_vocab())


def main() -> None:
    chosen = read_arguments()
    found = [article for path in chosen.files for article in articles(path)]
    held_out = found[chosen.held_out - 1 :: chosen.held_out]
    train = [article for number, article in enumerate(found, 1) if number % chosen.held_out]
    if not held_out:
        files = ", ".join(map(str, chosen.files))
        raise TrainingError(
            f"{files}: {len(found):,} article{'s' * (len(found) != 1)}, too few to hold out every {chosen.held_out}th: "
            "use a smaller --held-out"
        )
    with output_folder(chosen.output) as folder:
        for name, part in ("train", train), ("held_out", held_out):
            (folder / f"{name}.txt").write_text("".join(article + "\n" for article in part), encoding="utf-8")
        entries = [*SPECIAL_TOKENS, *sorted(word_pieces(train, chosen.size) - set(SPECIAL_TOKENS))]
        (folder / "vocab.txt").write_text("".join(entry + "\n" for entry in entries), encoding="utf-8")
        size = len(entries)
    print(f"{chosen.output}: {len(train):,} articles, {len(held_out):,} held out, a vocabulary of {size:,}")


if __name__ == "__main__":
    with exit_on_error("wikitext"):
        main()
