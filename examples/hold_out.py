"""Hold out documents of a corpus, so that none of them has a near-duplicate among the training documents.

    python examples/hold_out.py zh_corpus OUTPUT [--share 0.1] [--most 600_000]

OUTPUT/train and OUTPUT/held_out get a compressed JSON Lines file for each file of the corpus, or with --sample-by
document, where a text file is one document, for each argument. No document of one has a near-duplicate in the other:
two documents are near-duplicates if their sets of five consecutive characters have a Jaccard similarity of at least
--similarity (0.5). All such pairs are found, within and across files. A document that is part of a much longer one is
not similar to it.
"""

import argparse
import gzip
import json
import os
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from modeling_roformer.files import output_folder
from modeling_roformer.training import (
    Corpus,
    ScriptParser,
    TrainingError,
    exit_on_error,
    files_of,
    near_duplicates,
    random_seed,
)


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="text (a document per line), JSON Lines, CSV, Parquet, or folders of them")
    add("output", type=Path, help="a new folder")
    add("--field", default="text", help="field or column of the text")
    add("--sample-by", choices=("line", "document"), default="line", help="what is a document in a .txt file")
    add("--share", type=float, default=0.1, help="share of each file's characters to hold out, between 0 and 1")
    add("--most", type=int, default=600_000, metavar="N", help="hold out at most N characters of each file")
    add("--similarity", type=float, default=0.5, help="least similarity of near-duplicates, at most 1")
    add("--seed", type=random_seed, default=0, help="seed of the random choice of documents")
    return parser.parse_args()


def name_of(place: Path) -> str:
    """Return the name of a folder, such as `..`, or of a file without its endings."""
    name = os.path.basename(os.path.abspath(place)).lstrip(".")  # a hidden file would be skipped in its folder
    return name if place.is_dir() else Path(name.removesuffix(".gz")).stem


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
    by_line = chosen.sample_by == "line"
    sources = [file for place in chosen.corpus for file in (map(Path, files_of(place)) if by_line else [place])]
    names = [*map(name_of, sources)]
    if len(set(names)) < len(names):
        raise TrainingError(f"{', '.join(map(str, sources))}: two have the same name: rename one")
    texts = [Corpus([file], chosen.field, chosen.sample_by).documents()["text"][:] for file in sources]
    everything = [text for of_file in texts for text in of_file]
    files = np.repeat(np.arange(len(texts)), [len(of_file) for of_file in texts])
    lengths = np.array([len(text) for text in everything])
    groups = near_duplicates(everything, chosen.similarity, progress=True)
    characters = np.bincount(files, lengths, len(texts))
    wanted = np.minimum(characters * chosen.share, chosen.most)
    held_out = held_out_documents(files, lengths, groups, wanted, chosen.seed)
    if not held_out.any() or held_out.all():
        raise TrainingError(
            f"{'everything' if held_out.all() else 'nothing'} would be held out of {len(everything):,} documents: set "
            "another --share, --most or --similarity"
        )
    with output_folder(chosen.output) as folder:
        for split, is_here in ("train", ~held_out), ("held_out", held_out):
            (folder / split).mkdir()
            for number, name in enumerate(names):
                if (here := np.flatnonzero(is_here & (files == number))).size:
                    with gzip.open(folder / split / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
                        file.writelines(json.dumps({"text": everything[i]}, ensure_ascii=False) + "\n" for i in here)

    sizes = np.bincount(groups)
    table = Table("")
    for title in ("documents", "like another", "held out", "characters", "held out"):
        table.add_column(title, justify="right")
    for number, name in enumerate(names):
        here = files == number
        counts = here, here & (sizes[groups] > 1), here & held_out
        sums = lengths[here], lengths[here & held_out]
        table.add_row(name, *(f"{part.sum():,}" for part in (*counts, *sums)))
    Console(markup=False).print(table)


if __name__ == "__main__":
    with exit_on_error("hold_out"):
        main()
