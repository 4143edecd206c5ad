"""Fine-tune an encoder to find the passage that answers a question, with several seeds, and keep the best model.

    python examples/train_retriever.py MODEL --train train.jsonl --test test.jsonl --output retriever --seeds 0 1 2

MODEL is a saved encoder or masked language model of this package. Questions are in .csv, .tsv, .jsonl or .parquet files
with the columns `question` and `passage`; --question and --passage name others. All passages are searched, with those
of --passages. The other passages of a batch are negatives. After --epochs, the trained model finds hard negatives,
passages that it ranks high for a question that they do not answer, and trains --hard-epochs more with them. With 0 of
both, the model is only evaluated. RUN gets results.json and the model with the best validation score, for
SentenceTransformer, `roformer embed` and `roformer rank`. The same command resumes a stopped run, seed by seed. See
docs/retrieval.md.
"""

import argparse
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import (
    positive_integer,
    positive_rate,
    require_place,
    seed_number,
    text_length,
)
from modeling_roformer.training.runs.data_sets import require_sources

COLUMNS = ("question", "passage")
PARTS = ("train", "validation", "test")
METRICS = {"mrr@10": ("mrr", 10), "ndcg@10": ("ndcg", 10), "recall@10": ("recall", 10), "recall@100": ("recall", 100)}
BEST = "ndcg@10"  # on the validation questions, chooses the epoch and the seed
FOUND = 100  # passages per question
MARGIN = 0.05  # hard negatives have at most 95 % of the cosine of the answer: closer ones may answer the question, too
UNTRAINED, TRAINED = "before training", "trained"
NOT_COMPARED = ("output", "seeds", *PARTS, "passages", *COLUMNS, "device_batch", "words")
HYPERPARAMETERS = ("learning_rate", "batch_size", "epochs", "hard_epochs", "negatives", "length", "bf16")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a saved encoder, or its name on the Hub")
    parser.add_argument("--train", required=True, help="training questions")
    parser.add_argument("--validation", help="questions for choosing epoch and seed; default: a tenth of --train")
    parser.add_argument("--test", help="questions for the scores of the best model; default: those of --validation")
    parser.add_argument("--passages", nargs="+", default=[], metavar="FILE", help="more passages to search")
    for column in COLUMNS:
        parser.add_argument(f"--{column}", default=column, metavar="COLUMN", help=f"default: {column}")
    parser.add_argument("--output", type=Path, required=True, metavar="RUN", help="folder for the model and its scores")
    parser.add_argument("--seeds", type=seed_number, nargs="+", default=[0], help="seeds of the order and of dropout")
    parser.add_argument("--length", type=text_length, default=512, help="maximum number of tokens of a text")
    parser.add_argument("--batch-size", type=positive_integer, default=64, help="questions per step")
    parser.add_argument(
        "--device-batch", type=positive_integer, default=32, help="questions that a device computes at once"
    )
    parser.add_argument("--learning-rate", type=positive_rate, help="default: chosen by the width of the model")
    parser.add_argument("--epochs", type=int, default=4, help="epochs with the negatives of the batch")
    parser.add_argument("--hard-epochs", type=int, default=2, help="further epochs with hard negatives; 0 for none")
    parser.add_argument("--negatives", type=positive_integer, default=2, help="hard negatives per question")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--words", action="store_true", help="add rows of word search: BM25 and TF-IDF")
    chosen = parser.parse_args()
    if chosen.batch_size < 2 and chosen.epochs:
        parser.error("--batch-size is 1; expected at least 2, since the other passages of a batch are the negatives")
    for option, epochs in (("--epochs", chosen.epochs), ("--hard-epochs", chosen.hard_epochs)):
        if epochs < 0:
            parser.error(f"{option} is {epochs}; expected at least 0")
    require_place(chosen.model)
    require_sources([*(getattr(chosen, part) for part in PARTS), *chosen.passages])
    return chosen


with exit_on_error("train_retriever"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    import datasets
    import torch
    from huggingface_hub import EvalResult
    from rich.console import Console
    from rich.table import Table
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers
    from sentence_transformers.util import mine_hard_negatives
    from sklearn.feature_extraction.text import TfidfVectorizer
    from transformers import set_seed

    from modeling_roformer import RoFormerConfig
    from modeling_roformer.files.atomic_folder import output_folder
    from modeling_roformer.model_cards.trained_card import published_name, write_trained_card
    from modeling_roformer.output.extras import needs_extra
    from modeling_roformer.serving.model_folder import named_when_unreadable
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter
    from modeling_roformer.training.runs.data_sets import require_outside
    from modeling_roformer.training.runs.device import ON_CPU, require_one_process
    from modeling_roformer.training.runs.digests import digest_of_model, digest_of_rows, digest_of_text
    from modeling_roformer.training.runs.finite import FiniteTraining, NotFinite, require_finite_start, show_failed
    from modeling_roformer.training.runs.kept_model import digest_of_kept, is_kept, keeps_one_of, require_room, to_train
    from modeling_roformer.training.runs.learning_rate import fine_tuning_rate
    from modeling_roformer.training.runs.models import saved_config
    from modeling_roformer.training.runs.resuming import ResultsFile, recorded_setting, require_values, run_lock
    from modeling_roformer.training.runs.spread import spread
    from modeling_roformer.training.runs.tables import read_table, require_columns, texts_in


class RetrieverTrainer(FiniteTraining, SentenceTransformerTrainer):
    """sentence-transformers' trainer. It raises `NotFinite` in a failed run."""


def read_questions(source: str, chosen: argparse.Namespace, split: str) -> datasets.Dataset:
    """Return the questions of a file, with the columns question and passage."""
    table = read_table(source, split)
    names = {f"--{column}": getattr(chosen, column) for column in COLUMNS}
    require_columns(table, names, source)
    texts = {column: texts_in(table, getattr(chosen, column), source) for column in COLUMNS}
    if not texts["question"]:
        raise TrainingError(f"{source} has no question")
    return datasets.Dataset.from_dict(texts)


def read_parts(chosen: argparse.Namespace) -> datasets.DatasetDict:
    """Return the parts train, validation and, if it is given, test. No passage is in two of them, unless the files have
    it."""
    parts = {part: read_questions(source, chosen, part) for part in PARTS if (source := getattr(chosen, part))}
    if "validation" not in parts:
        passages = sorted(set(parts["train"]["passage"]))
        if len(passages) < 20:
            raise TrainingError(
                f"{chosen.train} has {len(passages)} different passages; expected at least 20, of which a tenth is for "
                "validation"
            )
        held_out = {*random.Random(0).sample(passages, len(passages) // 10)}
        is_held_out = [passage in held_out for passage in parts["train"]["passage"]]
        rows = [[row for row, held in enumerate(is_held_out) if held == wanted] for wanted in (False, True)]
        parts["train"], parts["validation"] = map(parts["train"].select, rows)
    if len({*parts["train"]["passage"]}) < 2:  # the negatives of a question are other passages
        raise TrainingError(f"{chosen.train} has one passage for training; expected at least two different ones")
    return datasets.DatasetDict({part: parts[part] for part in PARTS if part in parts})


def read_passages(chosen: argparse.Namespace, parts: datasets.DatasetDict) -> list[str]:
    """Return all passages to search, each once."""
    passages = dict.fromkeys(passage for questions in parts.values() for passage in questions["passage"])
    for source in chosen.passages:
        table = read_table(source)
        require_columns(table, {"--passage": chosen.passage}, source)
        passages |= dict.fromkeys(texts_in(table, chosen.passage, source))
    return list(passages)


class Search(InformationRetrievalEvaluator):
    """sentence-transformers' evaluator of a search for the passages of questions, which also keeps the ranks.

    Questions with the same text have all their passages as answers.
    """

    def __init__(self, questions: datasets.Dataset, passages: list[str], name: str, batch_size: int = 32):
        numbers = {passage: str(number) for number, passage in enumerate(passages)}
        self.answers: dict[str, set[str]] = {}
        for question, passage in zip(questions["question"], questions["passage"], strict=True):
            self.answers.setdefault(question, set()).add(numbers[passage])
        ids = {question: str(number) for number, question in enumerate(self.answers)}
        super().__init__(
            queries={number: question for question, number in ids.items()},
            corpus={number: passage for passage, number in numbers.items()},
            relevant_docs={ids[question]: found for question, found in self.answers.items()},
            precision_recall_at_k=[10, FOUND],
            accuracy_at_k=[1],
            map_at_k=[FOUND],
            batch_size=batch_size,
            name=name,
            write_csv=False,
        )
        self.ranks: list[int] = []

    def compute_metrics(self, queries_result_list: list[list[dict]]) -> dict:
        """Keep the rank of the best answer of each question, from 1, or 0 if it is not among the passages found."""
        self.ranks = []
        for found, answers in zip(queries_result_list, self.answers.values(), strict=True):
            hits = sorted(found, key=lambda hit: (-hit["score"], hit["corpus_id"]))  # as the metrics do
            order = [hit["corpus_id"] for hit in hits[:FOUND]]
            self.ranks.append(next((place for place, number in enumerate(order, 1) if number in answers), 0))
        return super().compute_metrics(queries_result_list)

    def scores_of(self, model: SentenceTransformer) -> dict[str, float]:
        found = self(model)
        return {name: float(found[f"{self.name}_cosine_{name}"]) for name in METRICS}

    def scores_of_words(self, similarities: Callable[[list[str], list[str]], torch.Tensor]) -> dict[str, float]:
        """Return the scores of a search by a matrix of similarities of (questions, passages)."""
        matrix = torch.as_tensor(similarities(list(self.queries), list(self.corpus)))
        best = matrix.topk(min(FOUND, matrix.shape[1]))
        found = [
            [{"corpus_id": self.corpus_ids[i], "score": score} for i, score in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        scores = self.compute_metrics(found)
        return {name: float(scores[f"{kind}@k"][k]) for name, (kind, k) in METRICS.items()}


def bm25(unit: str) -> Callable[[list[str], list[str]], torch.Tensor]:
    """Return a search by BM25 over words of jieba or single characters."""
    with needs_extra("retrieval", TrainingError):
        import bm25s

    split = JiebaSegmenter() if unit == "words" else list

    def similarities(questions: list[str], passages: list[str]) -> torch.Tensor:
        index = bm25s.BM25()
        index.index([[*split(passage)] for passage in passages], show_progress=False)  # it reads the words twice
        return torch.stack([torch.from_numpy(index.get_scores([*split(question)])) for question in questions])

    return similarities


def tf_idf(questions: list[str], passages: list[str]) -> torch.Tensor:
    """Search by the cosine of TF-IDF vectors over words of jieba."""
    vectorizer = TfidfVectorizer(analyzer=JiebaSegmenter())
    of_passages = vectorizer.fit_transform(passages)
    return torch.from_numpy((vectorizer.transform(questions) @ of_passages.T).toarray())


# Names of the rows of word search -> functions that return them.
WORDS = {
    "BM25, characters": lambda: bm25("characters"),
    "BM25, words": lambda: bm25("words"),
    "TF-IDF, words": lambda: tf_idf,
}


def train(
    chosen: argparse.Namespace, parts: datasets.DatasetDict, search: Search, seed: int, folder: str
) -> tuple[SentenceTransformer, list[dict]]:
    """Fine-tune with one seed. Return the model of the best epoch, and Trainer's log. Checkpoints are in `folder`.

    Raises NotFinite if the run fails.
    """
    set_seed(seed)
    model, log = load(chosen), []
    questions, best, best_weights = parts["train"], None, None
    for epochs, kind in (chosen.epochs, "batch"), (chosen.hard_epochs, "hard"):
        if not epochs:
            continue
        if kind == "hard":
            questions = mine_hard_negatives(
                questions,
                model,
                corpus=sorted(set(questions["passage"])),
                num_negatives=chosen.negatives,
                relative_margin=MARGIN,
                output_format="n-tuple",
                batch_size=chosen.device_batch,
                verbose=False,
            )
            # A question has none if all passages are too close to its answer.
            print(f"hard negatives: for {len(questions):,} of {len(parts['train']):,} questions")
            log.append({"questions_with_hard_negatives": len(questions)})
            if not len(questions):
                break
            best_weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        arguments = SentenceTransformerTrainingArguments(
            f"{folder}/{kind}",
            seed=seed,
            num_train_epochs=epochs,
            learning_rate=chosen.learning_rate if kind == "batch" else chosen.learning_rate / 2,
            warmup_steps=0.1,
            weight_decay=0.01,
            per_device_train_batch_size=chosen.batch_size,
            batch_sampler=BatchSamplers.NO_DUPLICATES,  # another question of the same passage is no negative
            bf16=chosen.bf16,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            save_only_model=True,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{search.name}_cosine_{BEST}",
            logging_steps=0.05,  # of all steps
            use_cpu=ON_CPU,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to=[],
        )
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=chosen.device_batch)
        trainer = RetrieverTrainer(model, arguments, train_dataset=questions, loss=loss, evaluator=search)
        trainer.train()
        if best is not None and trainer.state.best_metric < best:  # no hard epoch is better
            model.load_state_dict(best_weights)
        best = trainer.state.best_metric
        log += [
            {**entry, "epoch": entry["epoch"] + chosen.epochs * (kind == "hard")} for entry in trainer.state.log_history
        ]
    return model, log


def load(chosen: argparse.Namespace) -> SentenceTransformer:
    """Load the model in float32, with the maximum number of tokens of this run.

    Raises a TrainingError or ServingError if it cannot be loaded, has a weight that is not finite, or another pooling.
    """
    options = {"device": "cpu" if ON_CPU else None, "model_kwargs": {"dtype": "float32"}}
    with named_when_unreadable(chosen.model):
        model = SentenceTransformer(str(chosen.model), **options)
    if (kind := vector_of(model)) != "the mean over tokens":
        raise TrainingError(
            f"{chosen.model} makes vectors by {kind}, but the mean over tokens is trained here: remove modules.json "
            "from it, or train it with sentence-transformers"
        )
    # `roformer embed` has no prompts, and whole vectors.
    model.prompts, model.default_prompt_name, model.truncate_dim = {}, None, None
    model.similarity_fn_name = "cosine"
    require_finite_start(model[0].model, chosen.model)
    model.max_seq_length = chosen.length
    return model


def vector_of(model: SentenceTransformer) -> str:
    """Return in words how a model makes the vector of a text."""
    names = []
    for module in [*model][1:]:
        if isinstance(module, Pooling):
            names += [module.pooling_mode] if isinstance(module.pooling_mode, str) else module.pooling_mode
        elif not isinstance(module, Normalize):
            names.append(type(module).__name__)
    return "the mean over tokens" if names == ["mean"] else ", ".join(names) or "no pooling"


def main() -> None:
    chosen = read_arguments()
    require_one_process()
    require_outside([*(getattr(chosen, part) for part in PARTS), *chosen.passages], chosen.output)
    with run_lock(chosen.output):
        train_seeds(chosen)


def refuse_unfit(config: RoFormerConfig, chosen: argparse.Namespace) -> None:
    """Raise a TrainingError if the saved model would give other vectors than those that are trained."""
    if config.is_decoder:
        raise TrainingError(
            f"{chosen.model} is a causal language model (is_decoder): name an encoder or masked language model"
        )
    if (
        config.add_pooling_layer and config.pooler_activation == "linear"
    ):  # RoFormer-Sim: `roformer embed` uses its pooler
        raise TrainingError(
            f"{chosen.model} makes vectors of texts with its pooler, which this training leaves out: name another "
            "model, or set add_pooling_layer to false in its config.json"
        )
    if chosen.length > config.max_position_embeddings:  # at which a SentenceTransformer cuts texts
        raise TrainingError(
            f"--length {chosen.length} is more than {chosen.model} reads: give --length "
            f"{config.max_position_embeddings}, or set max_position_embeddings in its config.json"
        )


def train_seeds(chosen: argparse.Namespace) -> None:
    """Fine-tune with each seed, keep the best model, and show the results."""
    config = saved_config(chosen.model)  # raises an error if it is not a RoFormer
    refuse_unfit(config, chosen)
    starting = load(chosen)
    words = {name: make() for name, make in WORDS.items()} if chosen.words else {}
    parts = read_parts(chosen)
    passages = read_passages(chosen, parts)
    if chosen.learning_rate is None:
        chosen.learning_rate = recorded_setting(chosen.output, "learning_rate") or fine_tuning_rate(config)
    settings = {name: value for name, value in vars(chosen).items() if name not in NOT_COMPARED}
    settings |= {"model": digest_of_model(chosen.model), "questions": parts.num_rows}
    settings |= {f"{part}_questions": digest_of_rows(parts[part]) if part in parts else None for part in PARTS}
    settings["passages"] = digest_of_text("\n".join(sorted(map(on_one_line, passages))))
    file = ResultsFile("train_retriever.py", chosen.output, settings)
    rows = file.read(read_rows) or []
    print(", ".join(f"{part}: {len(questions):,} questions" for part, questions in parts.items()))
    print(f"{len(passages):,} passages are searched")
    file.write(rows=rows)
    searches = {part: Search(parts[part], passages, part, chosen.device_batch) for part in parts if part != "train"}
    checkpoints, folder = chosen.output / ".checkpoints", chosen.output / "model"

    require_room(folder)

    def add(name: str, seed: int | None, score: Callable[[Search], dict[str, float]], **more) -> dict:
        found = {part: score(search) for part, search in searches.items()}
        rows.append({"name": name, "seed": seed, "scores": found, "ranks": [*searches.values()][-1].ranks, **more})
        return rows[-1]

    for name, similarities in words.items():
        if not any(row["name"] == name for row in rows):
            add(name, None, lambda search, by=similarities: search.scores_of_words(by))
            file.write(rows=rows)
    if not any(row["name"] == UNTRAINED for row in rows):
        add(UNTRAINED, None, lambda search: search.scores_of(starting))
        file.write(rows=rows)
    is_training = chosen.epochs + chosen.hard_epochs > 0

    def trained(seed: int) -> dict | None:
        return next((row for row in rows if (row["name"], row["seed"]) == (TRAINED, seed)), None)

    def lost() -> list[int]:
        first = best(rows)
        return [first["seed"]] if first and not is_kept(folder, first.get("weights"), weights_of(rows)) else []

    for seed, is_lost in to_train(chosen.seeds, trained, lost) if is_training else ():
        if is_lost:
            print(f"{folder} does not have the model of seed {seed}, so it is trained again")
        shutil.rmtree(checkpoints, ignore_errors=True)  # left by a stopped run
        try:
            model, log = train(chosen, parts, searches["validation"], seed, str(checkpoints))
            row = add(TRAINED, seed, lambda search, model=model: search.scores_of(model), log=log, weights="")
        except NotFinite as error:
            if is_lost:
                print(f"seed {seed} failed: {error}; its earlier result is kept")
            else:
                rows.append({"name": TRAINED, "seed": seed, "failed": str(error)})
                file.write(rows=rows)
            continue
        finally:
            shutil.rmtree(checkpoints, ignore_errors=True)
        if is_lost:  # where it was: of equal scores, the first is the best
            rows[rows.index(trained(seed))] = rows.pop()
        if best(rows) is row or (is_lost and not keeps_one_of(folder, weights_of(rows))):
            save(chosen, model, row, parts, folder)
            row["weights"] = digest_of_kept(folder)
        file.write(rows=rows)

    Console(markup=False).print(table_of(rows, [*searches][-1]))
    seeds = {f"seed {row['seed']}": row.get("failed") for row in rows if row["name"] == TRAINED}
    show_failed(seeds)
    if is_training and (first := best(rows)):
        missing = f"{folder} does not have the best model, of seed {first['seed']}"
        print(missing if lost() else f"best model: {folder}")


def on_one_line(text: str) -> str:
    """Escape line breaks, so that two texts are not one with a line break between them."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def read_rows(saved: dict) -> list[dict]:
    """Return the rows of a results.json. Raise a ValueError, TypeError or KeyError if one of them is misshapen."""
    names = [(row["name"], row["seed"]) for row in saved["rows"]]
    done = [row for row in saved["rows"] if not row.get("failed")]
    parts = {tuple(row["scores"]) for row in done}
    if len({*names}) < len(names) or not parts <= {PARTS[1:], PARTS[1:2]} or len(parts) > 1:
        raise ValueError("a row twice, or of other parts")
    if len({len(row["ranks"]) for row in done}) > 1:
        raise ValueError("rows of other questions")
    for row in saved["rows"]:
        expected = int if row["name"] == TRAINED else type(None)
        if not isinstance(row["name"], str) or not isinstance(row["seed"], expected):
            raise ValueError("a row without a name or seed")
        if row.get("failed"):
            continue
        scores = [of[metric] for of in row["scores"].values() for metric in METRICS]
        require_values(numbers=scores)
        if not scores or max(scores) > 1:
            raise ValueError("scores that are none")
        if not all(isinstance(rank, int) and rank >= 0 for rank in row["ranks"]):
            raise ValueError("ranks that are none")
    return [*saved["rows"]]


def best(rows: list[dict]) -> dict | None:
    """Return the trained row with the best validation score, the first of equal ones."""
    done = (row for row in rows if row["name"] == TRAINED and not row.get("failed"))
    return max(done, key=lambda row: row["scores"]["validation"][BEST], default=None)


def weights_of(rows: list[dict]) -> list[str | None]:
    """Return the digests of the models of the trained rows."""
    return [row.get("weights") for row in rows if row["name"] == TRAINED]


def table_of(rows: list[dict], part: str) -> Table:
    """Return a table of the scores: means over the seeds, with standard deviations."""
    table = Table(part)
    for name in METRICS:
        table.add_column(name, justify="right")
    for name in dict.fromkeys(row["name"] for row in rows):
        done = [row["scores"][part] for row in rows if row["name"] == name and not row.get("failed")]
        cells = ["failed"] if not done else [spread([scores[metric] for scores in done], ".3f") for metric in METRICS]
        table.add_row(name, *cells)
    return table


def save(
    chosen: argparse.Namespace,
    model: SentenceTransformer,
    row: dict,
    parts: datasets.DatasetDict,
    folder: Path,
) -> None:
    """Save a model with its card, in place of an earlier one."""
    part = [*row["scores"]][-1]
    data = published_name(getattr(chosen, part) or chosen.train)
    with output_folder(folder, force=True) as place:
        model.save(str(place), create_model_card=False)
        write_trained_card(
            place,
            chosen.output.resolve().name,
            f"Fine-tuned to find the passages that answer questions, with {len(parts['train']):,} questions of "
            f"{published_name(chosen.train)}; the epoch was chosen by {BEST} on {len(parts['validation']):,} others. "
            f"The vector of a text is the mean over its tokens, of which the first {chosen.length:,} are read.",
            base=chosen.model,
            data=[chosen.train],
            hyperparameters={name: getattr(chosen, name) for name in HYPERPARAMETERS} | {"seed": row["seed"]},
            scores=[
                EvalResult("sentence-similarity", data, data, *score, dataset_split=part)
                for score in row["scores"][part].items()
            ],
        )


if __name__ == "__main__":
    with exit_on_error("train_retriever"):
        main()
