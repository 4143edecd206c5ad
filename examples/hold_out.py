"""Hold out documents of a corpus, so that none of them has a near-duplicate among the training documents.

    python examples/hold_out.py zh_corpus OUTPUT [--share 0.1] [--most 600_000]

OUTPUT/train and OUTPUT/held_out get a compressed JSON Lines file for each file of the corpus. No document of one has a
near-duplicate in the other: two documents are near-duplicates if their sets of five consecutive characters have a
Jaccard similarity of at least --similarity (0.5). All such pairs are found, within and across files. A document that is
part of a much longer one is not similar to it.
"""

import argparse
import gzip
import json
from itertools import combinations
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import roformer_command  # noqa: F401, first: the package then imports no models, which takes seconds
from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.tokenization.vocabulary_maker.corpus import JSON_LINES, TEXT, corpus_files, read_chunks
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.pretraining.near_duplicates import near_duplicates


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "corpus", type=Path, nargs="+", help="text (a document per line), JSON Lines, .gz, or folders of them"
    )
    parser.add_argument("output", type=Path, help="a new folder")
    parser.add_argument("--field", default="text", help="field of JSON Lines with the text")
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of each file's characters to hold out, between 0 and 1"
    )
    parser.add_argument(
        "--most", type=int, default=600_000, metavar="N", help="hold out at most N characters of each file"
    )
    parser.add_argument("--similarity", type=float, default=0.5, help="least similarity of near-duplicates, at most 1")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice of documents")
    chosen = parser.parse_args()
    if not 0 < chosen.share < 1:
        raise TrainingError(
            f"--share is {chosen.share:g}; expected between 0 and 1, such as 0.1 for a tenth of each file"
        )
    if not 0 < chosen.similarity <= 1:
        raise TrainingError(f"--similarity is {chosen.similarity:g}; expected above 0 and at most 1")
    if chosen.most < 1:
        raise TrainingError(f"--most is {chosen.most}; expected at least 1")
    if chosen.seed < 0:
        raise TrainingError(f"--seed is {chosen.seed}; expected at least 0")
    return chosen


def output_name(path: Path) -> str:
    """Return the name of a file without the suffixes of its format."""
    path = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return path.stem if path.suffix.lower() in JSON_LINES + TEXT else path.name


def line_of(text: str) -> str:
    """Return a line of JSON Lines. Lone surrogates, which UTF-8 cannot store, stay escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps({"text": text}) + "\n"
    return json.dumps({"text": text}, ensure_ascii=False) + "\n"


def held_out_documents(files: np.ndarray, lengths: np.ndarray, groups: np.ndarray, wanted: np.ndarray, seed: int):
    """Return whether each document is held out: whole groups in random order, up to the limit of each file.

    Args:
        files, lengths, groups: file number, number of characters and group of each document.
        wanted: maximum number of characters to hold out of each file.
    """
    held_out = np.zeros(len(files), dtype=bool)
    given = np.zeros(len(wanted), dtype=np.int64)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    for group in np.random.default_rng(seed).permutation(len(members)):
        documents = members[group]
        given_now = np.bincount(files[documents], lengths[documents], len(wanted)).astype(np.int64)
        # A group that exceeds the limit of one of its files stays in training as a whole.
        if (given + given_now <= wanted)[given_now > 0].all():
            held_out[documents] = True
            given += given_now
    return held_out


def main() -> None:
    chosen = read_arguments()
    sources = corpus_files(chosen.corpus)
    names = [output_name(path) for path in sources]
    if len(set(names)) < len(names):
        first, second = next(pair for pair in combinations(sources, 2) if output_name(pair[0]) == output_name(pair[1]))
        raise TrainingError(f"{first} and {second} would be written to the same file: rename one")
    with output_folder(chosen.output) as folder:
        texts = [[text for chunk in read_chunks(path) for text in chunk.documents(chosen.field)] for path in sources]
        everything = [text for of_file in texts for text in of_file]
        if not everything:
            raise TrainingError(f"the corpus has no documents: all lines of {', '.join(map(str, sources))} are blank")
        files = np.repeat(np.arange(len(texts)), [len(of_file) for of_file in texts])
        lengths = np.array([len(text) for text in everything])
        groups = near_duplicates(everything, chosen.similarity, progress=True)
        characters = np.bincount(files, lengths, len(texts))
        wanted = np.minimum(characters * chosen.share, chosen.most)
        held_out = held_out_documents(files, lengths, groups, wanted, chosen.seed)
        if not held_out.any():
            raise TrainingError(
                f"nothing can be held out: each of the {len(everything):,} documents, with its near-duplicates, "
                f"exceeds --share {chosen.share:g} or --most {chosen.most}: raise one of them, or --similarity"
            )
        for half, is_here in ("train", ~held_out), ("held_out", held_out):
            (folder / half).mkdir()
            for number, name in enumerate(names):
                with gzip.open(folder / half / f"{name}.jsonl.gz", "wt", encoding="utf-8", compresslevel=6) as file:
                    file.writelines(line_of(everything[i]) for i in np.flatnonzero(is_here & (files == number)))

    sizes = np.bincount(groups)
    table = Table("")
    for title in ("documents", "like another", "held out", "characters", "held out"):
        table.add_column(title, justify="right")
    for number, name in enumerate(names):
        here = files == number
        table.add_row(
            name,
            f"{here.sum():,}",
            f"{(here & (sizes[groups] > 1)).sum():,}",
            f"{(here & held_out).sum():,}",
            f"{lengths[here].sum():,}",
            f"{lengths[here & held_out].sum():,}",
        )
    Console(markup=False).print(table)


if __name__ == "__main__":
    with exit_on_error("hold_out"):
        main()
