"""Train a translation model, or models that differ in their positions only, as in Table 1 of the RoFormer paper.

    python examples/translate.py --train pairs.csv --encodings rotary --output RUNS
    python examples/translate.py examples/translation/multi30k.yaml --train train.de train.en \
        --validation val.de val.en --test test.de test.en --output RUNS
    python examples/translate.py --score RUNS/rotary-0/model --test test.de test.en

Sentence pairs are a table (CSV, TSV, JSON Lines, Parquet, or a data set's NAME or NAME:CONFIG), or two text files: line
i of the second is the translation of line i of the first. Without --validation or --test, a tenth of --train, at most
1,000 sentences, replaces it. Both languages share a vocabulary. "rotary" is the RoFormer, "sinusoidal" the Transformer;
each seed trains both on the same batches. The model is the average of the last checkpoints. BLEU is computed by
sacrebleu on plain text. RUNS gets results.json, losses.png and a folder for each model. The same command resumes a
stopped run. See docs/translation.md.
"""

import argparse
from itertools import chain
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import require_files, require_place, seed_number
from modeling_roformer.training.runs.data_sets import require_sources

NAMES = {"rotary": "RoFormer", "sinusoidal": "Transformer"}
SETTING = Path(__file__).with_name("translation") / "small.yaml"
PARTS = ("train", "validation", "test")
HELD_OUT, MOST_HELD_OUT, FEWEST = 0.1, 1000, 10  # share and number of sentences; the fewest with such a share
TOKENIZATIONS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab")  # those of sacrebleu that need no download
LONGER = 50  # a translation has at most this many more tokens than its source, as in arXiv:1706.03762


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "setting", nargs="?", default=SETTING, metavar="SETTING.yaml", help=f"hyperparameters; default: {SETTING.name}"
    )
    for option in ("--train", "--validation", "--test"):
        parser.add_argument(option, nargs="+", metavar="FILE", help="a table, or a file of each language")
    for option in ("--source", "--target"):
        parser.add_argument(
            option, metavar="COLUMN", help="column of a table; default: one of two, or that of this name"
        )
    parser.add_argument("--output", type=Path, help="folder of the runs")
    parser.add_argument(
        "--encodings", nargs="+", choices=NAMES, default=list(NAMES), help="position encodings to compare"
    )
    parser.add_argument("--seeds", type=seed_number, nargs="+", default=[0], help="seeds of weights, order and dropout")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument(
        "--bleu-tokenize",
        choices=TOKENIZATIONS,
        default=TOKENIZATIONS[0],
        help="tokens of BLEU: zh for Chinese, ja-mecab for Japanese; default: %(default)s, for words between spaces",
    )
    parser.add_argument("--score", metavar="MODEL", help="only translate --test with a saved model")
    chosen = parser.parse_args()
    for name in ["test"] if chosen.score else ["train", "output"]:
        if getattr(chosen, name) is None:
            parser.error(f"--{name} is missing")
    for part in PARTS:
        if len(getattr(chosen, part) or [""]) > 2:
            parser.error(f"--{part} has more than two files; write SETTING.yaml first")
        require_sources(getattr(chosen, part) or [])
    require_files([chosen.setting])
    if chosen.score:
        require_place(chosen.score)
    chosen.encodings, chosen.seeds = ([*dict.fromkeys(values)] for values in (chosen.encodings, chosen.seeds))
    return chosen


with exit_on_error("translate"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    import datasets
    import sacrebleu
    import torch
    from huggingface_hub import EvalResult
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    from transformers import (
        AutoModelForSeq2SeqLM,
        DataCollatorForSeq2Seq,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        set_seed,
    )

    from modeling_roformer import RoFormerForConditionalGeneration, RoFormerSeq2SeqConfig
    from modeling_roformer.files.atomic_folder import output_folder
    from modeling_roformer.model_cards.trained_card import published_name, write_trained_card
    from modeling_roformer.training.comparing.curves import draw_panels, points, smooth
    from modeling_roformer.training.runs.checkpointing import Checkpointing
    from modeling_roformer.training.runs.device import ON_CPU
    from modeling_roformer.training.runs.digests import digest_of_rows, digest_of_tokenizer
    from modeling_roformer.training.runs.finite import NotFinite, show_failed
    from modeling_roformer.training.runs.kept_model import digest_of_kept, is_kept, require_room
    from modeling_roformer.training.runs.models import saved_tokenizer
    from modeling_roformer.training.runs.resuming import ResultsFile, report, require_values, run_lock
    from modeling_roformer.training.runs.spread import spread
    from modeling_roformer.training.translation.pairs import (
        COLUMNS,
        TokenBatches,
        hold_out,
        read_pairs,
        train_tokenizer,
    )
    from modeling_roformer.training.translation.setting import Setting, read_setting


def read_part(chosen: argparse.Namespace, part: str) -> datasets.Dataset:
    """Read the sentence pairs of a split."""
    columns = [getattr(chosen, side) or side for side in COLUMNS] if chosen.source or chosen.target else None
    files = getattr(chosen, part)
    return read_pairs(files[0], files[1] if files[1:] else None, columns, part)


def read_parts(chosen: argparse.Namespace) -> dict[str, datasets.Dataset]:
    """Read the sentence pairs of all splits, and hold out those that are not given."""
    parts = {part: read_part(chosen, part) for part in PARTS if getattr(chosen, part)}
    missing, pairs = [part for part in PARTS if part not in parts], parts["train"]
    needed = FEWEST + len(missing) - 1  # each part takes at least one sentence
    if missing and (different := len(set(pairs["source"]))) < needed:
        raise TrainingError(
            f"{chosen.train[0]} has {len(pairs)} pairs, of {different} different sentences; expected at least {needed} "
            f"to hold out {' and '.join(f'--{part}' for part in missing)}"
        )
    for part in missing:
        parts["train"], parts[part] = hold_out(parts["train"], HELD_OUT, MOST_HELD_OUT)
    return parts


def tokenize(pairs: datasets.Dataset, files: list[str], tokenizer: PreTrainedTokenizerBase, longest: int):
    """Return the `input_ids` and `labels` of sentence pairs. `files` are named in errors."""
    ids = pairs.map(
        lambda batch: tokenizer(batch["source"], text_target=batch["target"], return_attention_mask=False),
        batched=True,
        remove_columns=list(COLUMNS),
    )
    for side, column in zip(COLUMNS, ("input_ids", "labels"), strict=True):
        for number, tokens in enumerate(ids[column]):
            if len(tokens) > longest:
                sentence = f"{pairs[number][side][:30]!r}…"
                raise TrainingError(
                    f"{' and '.join(files)}: {sentence} has {len(tokens)} tokens, but longest is {longest}: raise it, "
                    "or remove the pair"
                )
    return ids


class CheckpointingSeq2SeqTrainer(Checkpointing, Seq2SeqTrainer):
    """Seq2SeqTrainer with atomic checkpoints."""


def config_of(setting: Setting, tokenizer: PreTrainedTokenizerBase, encoding: str) -> RoFormerSeq2SeqConfig:
    """Return the configuration of a model. Raise a ValueError if a field of the setting's model is invalid."""
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    fields |= {
        "decoder_start_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": setting.longest + LONGER + 1,
    }
    config = RoFormerSeq2SeqConfig(**fields | dict(setting.model) | {"position_encoding": encoding})
    with torch.device("meta"):
        RoFormerForConditionalGeneration(config)  # its layers check more fields, such as dropout
    return config


def train(
    setting: Setting,
    parts: dict,
    tokenizer: PreTrainedTokenizerBase,
    config: RoFormerSeq2SeqConfig,
    seed: int,
    chosen: argparse.Namespace,
    run: dict,
) -> Seq2SeqTrainer:
    """Train, from the last checkpoint of this run if there is one. Return the Trainer, with the average of the last
    checkpoints.

    Raises NotFinite if the run fails.
    """
    set_seed(seed)
    model = RoFormerForConditionalGeneration(config)
    model.generation_config.update(num_beams=setting.beams)
    if setting.beams > 1:  # transformers does not save length_penalty without beam search
        model.generation_config.update(length_penalty=setting.length_penalty)
    folder = chosen.output / f"{config.position_encoding}-{seed}"
    arguments = Seq2SeqTrainingArguments(
        str(folder),
        seed=seed,
        max_steps=setting.steps,
        per_device_train_batch_size=1,  # batches of `TokenBatches`
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=setting.accumulation,
        train_sampling_strategy="sequential",
        learning_rate=setting.learning_rate,
        lr_scheduler_type="inverse_sqrt",
        warmup_steps=setting.warmup_steps,
        adam_beta1=0.9,
        adam_beta2=0.98,
        weight_decay=0.0,
        label_smoothing_factor=setting.label_smoothing,
        bf16=chosen.bf16,
        eval_strategy="steps",
        eval_steps=setting.save_steps,
        save_steps=setting.save_steps,
        save_total_limit=setting.averaged,
        logging_steps=max(1, setting.steps // 200),
        prediction_loss_only=True,
        remove_unused_columns=False,
        use_cpu=ON_CPU,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
    )
    collate = DataCollatorForSeq2Seq(tokenizer, model)
    trainer = CheckpointingSeq2SeqTrainer(
        model,
        arguments,
        train_dataset=TokenBatches(parts["train"], setting.batch_tokens, setting.steps * setting.accumulation, seed),
        eval_dataset=TokenBatches.once(parts["validation"], setting.batch_tokens),
        data_collator=lambda batches: collate(batches[0]),
        processing_class=tokenizer,
        run=run,
    )
    trainer.train_or_resume()
    model.load_state_dict(trainer.average_of_last(setting.averaged), strict=False)
    trainer.require_finite_weights()
    return trainer


@torch.inference_mode()
def translate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: list[str], at_once: int = 32
) -> list[str]:
    """Translate sentences with the model's generation config."""
    model.eval()
    by_length = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    translations = {}
    for start in track(range(0, len(sentences), at_once), "translating"):
        numbers = by_length[start : start + at_once]
        inputs = tokenizer([sentences[number] for number in numbers], padding=True, return_tensors="pt").to(
            model.device
        )
        ids = model.generate(**inputs, max_new_tokens=inputs["input_ids"].shape[1] + LONGER)
        translations |= zip(numbers, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
    return [translations[number].strip() for number in range(len(sentences))]


def bleu_of(tokenization: str) -> sacrebleu.BLEU:
    """Return the metric. Raise a TrainingError if the tokenization needs packages that are not installed."""
    try:
        return sacrebleu.BLEU(tokenize=tokenization)
    except RuntimeError:  # sacrebleu's message has several lines
        extra = f"sacrebleu[{tokenization[:2]}]"
        raise TrainingError(
            f"--bleu-tokenize {tokenization} needs packages that are not installed: `pip install '{extra}'` installs "
            "them"
        ) from None


def score(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: datasets.Dataset, bleu: sacrebleu.BLEU
) -> tuple[float, str, list[str]]:
    """Return BLEU, its signature, and the translations."""
    translations = translate(model, tokenizer, pairs["source"][:])
    return bleu.corpus_score(translations, [pairs["target"][:]]).score, str(bleu.get_signature()), translations


def main() -> None:
    chosen, console = read_arguments(), Console(markup=False)
    metric = bleu_of(chosen.bleu_tokenize)
    if chosen.score:
        model = AutoModelForSeq2SeqLM.from_pretrained(require_place(chosen.score))
        bleu, signature, _ = score(model, saved_tokenizer(chosen.score), read_part(chosen, "test"), metric)
        print(f"BLEU {bleu:.2f} ({signature})")
        return
    with run_lock(chosen.output):
        compare(chosen, metric, console)


def recorded(saved: dict) -> tuple[list[dict], str]:
    """Return the runs of a results file, and the digest of its tokenizer, which earlier versions did not record.

    Raises a ValueError, LookupError or TypeError if it lacks what is read later.
    """
    runs = [*saved["runs"]]
    for run in runs:
        if run["encoding"] not in NAMES or not isinstance(run["seed"], int):
            raise ValueError("a run without a name")
        if run.get("failed"):
            texts, numbers = [run["failed"]], []
        else:
            losses = points(run["log"], "loss"), points(run["log"], "eval_loss")
            texts, numbers = (
                [run["signature"], run.get("weights") or ""],
                [run["bleu"], losses[1][-1][1], *chain(*chain(*losses))],
            )
        require_values(texts, numbers)
        if not run.get("failed") and run["bleu"] > 100:
            raise ValueError("a BLEU above 100")
    require_values([saved.get("tokenizer", "")])
    if len({(run["encoding"], run["seed"]) for run in runs}) < len(runs):
        raise ValueError("two runs of one name")
    return runs, saved.get("tokenizer", "")


def load_or_train_tokenizer(place: Path, texts: datasets.Dataset, setting: Setting) -> PreTrainedTokenizerBase:
    """Return the tokenizer in the folder of a run, or train one on the sentences of both languages."""
    if not place.exists():
        sentences = (sentence for column in COLUMNS for sentence in texts[column])
        return train_tokenizer(sentences, setting.vocabulary_size, setting.longest)
    return saved_tokenizer(place)


def compare(chosen: argparse.Namespace, metric: sacrebleu.BLEU, console: Console) -> None:
    """Train a model for each encoding and seed, and show the results."""
    setting = read_setting(chosen.setting)
    texts = read_parts(chosen)
    print(", ".join(f"{part}: {len(pairs):,} pairs" for part, pairs in texts.items()))
    learned, tested = {*texts["train"]["source"]}, texts["test"]["source"]
    known = sum(sentence in learned for sentence in tested)
    print(f"{known:,} of the {len(tested):,} test sentences are also in training.")
    options = {"bf16": chosen.bf16, "bleu_tokenize": chosen.bleu_tokenize}
    contents = {part: digest_of_rows(pairs) for part, pairs in texts.items()}
    settings = {**vars(setting), **contents, **options}
    results = ResultsFile("translate.py", chosen.output, settings)
    runs, known_tokenizer = results.read(recorded) or ([], "")
    if not all(run.get("failed") or f"|tok:{chosen.bleu_tokenize}" in run["signature"] for run in runs):
        report(results.path, ["bleu_tokenize"], [])  # which earlier versions did not record
    place = chosen.output / "tokenizer"
    tokenizer = load_or_train_tokenizer(place, texts["train"], setting)
    own_tokenizer = digest_of_tokenizer(tokenizer)
    if known_tokenizer and own_tokenizer != known_tokenizer:
        raise TrainingError(f"{place} is not the tokenizer of {results.path}: restore it, or name a new folder")
    files = {part: getattr(chosen, part) or chosen.train for part in PARTS}
    parts = {part: tokenize(texts[part], files[part], tokenizer, setting.longest) for part in PARTS}
    configs = {encoding: config_of(setting, tokenizer, encoding) for encoding in chosen.encodings}

    def write() -> None:
        results.write(runs=runs, tokenizer=own_tokenizer)

    write()  # the settings are valid
    if not place.exists():
        with output_folder(place) as folder:
            tokenizer.save_pretrained(folder)

    for seed in chosen.seeds:
        for encoding in chosen.encodings:
            model = chosen.output / f"{encoding}-{seed}" / "model"
            if done := next((run for run in runs if (run["encoding"], run["seed"]) == (encoding, seed)), None):
                if done.get("failed") or is_kept(model, done.get("weights")):
                    continue
                print(f"the model of {NAMES[encoding]}, seed {seed}, is missing in {model}, so it is trained again")
            require_room(model)
            print(f"{NAMES[encoding]}, seed {seed}")
            run = {"encoding": encoding, "seed": seed}
            try:
                own = settings | run | {"tokenizer": own_tokenizer}
                trainer = train(setting, parts, tokenizer, configs[encoding], seed, chosen, own)
            except NotFinite as error:
                if done:
                    print(f"{NAMES[encoding]}, seed {seed}, failed: {error}; its earlier result is kept")
                else:
                    runs.append({**run, "bleu": None, "failed": str(error)})
                    write()
                continue
            bleu, signature, translations = score(trainer.model, tokenizer, texts["test"], metric)
            with output_folder(model, force=True) as folder:
                trainer.model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                write_card(folder, chosen, setting, texts, run, bleu, signature)
            run |= {"bleu": bleu, "signature": signature, "weights": digest_of_kept(model)}
            run |= {"translations": translations, "log": trainer.state.log_history}
            runs = [run if other is done else other for other in runs] if done else [*runs, run]
            write()

    table = Table("", "BLEU", "validation loss")
    curves = {"training loss, smoothed": {}, "validation loss": {}}
    asked = [run for run in runs if run["encoding"] in chosen.encodings and run["seed"] in chosen.seeds]
    good = [run for run in asked if not run.get("failed")]
    for encoding in chosen.encodings:
        of_encoding = [run for run in good if run["encoding"] == encoding]
        columns = [run["bleu"] for run in of_encoding], [points(run["log"], "eval_loss")[-1][1] for run in of_encoding]
        table.add_row(
            f"{NAMES[encoding]} ({encoding})", *(spread(column, ".2f") if column else "failed" for column in columns)
        )
        for run in of_encoding:
            curves["training loss, smoothed"][f"{encoding}, seed {run['seed']}"] = smooth(points(run["log"], "loss"))
            curves["validation loss"][f"{encoding}, seed {run['seed']}"] = points(run["log"], "eval_loss")
    console.print(table)
    show_failed({f"{NAMES[run['encoding']]}, seed {run['seed']}": run.get("failed") for run in asked})
    picture = draw_panels(chosen.output / "losses.png", curves)
    print(f"{good[-1]['signature']}\nlosses: {picture}; each folder beside it has a model")


def write_card(
    folder: Path, chosen: argparse.Namespace, setting: Setting, texts: dict, run: dict, bleu: float, signature: str
) -> None:
    """Write the card of a trained model."""
    data = {part: " and ".join(map(published_name, getattr(chosen, part) or chosen.train)) for part in PARTS}
    known = vars(setting) | {"model": None, **run, "bf16": chosen.bf16}
    measured = {"dataset_split": "test", "metric_args": {"tokenize": chosen.bleu_tokenize}}
    write_trained_card(
        folder,
        chosen.output.absolute().name,
        f"Trained from random weights to translate, on {len(texts['train']):,} sentence pairs of {data['train']}. The "
        "weights are the average of the last checkpoints.",
        data=chosen.train,
        hyperparameters=known,
        scores=[EvalResult("translation", data["test"], data["test"], "bleu", bleu, **measured)],
        results=f"BLEU {bleu:.2f} on {len(texts['test']):,} pairs of {data['test']} ({signature})",
    )


if __name__ == "__main__":
    with exit_on_error("translate"):
        main()
