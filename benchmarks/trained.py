"""Tables of finished training runs, from the files that the scripts of examples/ wrote.

    python benchmarks/trained.py KIND FOLDER [FOLDER …] --output FOLDER/NAME

KIND names the script: "translation" (translate.py), "triplets" or "order" (finetune_triplet.py), "laboratory"
(paper/position_laboratory/compare.py), "characters" (paper/char_lm.py), "classification" (finetune_classification.py),
"retrieval" (train_retriever.py) or "positions" (paper/compare_position_embeddings.py). FOLDER is its output, or what
keep.py kept of it; for "characters" and "positions", RUNS/seed-0, the runs of a seed. Several folders make one table:
each has rows, or seeds, of its own; "laboratory" takes one, on the machine of the training, whose speed it records.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import reporting
from rich.table import Table

from modeling_roformer.training import RETRIEVAL_METRICS, exit_on_error, paired_bootstrap
from modeling_roformer.training import spread as mean_and_deviation

EXAMPLES = reporting.ROOT / "examples"
sys.path += [str(EXAMPLES), str(EXAMPLES / "paper"), str(EXAMPLES / "paper" / "position_laboratory")]
# Fields of a model's configuration. The model type says whether transformers' own class computes the same.
OF_ENCODING = ("position_encoding", "max_position_embeddings", "model_type")


def saved_in(folder: Path, name: str = "results.json") -> dict:
    """Return the content of a run's file. Long lists of a kept run are in a compressed file beside it; see keep.py."""
    path = folder / name
    saved = json.loads(path.read_text(encoding="utf-8"))
    if (lists := path.with_name(f"{name}.gz")).exists():
        _put_back(json.loads(gzip.decompress(lists.read_bytes())), saved)
    return saved


def settings_in(folder: Path) -> dict:
    """Return the settings of a run, and what identifies its data."""
    saved = saved_in(folder, "settings.json")
    return saved["settings"] | saved["data"]


def _put_back(lists: dict, saved: dict) -> None:
    """Put the lists into the results that keep.py took them from."""
    for name, value in lists.items():
        if isinstance(value, dict):
            _put_back(value, saved[name])
        else:
            saved[name] = value


def spread(values: list[float], form: str) -> reporting.Cell:
    """Return a cell with mean and standard deviation over the seeds."""
    return reporting.Cell(mean_and_deviation(values, form), values)


def refuse_other_settings(runs: list[dict], names: Iterable[str] | None = None) -> None:
    """Stop the program if the settings of runs differ in one of `names`, by default in any: such rows cannot be
    compared."""
    for name in dict.fromkeys(name for run in runs for name in run) if names is None else names:
        if len({str(run.get(name)) for run in runs}) > 1:
            sys.exit(f"the runs differ in {name.replace('_', ' ')}: they cannot be compared")


def translation(*folders: Path) -> dict[str, Table]:
    """Return BLEU and validation loss of each run."""
    runs = by_name(folders)
    refuse_other_settings([settings_in(folder) | {"position_encoding": None} for folder in runs.values()])
    table = Table("", "seeds", "BLEU", "validation loss")
    for name, folder in runs.items():
        seeds = saved_in(folder).values()
        values = ([of[figure] for of in seeds] for figure in ("bleu", "validation_loss"))
        table.add_row(name, str(len(seeds)), *(spread(of, ".2f") for of in values))
    return {"bleu": table}


def blocks_beside(folders: Iterable[Path]) -> list[int] | None:
    """Return the block of each test case, such as its article, if there is a blocks.json beside the folders."""
    beside = next(iter(folders)).resolve().parent
    return saved_in(beside, "blocks.json")["test"] if (beside / "blocks.json").exists() else None


def triplets(*folders: Path) -> dict[str, Table]:
    """Return accuracies of runs, MODEL[-windows]-LENGTH, and the differences at one length or of one model."""
    saved, settings, blocks = {}, {}, blocks_beside(folders)
    for name, folder in by_name(folders).items():
        settings[name] = settings_in(folder)
        for row, seeds in saved_in(folder).items():
            saved.setdefault(name if row == "trained" else row, seeds)  # baselines give the same in each run
    refuse_other_settings([*settings.values()], ("train", "validation", "test", "scorer", "batch_size", "bf16"))
    runs = {name: run["max_length"] for name, run in settings.items() if run["epochs"]}
    names = sorted(saved, key=lambda name: (name in settings, name in runs, name.rpartition("-")[0], runs.get(name, 0)))
    accuracy = Table("accuracy, %", "seeds", "validation", "test")
    for name in names:
        scores = (spread([100 * one[part] for one in saved[name].values()], ".1f") for part in ("validation", "test"))
        accuracy.add_row(name, str(len(saved[name])), *scores)
    compared = Table("points of accuracy", "against", "difference, 95 % interval over triplets", "seeds", "over seeds")
    for one, other in combinations([name for name in names if name in runs], 2):
        models = {name.rpartition("-")[0].removesuffix("-windows") for name in (one, other)}
        alike = runs[one] == runs[other] or len(models) == 1
        if seeds := [seed for seed in saved[one] if seed in saved[other] and alike]:
            rows = [row for seed in seeds for row in saved[one][seed]["rows"]]
            cases = [blocks[row - 1] for row in rows] if blocks else rows
            results = ([result for seed in seeds for result in saved[name][seed]["results"]] for name in (other, one))
            of_seeds = spread([100 * (saved[other][seed]["test"] - saved[one][seed]["test"]) for seed in seeds], ".1f")
            compared.add_row(other, one, str(paired_bootstrap(*results, cases)), str(len(seeds)), of_seeds)
    return {"accuracy": accuracy, "comparisons": compared}


def order(*folders: Path) -> dict[str, Table]:
    """Return the tables of the script. A run is called ENCODING-LENGTH; beside the runs lies statutes.json."""
    from order_triplets import tables

    runs, settings = {}, {}
    for name, folder in by_name(folders).items():
        encoding, _, length = name.rpartition("-")
        runs[encoding, int(length)] = saved_in(folder)["trained"]
        settings.setdefault(length, []).append(settings_in(folder))
    for runs_of_length in settings.values():
        refuse_other_settings(runs_of_length, ("train", "validation", "test", "scorer", "epochs", "batch_size", "bf16"))
    return tables(runs, saved_in(folders[0].parent, "statutes.json")["test"])


def laboratory(folder: Path) -> dict[str, Table]:
    from compare import LENGTH_FACTORS, tables

    length = saved_in(folder, "settings.json")["settings"]["length"]
    loss, accuracy = tables(saved_in(folder), [times * length for times in LENGTH_FACTORS])
    return {"loss": loss, "accuracy": accuracy}


def characters(*folders: Path) -> dict[str, Table]:
    """Return the table of the script, over the folders: each has the runs of a seed."""
    from char_lm import VARIANTS, table

    runs, settings = {}, []
    for run in (folder / name for name in VARIANTS for folder in folders if (folder / name).exists()):
        settings.append(settings_in(run) | {"seed": None, "variant": None})
        runs.setdefault(run.name, []).append(saved_in(run))
    refuse_other_settings(settings)
    return {"bits": table(runs)}


def classification(*folders: Path) -> dict[str, Table]:
    """Return the accuracies of each run, in the order of the numbers of training texts."""
    table = Table("run", "seeds", "texts: training, validation, test", "validation accuracy", "test accuracy")
    saved = {name: saved_in(folder) for name, folder in by_name(folders).items()}
    for name, run in sorted(saved.items(), key=lambda item: item[1]["texts"]["train"]):
        if not run["seeds"]:
            continue
        scores = [seed["scores"] for seed in run["seeds"].values() if not seed.get("failed")]
        sizes = run["texts"]
        texts = ", ".join(f"{sizes[part]:,}" for part in ("train", "validation", "test") if part in sizes)
        failed = len(run["seeds"]) - len(scores)
        seeds = f"{len(scores)}, {failed} failed" if failed else str(len(scores))
        cells = ["failed", "failed"]
        if scores:
            parts = ([of[part]["accuracy"] for of in scores if part in of] for part in ("validation", "test"))
            cells = [spread(part, ".3f") if part else "" for part in parts]
        table.add_row(name, seeds, texts, *cells)
    return {"scores": table}


def by_name(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the folders by their names, which name their rows. Stop the program if two have the same name."""
    names = [folder.resolve().name for folder in folders]
    named = dict(zip(names, folders, strict=True))
    if repeated := [name for name, number in Counter(names).items() if number > 1]:
        sys.exit(f"two runs have the name {repeated[0]}, which names their rows: rename one of the folders")
    return named


def retrieval(*folders: Path) -> dict[str, Table]:
    """Return scores of words and of runs, MODEL or MODEL-LENGTH, and the differences at one length or of one model."""
    saved, settings, encoders = {}, {}, {}
    for name, folder in by_name(folders).items():
        settings[name] = run = settings_in(folder)
        length, is_trained = run["max_length"], run["epochs"] > 0
        for own, seeds in saved_in(folder).items():
            if own in ("before training", "trained"):
                own = f"{name}, {own}" if is_trained else name
                encoders[own] = (length, name.removesuffix(f"-{length}") if is_trained else run["model"])
            elif own.endswith(" tokens") and is_trained:
                own = f"{own} of {name}"
            if own in encoders or seeds not in saved.values():  # word search gives the same in each run
                saved[own] = seeds
    alike = ("learning_rate", "batch_size", "epochs", "hard_epochs", "negatives", "hard_negatives", "train")
    trained_runs = [run for run in settings.values() if run["epochs"]]
    refuse_other_settings(trained_runs, alike)  # not in the precision, which the table has
    refuse_other_settings([*settings.values()], ("test", "validation", "passages"))
    table = Table("", "seeds", "trained in", *RETRIEVAL_METRICS)
    means = {}  # of the reciprocal rank of each question and of whether it is among 100, over the seeds
    for name, seeds in saved.items():
        run, trained, _ = name.rpartition(", trained")
        results, precision = [*seeds.values()], "bfloat16" if trained and settings[run]["bf16"] else "float32"
        scores = [spread([result["test"][metric] for result in results], ".3f") for metric in RETRIEVAL_METRICS]
        table.add_row(name, *((str(len(results)), precision) if trained else ("", "")), *scores)
        if name in encoders and not name.endswith(", before training"):
            ranks = np.array([result["ranks"] for result in results])
            reciprocal = np.where((ranks > 0) & (ranks <= 10), 1 / np.maximum(ranks, 1), 0)
            means[name] = (reciprocal.mean(0), (ranks > 0).mean(0))
    differences = Table("first", "second", "difference of mrr@10, in hundredths (95 % interval)", "of recall@100")
    for first, second in combinations(means, 2):
        if any(one == other for one, other in zip(encoders[first], encoders[second], strict=True)):
            pairs, blocks = zip(means[first], means[second], strict=True), blocks_beside(folders)
            differences.add_row(first, second, *(str(paired_bootstrap(*pair, blocks)) for pair in pairs))
    return {"scores": table, "differences": differences}


def positions(*folders: Path) -> dict[str, Table]:
    """Return the tables of the script, over the folders: each has the runs of a seed."""
    from compare_position_embeddings import ENCODINGS, tables
    from run_curves import run_curves

    from modeling_roformer.training.comparing.curves import read_logs

    runs, rates, settings = {}, {}, []
    for run in (folder / name for name in ENCODINGS for folder in folders if (folder / name).exists()):
        recorded = settings_in(run)
        *earlier, last = recorded["stages"]
        _, ends = read_logs(run)
        if len(ends) != len(recorded["stages"]) or ends[-1] != sum(stage["steps"] for stage in recorded["stages"]):
            sys.exit(f"{run} is not finished, or has stages of another run: resume it, or leave it out")
        if recorded["seed"] in runs.setdefault(run.name, {}):
            sys.exit(f"two folders have a run of {run.name} with the same seed: leave out one of them")
        if rates.setdefault(run.name, last["learning_rate"]) != last["learning_rate"]:
            sys.exit(f"the runs of {run.name} differ in the learning rate: they cannot be compared")
        runs[run.name][recorded["seed"]] = run_curves(run)
        # Encodings differ in the learning rate, and in these fields of the model.
        model = {name: value for name, value in recorded["model"].items() if name not in OF_ENCODING}
        settings.append(recorded | {"model": model, "stages": [*earlier, last | {"learning_rate": None}], "seed": None})
    refuse_other_settings(settings)
    return tables(runs, rates)


_KINDS = (translation, triplets, order, laboratory, characters, classification, retrieval, positions)
KINDS = {tables.__name__: tables for tables in _KINDS}


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    chosen = parser.parse_args()
    if len(chosen.folders) > 1 and chosen.kind == "laboratory":
        parser.error("laboratory takes one folder")
    # The laboratory has one machine, whose speed it shows. The accuracies of the others may come from several.
    measured = chosen.kind == "laboratory"
    with reporting.Figures(chosen.output, "accelerate", "sacrebleu", measured=measured) as figures:
        tables = KINDS[chosen.kind](*chosen.folders)
        if not next(iter(tables.values())).rows:
            sys.exit(f"{', '.join(map(str, chosen.folders))}: no run is finished: name the output folder of a training")
        for name, table in tables.items():
            figures.add(name, table)


if __name__ == "__main__":
    with exit_on_error("trained"):
        main()
