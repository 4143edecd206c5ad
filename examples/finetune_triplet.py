"""Fine-tune models on triplets (is text A closer to B or to C?) and compare them, as in Table 5 of the paper.

    python examples/finetune_triplet.py triplets.jsonl --models DIR... --output RUN --baselines
    python examples/finetune_triplet.py --train train.jsonl --test test.jsonl --models DIR... --output RUN

Each line of a .jsonl file is {"A": text, "B": text, "C": text, "label": "B" or "C"}. A .csv, .tsv or .parquet file has
these columns; --a, --b, --c and --label name others. A single file is split 6:2:2 by each seed. With --train and --test
but no --validation, a fifth of the training triplets is for validation. RUN gets results.json and, for each model and
length, the model with the best validation accuracy, ready for `roformer push`. The same command resumes a stopped run,
seed by seed. See docs/triplets.md.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import positive_rate, require_place, seed_number, text_length
from modeling_roformer.training.runs.data_sets import require_sources
from modeling_roformer.training.triplets.arguments import COLUMNS, Recipe


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("triplets", type=Path, nargs="?", help="one file, split 6:2:2 by each seed")
    parser.add_argument("--train", type=Path, help="training triplets")
    parser.add_argument("--validation", type=Path, help="triplets for choosing the best epoch")
    parser.add_argument("--test", type=Path, help="test triplets")
    for option, column in COLUMNS.items():
        parser.add_argument(option, default=column, metavar="COLUMN", help=f"column of {column}; default: {column}")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--models", nargs="+", default=[], metavar="DIR", help="saved RoFormers to fine-tune")
    parser.add_argument("--max-length", type=text_length, nargs="+", default=[512], help="maximum number of tokens")
    parser.add_argument(
        "--seeds", type=seed_number, nargs="+", default=[0], help="each seed trains every model at every length"
    )
    parser.add_argument("--baselines", action="store_true", help="add rows without training")
    parser.add_argument("--data-name", help="name of the triplets in the cards; default: the names of the files")
    recipe = Recipe()
    parser.add_argument(
        "--scorer", choices=("cross", "bi"), default=recipe.scorer, help="score pairs, or texts separately"
    )
    parser.add_argument(
        "--epochs", type=int, default=recipe.epochs, help="maximum number of epochs; 0 for baselines only"
    )
    parser.add_argument(
        "--patience",
        type=int,
        default=recipe.patience,
        help="epochs without a better accuracy after which training stops",
    )
    parser.add_argument("--batch-size", type=int, default=recipe.batch_size, help="triplets per step")
    parser.add_argument("--learning-rate", type=positive_rate, help="default: chosen by the width of the model")
    parser.add_argument(
        "--device-tokens", type=int, default=recipe.device_tokens, help="maximum number of tokens computed at once"
    )
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    chosen = parser.parse_args()
    if (chosen.triplets is None) == (chosen.train is None) or bool(chosen.train) != bool(chosen.test):
        parser.error("give one file of triplets, or --train and --test")
    if chosen.validation and not chosen.train:
        parser.error("--validation needs --train and --test")
    if not chosen.baselines and not (chosen.models and chosen.epochs):
        parser.error("give --models, or --baselines, or both")
    for name, least in {"epochs": 0, "patience": 1, "batch_size": 1, "device_tokens": 1}.items():
        if getattr(chosen, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    require_sources([chosen.triplets, chosen.train, chosen.validation, chosen.test])
    for place in chosen.models:
        require_place(place)
    return chosen


with exit_on_error("finetune_triplet"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    from rich.console import Console

    from modeling_roformer.training.metrics import metric
    from modeling_roformer.training.runs.data_sets import require_outside
    from modeling_roformer.training.runs.device import require_one_process
    from modeling_roformer.training.runs.finite import NotFinite, show_failed
    from modeling_roformer.training.runs.kept_model import digest_of_kept, is_kept, keeps_one_of, require_room, to_train
    from modeling_roformer.training.runs.learning_rate import fine_tuning_rate
    from modeling_roformer.training.runs.models import saved_config
    from modeling_roformer.training.runs.resuming import recorded_setting, run_lock
    from modeling_roformer.training.triplets.baselines import TEXT_BLIND, WITHOUT_MODEL, mean_vectors, nearest
    from modeling_roformer.training.triplets.finetuning import (
        Data,
        describe_trained,
        fine_tune,
        load_starting_model,
        save_trained,
    )
    from modeling_roformer.training.triplets.reading import (
        Split,
        digest_of_triplets,
        encode_triplets,
        read_triplets,
        split_triplets,
    )
    from modeling_roformer.training.triplets.results import Results, Run, accuracy_table, compare, comparison_table


def split_by_seed(whole=None, train=None, validation=None, test=None) -> Callable[[int], Split]:
    """Return a function that returns the split of a seed, from the triplets of the given files."""
    if whole:
        return lambda seed: Split(*split_triplets(whole, (0.6, 0.2, 0.2), seed))
    if validation:
        split = Split(train, validation, test)
        return lambda seed: split
    return lambda seed: Split(*split_triplets(train, (0.8, 0.2), seed), test)


def accuracy(decisions, triplets) -> float:
    labels = [triplet.label for triplet in triplets]
    return metric("triplet_accuracy").compute(predictions=decisions, references=labels)["accuracy"]


def main() -> None:
    chosen = read_arguments()
    require_one_process()
    require_outside([chosen.triplets, chosen.train, chosen.validation, chosen.test], chosen.output)
    with run_lock(chosen.output):
        compare_models(chosen, Console(markup=False))


def compare_models(chosen: argparse.Namespace, console: Console) -> None:
    """Fine-tune each model at each length with all seeds, and show the results."""
    named = {"whole": chosen.triplets, "train": chosen.train, "validation": chosen.validation, "test": chosen.test}
    files = [file for file in named.values() if file]
    chosen.max_length = list(dict.fromkeys(chosen.max_length))
    columns = [getattr(chosen, option.removeprefix("--")) for option in COLUMNS]
    triplets = {name: read_triplets(file, columns) for name, file in named.items() if file}
    split_of = split_by_seed(**triplets)
    splits = {seed: split_of(seed) for seed in chosen.seeds}
    if chosen.learning_rate is None:
        chosen.learning_rate = recorded_setting(chosen.output, "learning_rate")
    recipe = Recipe(**{name: getattr(chosen, name) for name in asdict(Recipe())})
    split, starts = splits[chosen.seeds[0]], [load_starting_model(place) for place in chosen.models]
    if len({start.name for start in starts}) < len(starts):
        repeated = ", ".join(start.name for start in starts)
        raise TrainingError(f"two of --models have the same name ({repeated}): rename or link a folder")
    for start in starts:  # find invalid triplets before the first training
        encode_triplets(split.known + split.test, start.tokenizer, recipe.scorer, min(chosen.max_length))
    data = Data(*(chosen.data_name or file.name for file in (files[0], files[-1])))
    settings = {name: value for name, value in asdict(recipe).items() if name != "device_tokens"}
    contents = list(map(digest_of_triplets, triplets.values()))
    results = Results(chosen.output, {"files": contents, **settings})
    starts = [replace(start, name=results.name_of(start.weights, start.name)) for start in starts]
    if len({start.name for start in starts}) < len(starts):
        raise TrainingError(
            "two of --models have the same weights, or the earlier name of a renamed one: use another --output"
        )
    results.write()  # so that the same command resumes even if it is killed before the first result

    rows = []
    if chosen.baselines:
        for name, baseline in WITHOUT_MODEL.items():
            rows.append(row := results.row(name))
            for seed, split in splits.items():
                validation = accuracy(baseline(split.train, split.validation), split.validation)
                results.add(row, Run.from_decisions(seed, validation, split.test, baseline(split.known, split.test)))
    for start in starts if chosen.baselines else ():
        for length in chosen.max_length:
            rows.append(row := results.row(f"{start.name}-{length}, not trained", weights=start.weights))
            if row.exceeds_positions(start.longest, length):
                continue
            missing = {seed: split for seed, split in splits.items() if not row.is_done(seed)}
            asked = [triplet for split in missing.values() for triplet in split.validation + split.test]
            vectors = {}
            for seed, split in missing.items():
                try:
                    vectors = vectors or mean_vectors(start.model("bi"), start.tokenizer, asked, length)
                    validation = accuracy(nearest(vectors, split.validation), split.validation)
                    results.add(row, Run.from_decisions(seed, validation, split.test, nearest(vectors, split.test)))
                except NotFinite as error:
                    results.add_failed(row, seed, str(error))
    for start in starts if chosen.epochs else ():
        rate = chosen.learning_rate or fine_tuning_rate(saved_config(start.place))
        own = replace(recipe, learning_rate=rate)
        for length in chosen.max_length:
            rows.append(row := results.row(f"{start.name}-{length}", start.name, length, start.weights))
            if row.exceeds_positions(start.longest, length):
                continue
            folder = chosen.output / row.name
            require_room(folder)

            def lost(row=row, folder=folder) -> list[int]:
                weights = [run.weights for run in row.runs]
                return [row.best.seed] if row.runs and not is_kept(folder, row.best.weights, weights) else []

            for seed, is_lost in to_train(splits, row.is_done, lost):
                if is_lost:
                    print(f"{folder} does not have the model of seed {seed}, so it is trained again")
                split, title = split_of(seed), f"{row.name}, seed {seed}"
                try:
                    trained = fine_tune(start, split, length, seed, own, chosen.output / ".checkpoints", title)
                except NotFinite as error:
                    if is_lost:
                        print(f"{title} failed: {error}; its earlier result is kept")
                    else:
                        results.add_failed(row, seed, str(error))
                    continue
                run = Run.from_decisions(seed, trained.validation, split.test, trained.test, trained.log)
                others = (other.weights for other in row.runs)
                if row.is_best(run) or (is_lost and not keeps_one_of(folder, others)):
                    save_trained(folder, start, trained, length)
                    run.weights = digest_of_kept(folder)
                results.add(row, run)
            if row.runs and not lost():
                split, blind = split_of(row.best.seed), results.rows.get(TEXT_BLIND)
                describe_trained(folder, start, row, split, own, data, blind)

    console.print(accuracy_table(rows))
    compared = compare([row for row in results.rows.values() if row.runs])  # those of earlier commands too
    results.write(compared)
    asked = {row.name for row in rows}
    if shown := [comparison for comparison in compared if {comparison.row, comparison.against} <= asked]:
        console.print(comparison_table(shown))
    for row in (row for row in rows if row.model is None):
        for seed, why in row.failed.items():
            print(f"failed: {row.name}, seed {seed}: {why}")
    made = [(row, seed) for row in rows if row.model and not row.note for seed in splits]
    show_failed({f"{row.name}, seed {seed}": row.failed.get(str(seed)) for row, seed in made})
    known, asked = splits[chosen.seeds[0]].test_overlap()
    console.print(f"{known} of the {asked} test texts are also in training or validation.", highlight=False)
    console.print(f"{chosen.output / 'results.json'} has all answers.", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    with exit_on_error("finetune_triplet"):
        main()
