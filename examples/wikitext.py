"""WikiText as a corpus for pre-training: articles, some of them held out, and a vocabulary of word pieces made from the others.

    python examples/wikitext.py wiki.train.tokens --output english
    python examples/pretrain_mlm.py STAGES.yaml --corpus english/train.txt --eval english/held_out.txt \
        --tokenizer english/vocab.txt --output run

An article becomes a line. WikiText's own marks are undone: a hyphen or a comma between " @" and "@ ", headings between " = ".
The vocabulary is BERT's kind, lower-case WordPiece, and knows every character of the articles.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

from modeling_roformer.output.atomic_folder import output_folder
from modeling_roformer.tokenization.vocabulary_maker.corpus import read_chunks
from modeling_roformer.training.errors import TrainingError, exit_on_error

TITLE = re.compile(r" ?= (?!=)(.+) = *\n?")
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="WikiText, also as .gz")
    parser.add_argument("--output", type=Path, required=True, help="folder for train.txt, held_out.txt and vocab.txt")
    parser.add_argument("--size", type=int, default=8000, help="entries of the vocabulary")
    parser.add_argument("--held-out", type=int, default=10, metavar="N", help="every Nth article is held out")
    chosen = parser.parse_args()
    if chosen.held_out < 2:
        parser.error(f"--held-out is {chosen.held_out}, but must be at least 2")
    return chosen


def articles(path: Path) -> Iterator[str]:
    """Each article in one line; what comes before the first title is one, too."""
    lines: list[str] = []
    for _, line in (numbered for chunk in read_chunks(path) for numbered in chunk.lines()):
        if TITLE.fullmatch(line) and lines:
            yield " ".join(lines)
            lines = []
        if text := re.sub(r" @(.)@ ", r"\1", line).strip(" =\n"):
            lines.append(text)
    if lines:
        yield " ".join(lines)


def main() -> None:
    chosen = read_arguments()
    found = [article for path in chosen.files for article in articles(path)]
    held_out = found[chosen.held_out - 1 :: chosen.held_out]
    train = [article for number, article in enumerate(found, 1) if number % chosen.held_out]
    if not held_out:
        raise TrainingError(
            f"there {'is 1 article' if len(found) == 1 else f'are {len(found)} articles'}, too few to hold every "
            f"{chosen.held_out}th out: --held-out takes a smaller number"
        )
    with output_folder(chosen.output) as folder:
        for name, part in ("train", train), ("held_out", held_out):
            (folder / f"{name}.txt").write_text("".join(article + "\n" for article in part), encoding="utf-8")
        tokenizer = BertWordPieceTokenizer()
        tokenizer.train_from_iterator(
            train, vocab_size=chosen.size, min_frequency=2, limit_alphabet=chosen.size, special_tokens=SPECIAL_TOKENS
        )
        # Sorted, since the trainer's own order differs from run to run.
        entries = [*SPECIAL_TOKENS, *sorted(set(tokenizer.get_vocab()) - set(SPECIAL_TOKENS))]
        (folder / "vocab.txt").write_text("".join(entry + "\n" for entry in entries), encoding="utf-8")
        size = len(entries)
    print(f"{chosen.output}: {len(train):,} articles, {len(held_out):,} held out, a vocabulary of {size:,}")


if __name__ == "__main__":
    with exit_on_error("wikitext"):
        main()
