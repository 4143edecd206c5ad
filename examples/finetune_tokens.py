"""Fine-tune a saved RoFormer to find named entities, with several seeds, and keep the best model.

    python examples/finetune_tokens.py MODEL --train names.jsonl --output tagger --seeds 0 1 2

Texts are in CoNLL columns (a token and its tag per line, in BIO, BIOES or BMES), in .jsonl or .parquet files with
tokens and tags or with text and entities, also as in CLUENER, or in data sets on the Hub. With --train alone, they are
split 6:2:2; if only --validation is missing, a quarter of --train replaces it.
"""

import argparse
from pathlib import Path

from datasets import DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EarlyStoppingCallback,
    Trainer,
    pipeline,
    set_seed,
)

from modeling_roformer import training  # registers RoFormer with the Auto classes too


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    training.add_fine_tuning_options(parser, "F1")
    words = "label the words of the model's tokenizer; default: each Chinese character"
    parser.add_argument("--words", action="store_true", help=words)
    return parser.parse_args()


def label_parts(chosen: argparse.Namespace, parts: DatasetDict, tokenizer, tags: list[str]) -> DatasetDict:
    """Return the splits with labelled tokens, and print how many entities are lost.

    Evaluation reads what the saved tokenizer reads, which may be longer than --length."""
    lengths = {part: chosen.length if part == "train" else tokenizer.model_max_length for part in parts}
    labelled = {part: training.label_tokens(rows, tokenizer, tags, lengths[part]) for part, rows in parts.items()}
    for part, rows in labelled.items():
        training.print_lost(part, rows, lengths[part])
    return DatasetDict(labelled)


def fine_tune(chosen: argparse.Namespace, tokenizer, tags: list[str], parts: DatasetDict, seed: int, folder: Path):
    """Fine-tune with one seed, from the last checkpoint in `folder` on. Return the Trainer, with the model of the best
    epoch, whose predictions are the number of each token's tag."""
    set_seed(seed)
    labels = {"id2label": dict(enumerate(tags)), "label2id": {tag: number for number, tag in enumerate(tags)}}
    # The checkpoint may have a head for other tags.
    options = {"ignore_mismatched_sizes": True, "dtype": "float32", **labels}
    with training.new_head():
        model = AutoModelForTokenClassification.from_pretrained(chosen.model, **options)
    trainer = Trainer(
        model,
        training.best_epoch_arguments(chosen, folder, seed, "f1"),
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        compute_metrics=lambda found: {"f1": training.find_spans(parts["validation"], found.predictions, tags).f1},
        callbacks=[EarlyStoppingCallback(chosen.patience), training.FiniteCallback()],
    )
    training.train_or_resume(trainer)
    trainer.compute_metrics = None  # it is for the validation texts
    return trainer


def main() -> None:
    chosen = read_arguments()
    sources = {name: vars(chosen)[name] for name in ("model", *training.PARTS)}
    if chosen.predictions:
        training.check_predictions_file(chosen.predictions, [*sources.values()], replace=chosen.resume)
    training.check_model_source(chosen.model)
    unit = {} if chosen.words else {"word_segmentation": None, "user_dict": None}
    tokenizer, config = AutoTokenizer.from_pretrained(chosen.model, **unit), AutoConfig.from_pretrained(chosen.model)
    training.check_length(tokenizer, chosen.length)
    tokenizer = training.with_trained_length(tokenizer, chosen.length)
    loaded = {part: training.load_entities(sources[part], part) for part in training.PARTS if sources[part]}
    parts = training.split_missing(DatasetDict(loaded))
    tags = training.bio_tags(parts, [tag for _, tag in sorted(config.id2label.items())])
    sizes, tested = parts.num_rows, "test" if "test" in parts else "validation"
    training.choose_defaults(chosen, config, sizes["train"])
    entities = {part: sum(map(len, parts[part]["entities"])) for part in training.PARTS if part in parts}
    print(", ".join(f"{part}: {sizes[part]:,} texts with {count:,} entities" for part, count in entities.items()))
    parts = label_parts(chosen, parts, tokenizer, tags)
    settings = {name: value for name, value in vars(chosen).items() if name != "predictions"}
    with training.start_run(chosen.output, settings, sources, chosen.resume) as run:

        def train(seed: int, folder: Path) -> Trainer:
            return fine_tune(chosen, tokenizer, tags, parts, seed, folder)

        def scores_of(trainer: Trainer) -> dict[str, dict[str, float]]:
            scores = {}
            for part in dict.fromkeys(["validation", tested]):
                found = training.find_spans(parts[part], trainer.predict(parts[part]).predictions, tags)
                scores[part] = {"f1": found.f1, "macro_f1": found.macro_f1}
            return scores

        def save(trainer: Trainer, seed: int, scores: dict[str, dict[str, float]]) -> None:
            text = f"Fine-tuned on {sizes['train']:,} labelled texts; {sizes['validation']:,} chose the epoch."
            facts = {name: vars(chosen)[name] for name in ("learning_rate", "batch_size", "epochs", "patience")}
            card = {"base": chosen.model, "data": [chosen.train], "hyperparameters": facts | {"seed": seed}}
            source = vars(chosen)[tested] or chosen.train, tested
            run.save(trainer.model, tokenizer, text, "token-classification", scores[tested], source, **card)

        training.train_seeds(run, chosen.seeds, train, scores_of, save, "f1", texts=sizes)
        # The entities that the saved model serves.
        find = pipeline("token-classification", model=str(run.folder / "model"), aggregation_strategy="simple")
        rows = parts[tested]
        found = [
            [(entity["start"], entity["end"], entity["entity_group"]) for entity in entities]
            for entities in find([*rows["text"]], batch_size=chosen.batch_size)
        ]
        predictions = training.SpanPredictions(training.spans_of(rows), found)
        print(f"the best model on the {tested} texts:")
        predictions.print_table()
        if chosen.predictions:
            predictions.write(chosen.predictions, rows["text"])
    predictions.warn_of_none("the best model", "try more --epochs, a higher --learning-rate, or more texts")
    more = f", predictions: {chosen.predictions}" if chosen.predictions else ""
    print(f"best model: {run.folder / 'model'}, curves: {run.folder / 'curves.png'}{more}")


if __name__ == "__main__":
    with training.exit_on_error("finetune_tokens"), training.one_bar():
        main()
