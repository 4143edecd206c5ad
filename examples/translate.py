"""Train translation models that differ in their positions only, as in Table 1 of the RoFormer paper.

    python examples/translate.py examples/translation/multi30k.yaml --train train.de train.en --validation val.de val.en \
        --test test.de test.en --output RUNS
    python examples/translate.py --score RUNS/rotary-0/model --test test.de test.en

Line i of the second file of a pair is the translation of line i of the first. Both languages share a vocabulary. "rotary" is the
RoFormer, "sinusoidal" the Transformer; each seed trains both on the same batches. The model is the average of the last
checkpoints. BLEU is computed by sacrebleu on plain text. RUNS gets results.json, losses.png and a folder for each model. The
same command resumes a stopped run.
"""

import argparse
import statistics
from pathlib import Path

import datasets
import sacrebleu
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from modeling_roformer import RoFormerForConditionalGeneration, RoFormerSeq2SeqConfig
from modeling_roformer.output.atomic_folder import output_folder
from modeling_roformer.training.comparing.curves import draw_panels, points, smooth
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.checkpointing import Checkpointing
from modeling_roformer.training.runs.checkpoints import average_of_last
from modeling_roformer.training.runs.device import ON_CPU
from modeling_roformer.training.runs.digests import digest_of_rows
from modeling_roformer.training.runs.finite import EARLIER, NotFinite, has_null, show_failed
from modeling_roformer.training.runs.resuming import ResultsFile, run_lock
from modeling_roformer.training.translation.pairs import TokenBatches, read_pairs, train_tokenizer
from modeling_roformer.training.translation.setting import Setting, read_setting

NAMES = {"rotary": "RoFormer", "sinusoidal": "Transformer"}
LONGER = 50  # a translation has at most this many more tokens than its source, as in arXiv:1706.03762


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="?", metavar="SETTING.yaml", help="sizes and hyperparameters of the model")
    for part in ("train", "validation", "test"):
        parser.add_argument(
            f"--{part}", nargs=2, metavar=("SOURCE", "TARGET"), help="text files, compressed (.gz) or not"
        )
    parser.add_argument("--output", type=Path, help="folder of the runs")
    parser.add_argument(
        "--encodings", nargs="+", choices=NAMES, default=list(NAMES), help="position encodings to compare"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of weights, order and dropout")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--score", metavar="MODEL", help="only translate --test with a saved model")
    chosen = parser.parse_args()
    needed = ["test"] if chosen.score else ["setting", "train", "validation", "test", "output"]
    for name in needed:
        if getattr(chosen, name) is None:
            parser.error(f"{name if name == 'setting' else '--' + name} is missing")
    return chosen


def tokenize(files: list[str], tokenizer: PreTrainedTokenizerBase, longest: int) -> datasets.Dataset:
    """Read sentence pairs and return their `input_ids` and `labels`."""
    pairs = read_pairs(*files)
    pairs = pairs.map(
        lambda batch: tokenizer(batch["source"], text_target=batch["target"], return_attention_mask=False),
        batched=True,
        remove_columns=["source", "target"],
    )
    for path, column in zip(files, ("input_ids", "labels"), strict=True):
        for number, ids in enumerate(pairs[column], 1):
            if len(ids) > longest:
                raise TrainingError(
                    f"{path}, line {number}: the sentence has {len(ids)} tokens, but longest is {longest}: raise it, or "
                    "remove the line from both files"
                )
    return pairs


class CheckpointingSeq2SeqTrainer(Checkpointing, Seq2SeqTrainer):
    """Seq2SeqTrainer with atomic checkpoints."""


def train(
    setting: Setting, parts: dict, tokenizer, encoding: str, seed: int, chosen: argparse.Namespace
) -> Seq2SeqTrainer:
    """Train, from the last checkpoint if there is one. Return the Trainer, with the average of the last checkpoints.

    Raises NotFinite if the run fails.
    """
    set_seed(seed)
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    fields |= {
        "decoder_start_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": setting.longest + LONGER + 1,
    }
    model = RoFormerForConditionalGeneration(
        RoFormerSeq2SeqConfig(**fields | dict(setting.model) | {"position_encoding": encoding})
    )
    model.generation_config.update(num_beams=setting.beams)
    if setting.beams > 1:  # transformers does not save length_penalty without beam search
        model.generation_config.update(length_penalty=setting.length_penalty)
    folder = chosen.output / f"{encoding}-{seed}"
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
    )
    trainer.train_or_resume()
    model.load_state_dict(average_of_last(folder, setting.averaged), strict=False)
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


def score(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, files: list[str]) -> tuple[float, str, list[str]]:
    """Return BLEU, its signature, and the translations."""
    pairs = read_pairs(*files)
    translations = translate(model, tokenizer, pairs["source"][:])
    bleu = sacrebleu.BLEU()
    return bleu.corpus_score(translations, [pairs["target"][:]]).score, str(bleu.get_signature()), translations


def main() -> None:
    chosen, console = read_arguments(), Console()
    if chosen.score:
        model = AutoModelForSeq2SeqLM.from_pretrained(chosen.score)
        bleu, signature, _ = score(model, AutoTokenizer.from_pretrained(chosen.score), chosen.test)
        print(f"BLEU {bleu:.2f} ({signature})")
        return
    with run_lock(chosen.output):
        compare(chosen, console)


def compare(chosen: argparse.Namespace, console: Console) -> None:
    """Train a model for each encoding and seed, and show the results."""
    setting = read_setting(chosen.setting)
    texts = {part: read_pairs(*getattr(chosen, part)) for part in ("train", "validation", "test")}
    contents = {part: digest_of_rows(pairs) for part, pairs in texts.items()}
    results = ResultsFile(chosen.output, {**vars(setting), **contents, "bf16": chosen.bf16})
    runs = results.read(read_runs) or []
    results.write(runs=runs)
    place = chosen.output / "tokenizer"
    if not place.exists():
        sentences = (sentence for column in ("source", "target") for sentence in texts["train"][column])
        with output_folder(place) as folder:
            train_tokenizer(sentences, setting.vocabulary_size, setting.longest).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(place)
    parts = {part: tokenize(getattr(chosen, part), tokenizer, setting.longest) for part in ("train", "validation")}

    for seed in chosen.seeds:
        for encoding in chosen.encodings:
            model = chosen.output / f"{encoding}-{seed}" / "model"
            if done := next((run for run in runs if (run["encoding"], run["seed"]) == (encoding, seed)), None):
                if done.get("failed") or model.exists():
                    continue
                runs.remove(done)
                print(f"{model} is missing: it is trained again")
            print(f"{NAMES[encoding]}, seed {seed}")
            run = {"encoding": encoding, "seed": seed}
            try:
                trainer = train(setting, parts, tokenizer, encoding, seed, chosen)
            except NotFinite as error:
                runs.append({**run, "bleu": None, "failed": str(error)})
                results.write(runs=runs)
                continue
            with output_folder(model, force=True) as folder:
                trainer.model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            bleu, signature, translations = score(trainer.model, tokenizer, chosen.test)
            run |= {"bleu": bleu, "signature": signature}
            runs.append({**run, "translations": translations, "log": trainer.state.log_history})
            results.write(runs=runs)

    table = Table("", "BLEU", "validation loss")
    curves = {"training loss, smoothed": {}, "validation loss": {}}
    asked = [run for run in runs if run["encoding"] in chosen.encodings and run["seed"] in chosen.seeds]
    good = [run for run in asked if not run.get("failed")]
    for encoding in chosen.encodings:
        of_encoding = [run for run in good if run["encoding"] == encoding]
        columns = [run["bleu"] for run in of_encoding], [points(run["log"], "eval_loss")[-1][1] for run in of_encoding]
        table.add_row(
            f"{NAMES[encoding]} ({encoding})", *(spread(column) if column else "failed" for column in columns)
        )
        for run in of_encoding:
            curves["training loss, smoothed"][f"{encoding}, seed {run['seed']}"] = smooth(points(run["log"], "loss"))
            curves["validation loss"][f"{encoding}, seed {run['seed']}"] = points(run["log"], "eval_loss")
    console.print(table)
    show_failed({f"{NAMES[run['encoding']]}, seed {run['seed']}": run.get("failed") for run in asked})
    picture = draw_panels(chosen.output / "losses.png", curves)
    print(f"{good[-1]['signature']}\nlosses: {picture}; each folder beside it has a model")


def read_runs(saved: dict) -> list[dict]:
    """Return the runs of a results.json. Those for which an earlier version recorded NaN have failed."""
    return [run | {"failed": EARLIER} if "failed" not in run and has_null(run) else run for run in saved["runs"]]


def spread(values: list[float]) -> str:
    """Format mean and standard deviation."""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if values[1:] else "")


if __name__ == "__main__":
    with exit_on_error("translate"):
        main()
