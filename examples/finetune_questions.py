"""Fine-tune a saved RoFormer to answer questions by spans of a text, with several seeds, and keep the best model.

    python examples/finetune_questions.py MODEL --train train.jsonl --group article --output reader --seeds 0 1 2

Each row of a .csv, .tsv, .jsonl or .parquet file, or of a data set, NAME or NAME:CONFIG on the Hub, has a question, its
context and the answer, a span of the context. Of a list of answers, the first is learned, and all are right in the
evaluation. With --train alone, it is split 6:2:2; if only --validation is missing, a quarter of --train replaces it.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_roformer import training  # registers RoFormer with the Auto classes too
from modeling_roformer.serving import WINDOW, best_answers, windows_of

COLUMNS = ("question", "context", "answer", "answer_start", "group")


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    training.add_fine_tuning_options(parser, "F1")
    add = parser.add_argument
    add("--question", default="question", metavar="COLUMN", help="default: question")
    add("--context", default="context", metavar="COLUMN", help="default: context")
    add("--answer", default="answer", metavar="COLUMN", help="default: answer")
    add("--answer-start", metavar="COLUMN", help="first character of the answer; default: where it occurs first")
    add("--group", metavar="COLUMN", help="column whose values stay together in a split; default: the contexts")
    add("--doc-stride", type=training.at_least(0), help="tokens that training windows share; default: 128, or less")
    chosen = parser.parse_args()
    if chosen.length > WINDOW:
        parser.error(f"--length is {chosen.length}; a saved model answers from windows of at most {WINDOW} tokens")
    return chosen


def read_parts(chosen: argparse.Namespace) -> DatasetDict:
    """Return the splits, with the columns of `load_answered_questions`."""
    columns = {name: vars(chosen)[name] for name in COLUMNS if vars(chosen)[name]}
    options = ["--" + name.replace("_", "-") for name in columns]
    parts = {
        part: training.load_answered_questions(vars(chosen)[part], columns, part, named_by=options)
        for part in training.PARTS
        if vars(chosen)[part]
    }
    parts = training.split_missing(DatasetDict(parts), "group" if chosen.group else "context")
    parts["train"] = parts["train"].filter(lambda start: start >= 0, input_columns="start", desc="with an answer")
    if not parts["train"]:
        raise training.TrainingError(f"{chosen.train}: no answer occurs in the contexts for training: add some")
    return parts


def find_answers(rows: Dataset, windows: Dataset, logits: Sequence[np.ndarray]) -> dict[str, list]:
    """Return the columns `predicted` and `score`: the best answer to each question, as it is served."""
    of_rows = defaultdict(list)
    for window, *of_window in zip(windows, *logits, strict=True):
        of_rows[window["row"]].append((window["offsets"], torch.tensor(np.stack(of_window)[:, window["places"]])))
    best = [next(iter(best_answers(of_row, 1)), (0, 0, 0.0)) for of_row in of_rows.values()]
    found = [context[start:end] for context, (start, end, _) in zip(rows["context"], best, strict=True)]
    return {"predicted": found, "score": [round(score, 6) for *_, score in best]}


def fine_tune(chosen: argparse.Namespace, tokenizer, rows: Dataset, windows: DatasetDict, seed: int, folder: Path):
    """Fine-tune with one seed, from the last checkpoint in `folder` on. Return the Trainer, with the model of the best
    epoch on the validation questions, `rows`."""
    set_seed(seed)
    with training.new_head():
        model = AutoModelForQuestionAnswering.from_pretrained(chosen.model, dtype="float32")

    def scores(predicted) -> dict[str, float]:
        found = find_answers(rows, windows["validation"], predicted.predictions)
        return training.answer_scores(found["predicted"], rows["answer"])

    trainer = Trainer(
        model,
        training.best_epoch_arguments(chosen, folder, seed, "f1"),
        train_dataset=windows["train"],
        eval_dataset=windows["validation"],
        processing_class=tokenizer,  # pads the batches
        compute_metrics=scores,
        callbacks=[EarlyStoppingCallback(chosen.patience), training.FiniteCallback()],
    )
    training.train_or_resume(trainer)
    trainer.compute_metrics = None  # it is for the validation questions
    return trainer


def main() -> None:
    chosen = read_arguments()
    sources = {name: vars(chosen)[name] for name in ("model", *training.PARTS)}
    if chosen.predictions:
        training.check_predictions_file(chosen.predictions, [*sources.values()], replace=chosen.resume)
    training.check_model_source(chosen.model)
    tokenizer, config = AutoTokenizer.from_pretrained(chosen.model), AutoConfig.from_pretrained(chosen.model)
    training.check_length(tokenizer, chosen.length, 2)
    parts = read_parts(chosen)
    sizes, tested = parts.num_rows, "test" if "test" in parts else "validation"
    training.choose_defaults(chosen, config, sizes["train"])
    print(", ".join(f"{part}: {sizes[part]:,} questions" for part in training.PARTS if part in sizes))
    tokenizer = training.with_trained_length(tokenizer, chosen.length)
    length, windows = min(tokenizer.model_max_length, WINDOW), DatasetDict()  # as the saved model reads
    for part, rows in parts.items():
        limits = (chosen.length, chosen.doc_stride) if part == "train" else (length,)
        windows[part] = training.label_windows(rows, windows_of, tokenizer, *limits)
    settings = {name: value for name, value in vars(chosen).items() if name != "predictions"}
    with training.start_run(chosen.output, settings, sources, chosen.resume) as run:

        def train(seed: int, folder: Path) -> Trainer:
            return fine_tune(chosen, tokenizer, parts["validation"], windows, seed, folder)

        def scores_of(trainer: Trainer) -> dict[str, dict[str, float]]:
            scores = {}
            for part in dict.fromkeys(["validation", tested]):
                found = find_answers(parts[part], windows[part], trainer.predict(windows[part]).predictions)
                scores[part] = training.answer_scores(found["predicted"], parts[part]["answer"])
            return scores

        def save(trainer: Trainer, seed: int, scores: dict[str, dict[str, float]]) -> None:
            text = f"Fine-tuned on {sizes['train']:,} questions; {sizes['validation']:,} chose the epoch."
            facts = {name: vars(chosen)[name] for name in ("learning_rate", "batch_size", "epochs", "patience")}
            card = {"base": chosen.model, "data": [chosen.train], "hyperparameters": facts | {"seed": seed}}
            source = vars(chosen)[tested] or chosen.train, tested
            run.save(trainer.model, tokenizer, text, "question-answering", scores[tested], source, **card)

        training.train_seeds(run, chosen.seeds, train, scores_of, save, "f1", questions=sizes)
        if chosen.predictions:
            model = AutoModelForQuestionAnswering.from_pretrained(run.folder / "model", dtype="float32")
            arguments = TrainingArguments(str(run.folder), report_to=[], dataloader_pin_memory=False)
            output = Trainer(model, arguments, processing_class=tokenizer).predict(windows[tested])
            rows = parts[tested].remove_columns(["start", "end"])
            found = find_answers(rows, windows[tested], output.predictions)
            training.write_predictions(chosen.predictions, {**rows.to_dict(), **found})
    more = f", predictions: {chosen.predictions}" if chosen.predictions else ""
    print(f"best model: {run.folder / 'model'}, curves: {run.folder / 'curves.png'}{more}")


if __name__ == "__main__":
    with training.exit_on_error("finetune_questions"), training.one_bar():
        main()
