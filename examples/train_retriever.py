"""Fine-tune an encoder to find the passages that answer questions, with several seeds, and keep the best model.

    python examples/train_retriever.py MODEL --train train.jsonl --test test.jsonl --output retriever --words

Questions are in .csv, .tsv, .jsonl or .parquet files, or in data sets on the Hub, with the columns `question` and
`passage`, whose values may be lists: a question is trained and tested with each passage. All passages are searched.
Without --validation, a tenth of the passages of --train replaces it; without --test, --validation is the test. The
other passages of a batch are negatives. So are, with --negatives, those of a column of --train, and with
--hard-negatives those that MODEL ranks high for a question that they do not answer. --epochs 0 only evaluates. See
docs/vectors.md.
"""

import argparse
import shutil
from functools import partial
from pathlib import Path

import torch
from huggingface_hub import EvalResult
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from sentence_transformers.util import mine_hard_negatives
from transformers import AutoConfig, AutoTokenizer, set_seed

from modeling_roformer import training
from modeling_roformer.model_cards import published_name, write_trained_card

PARTS, PAIR, TRAINED = ("train", "validation", "test"), ("question", "passage"), "trained"
METRICS, BEST = ("mrr@10", "ndcg@10", "recall@10", "recall@100"), "ndcg@10"  # BEST chooses the epoch and the seed
CURVES = {"training loss": "loss", BEST: f"eval_validation_cosine_{BEST}"}
# Hard negatives have at most 95 % of the cosine of the answer: closer ones may answer the question, too.
MINING = {"relative_margin": 0.05, "output_format": "n-tuple", "verbose": False}
SHOWN = ("learning_rate", "batch_size", "epochs", "hard_negatives", "max_length")  # in the card


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    parser.add_argument("model", help="folder of a saved encoder, or its name on the Hub")
    parser.add_argument("--train", required=True, help="training questions")
    parser.add_argument("--validation", help="questions for choosing the epoch and the seed")
    parser.add_argument("--test", help="test questions")
    parser.add_argument("--passages", nargs="+", default=[], metavar="FILE", help="more passages to search")
    parser.add_argument("--columns", nargs=2, default=PAIR, metavar="NAME", help="default: question passage")
    parser.add_argument("--negatives", metavar="NAME", help="column with a list of hard negatives for each question")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--resume", action="store_true", help="resume the run in --output")
    seeds = "seeds of the order and of dropout"
    parser.add_argument(
        "--seeds", type=training.random_seed, nargs="+", default=[0], action=training.Distinct, help=seeds
    )
    parser.add_argument("--words", action="store_true", help="add BM25, of whole passages and of what MODEL reads")
    parser.add_argument("--max-length", type=int, default=512, help="maximum number of tokens of a text")
    parser.add_argument("--epochs", type=training.at_least(0), default=4, help="maximum number of epochs")
    parser.add_argument(
        "--hard-negatives",
        type=training.at_least(0),
        default=0,
        metavar="N",
        help="hard negatives per question; default: 0, or all",
    )
    parser.add_argument("--batch-size", type=training.at_least(1), default=64, help="questions per step")
    parser.add_argument(
        "--device-batch", type=training.at_least(1), default=32, help="questions that are computed at once"
    )
    parser.add_argument("--learning-rate", type=training.positive, help="default: chosen by the width of the model")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    return parser.parse_args()


def train(chosen: argparse.Namespace, model, questions, search, seed: int, folder: Path) -> list[dict]:
    """Train a model, and leave it as after the best epoch. Return the log."""
    arguments = SentenceTransformerTrainingArguments(
        str(folder),
        seed=seed,
        num_train_epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        warmup_steps=0.1,  # of all steps
        weight_decay=0.01,
        per_device_train_batch_size=chosen.batch_size,
        batch_sampler=BatchSamplers.NO_DUPLICATES,  # other questions of the same passage are not negatives
        bf16=chosen.bf16,
        use_cpu=not torch.accelerator.is_available(),  # else Trainer refuses bfloat16 there
        dataloader_pin_memory=torch.accelerator.is_available(),
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{search.name}_cosine_{BEST}",
        logging_steps=0.05,  # of all steps
        report_to=[],
    )
    loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=chosen.device_batch)
    more = {"loss": loss, "evaluator": search, "callbacks": [training.FiniteCallback()]}
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=questions, **more)
    trainer.train(resume_from_checkpoint=training.last_checkpoint(folder))
    return trainer.state.log_history


def main() -> None:
    chosen = read_arguments()
    training.check_model_source(chosen.model)
    training.check_length(AutoTokenizer.from_pretrained(chosen.model), chosen.max_length, option="--max-length")
    chosen.learning_rate = chosen.learning_rate or training.fine_tuning_rate(AutoConfig.from_pretrained(chosen.model))
    columns = dict(zip(PAIR, chosen.columns, strict=True))
    data = {name: getattr(chosen, name) for name in (*PARTS, "model", "passages")}
    with training.start_run(chosen.output, vars(chosen), data, chosen.resume) as run:
        of_train = columns | ({"negatives": chosen.negatives} if chosen.negatives else {})
        options = {"named_by": ["--columns", "--columns", "--negatives"]}
        parts = {
            part: training.load_questions(data[part], of_train if part == "train" else columns, part, **options)
            for part in PARTS
            if data[part]
        }
        if "validation" not in parts:
            parts["train"], parts["validation"] = training.split_questions(parts["train"], 0.1)
        more = [training.load_texts(file, {"passage": columns["passage"]}, **options) for file in chosen.passages]
        passages = [passage for rows in (*parts.values(), *more) for passage in rows["passage"]]
        if chosen.negatives:
            passages += [passage for rows in parts.values() for row in rows for passage in row.get("negatives", ())]
        parts.setdefault("test", parts["validation"])
        searches = {part: training.PassageSearch(parts[part], passages, part) for part in PARTS[1:]}

        def result_of(found, **more) -> dict:
            scores = {part: search.scores_of(found) for part, search in searches.items()}
            return {**scores, "ranks": searches["test"].ranks, **more}

        def load() -> SentenceTransformer:
            model = SentenceTransformer(chosen.model, model_kwargs={"dtype": "float32"})
            model.max_seq_length = chosen.max_length
            return model

        found = {"before training": (model := load())}
        read = {"tokenizer": model.tokenizer, "max_length": chosen.max_length}
        for unit in ("word", "character") if chosen.words else ():
            found[f"BM25, {unit}s"] = partial(training.bm25, unit=unit)
            found[f"BM25, {unit}s, first {chosen.max_length:,} tokens"] = partial(training.bm25, unit=unit, **read)
        run.results |= {name: {"": result_of(search)} for name, search in found.items()}
        run.save_results()
        questions = parts["train"]
        if chosen.negatives:
            questions = training.with_negatives(questions, chosen.hard_negatives)
        elif chosen.hard_negatives and chosen.epochs:
            options = {"num_negatives": chosen.hard_negatives, "batch_size": chosen.device_batch, **MINING}
            questions = mine_hard_negatives(questions, load(), **options)
            if not len(questions):
                raise training.TrainingError(f"{chosen.train} has no hard negatives: lower or omit --hard-negatives")
            print(f"{len(questions):,} of {len(parts['train']):,} questions have hard negatives")
        trained = run.results.get(TRAINED, {})
        for seed in [str(seed) for seed in chosen.seeds if chosen.epochs and str(seed) not in trained]:
            set_seed(int(seed))
            model, place = load(), run.folder / f"seed-{seed}"
            result = result_of(model, log=train(chosen, model, questions, searches["validation"], int(seed), place))
            if all(result["validation"][BEST] > other["validation"][BEST] for other in trained.values()):
                text = f"Fine-tuned to find the passages that answer questions, on {published_name(chosen.train)}."
                data = published_name(chosen.test or chosen.validation or chosen.train)
                scores = [EvalResult("sentence-similarity", data, data, *of) for of in result["test"].items()]
                options = {name: getattr(chosen, name) for name in SHOWN} | {"seed": int(seed)}
                card = {"base": chosen.model, "data": [chosen.train], "hyperparameters": options, "scores": scores}
                with run.saving() as folder:
                    model.save(str(folder), create_model_card=False)
                    name = chosen.output.resolve().name
                    write_trained_card(folder, name, text, place=f"{name}/model", **card)
            run.results[TRAINED] = trained = trained | {seed: result}
            run.save_results()
            shutil.rmtree(place)
        for name, seeds in run.results.items():
            scores = {metric: [result["test"][metric] for result in seeds.values()] for metric in METRICS}
            print(f"{name}:", *(f"{metric} {training.spread(values, '.3f')}" for metric, values in scores.items()))
        if trained:
            logs = {seed: result["log"] for seed, result in trained.items()}
            training.draw_learning_curves(logs, run.folder / "curves.png", CURVES)
            print(f"best model: {run.folder / 'model'}")


if __name__ == "__main__":
    with training.exit_on_error("train_retriever"):
        main()
