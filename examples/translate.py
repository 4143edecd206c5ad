"""Train a RoFormer from random weights to translate, with several seeds, and keep the best model.

    python examples/translate.py --train pairs.csv --source de --target en --output run

Sentence pairs are in .csv, .tsv, .jsonl or .parquet files, or in data sets on the Hub (--source translation.de).
Without --validation or --test, a tenth of --train replaces it. The model is the average of the last checkpoints. With
--position-encoding sinusoidal, it is the Transformer of the paper's Table 1. See docs/reference.md.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import sacrebleu
import torch
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_roformer import RoFormerForConditionalGeneration, RoFormerSeq2SeqConfig, training

PARTS = ("train", "validation", "test")
AVERAGED, SAVED = 5, 20  # checkpoints: the last 5 of 20 are averaged


def read_arguments() -> argparse.Namespace:
    parser = training.ScriptParser(__doc__)
    parser.add_argument("--train", required=True, help="sentence pairs")
    parser.add_argument("--validation", help="pairs for the loss that chooses the best seed")
    parser.add_argument("--test", help="pairs for BLEU")
    parser.add_argument("--source", default="source", metavar="COLUMN", help="column of the sentences")
    parser.add_argument("--target", default="target", metavar="COLUMN", help="column of their translations")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--resume", action="store_true", help="resume the run in --output")
    seeds = "seeds of weights, order and dropout"
    parser.add_argument(
        "--seeds", type=training.random_seed, nargs="+", default=[0], action=training.Distinct, help=seeds
    )
    parser.add_argument("--position-encoding", choices=("rotary", "sinusoidal"), default="rotary")
    parser.add_argument(
        "--vocabulary-size", type=training.at_least(1), default=4000, help="entries of the joint vocabulary"
    )
    parser.add_argument("--max-length", type=int, default=128, help="maximum number of tokens of a training sentence")
    parser.add_argument(
        "--layers", type=training.at_least(1), default=2, help="layers of the encoder, and of the decoder"
    )
    parser.add_argument("--width", type=training.at_least(1), default=128, help="width of the model")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=training.at_least(1), default=1000)
    parser.add_argument("--warmup-steps", type=training.at_least(0), default=200)
    parser.add_argument("--batch-size", type=training.at_least(1), default=64, help="pairs that are computed at once")
    parser.add_argument("--learning-rate", type=training.positive, default=1e-3)
    parser.add_argument("--bleu-tokenize", default="13a", help="tokens of BLEU, such as zh for Chinese")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    return parser.parse_args()


class SimilarLengths(LengthGroupedSampler):
    """Sampler that puts sentences of similar length into a batch, in an order that depends on seed and epoch alone.

    transformers' own draws the order from the global generator, so that a resumed run would read other batches.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int):
        super().__init__(batch_size, lengths=lengths, generator=torch.Generator())
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        self.generator.manual_seed(1_000_003 * self.seed + self.epoch)
        return super().__iter__()


class TranslationTrainer(Seq2SeqTrainer):
    """Trainer that reads its training pairs by `SimilarLengths`."""

    def _get_train_sampler(self, train_dataset=None) -> SimilarLengths:
        lengths = [len(ids) for ids in self.train_dataset["input_ids"]]
        return SimilarLengths(lengths, self.args.train_batch_size, self.args.seed)


def train(chosen: argparse.Namespace, parts: dict, tokenizer, seed: int, folder: Path) -> Seq2SeqTrainer:
    """Return the Trainer, with the average of the last checkpoints."""
    set_seed(seed)
    sizes = {"layers": chosen.layers, "attention_heads": max(1, chosen.width // 64), "ffn_dim": 4 * chosen.width}
    config = RoFormerSeq2SeqConfig(
        vocab_size=len(tokenizer),
        d_model=chosen.width,
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()},
        dropout=chosen.dropout,
        position_encoding=chosen.position_encoding,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = RoFormerForConditionalGeneration(config)
    arguments = Seq2SeqTrainingArguments(
        str(folder),
        seed=seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.batch_size,
        per_device_eval_batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="inverse_sqrt",
        warmup_steps=chosen.warmup_steps,
        adam_beta2=0.98,
        label_smoothing_factor=0.1,
        bf16=chosen.bf16,
        use_cpu=not torch.accelerator.is_available(),  # else Trainer refuses bfloat16 there
        eval_strategy="steps",
        eval_steps=max(1, chosen.steps // SAVED),
        save_steps=max(1, chosen.steps // SAVED),
        save_total_limit=AVERAGED,
        logging_steps=max(1, chosen.steps // 200),
        report_to=[],
    )
    trainer = TranslationTrainer(
        model,
        arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        processing_class=tokenizer,
        callbacks=[training.FiniteCallback()],
    )
    training.train_or_resume(trainer)
    model.load_state_dict(training.average_checkpoints(folder, AVERAGED), strict=False)
    return trainer


def main() -> None:
    chosen = read_arguments()
    if chosen.max_length < 2:
        raise training.TrainingError(f"--max-length is {chosen.max_length}; expected at least 2: a token and the end")
    bleu = sacrebleu.BLEU(tokenize=chosen.bleu_tokenize)
    files, columns = {part: getattr(chosen, part) for part in PARTS}, {"source": chosen.source, "target": chosen.target}
    with training.start_run(chosen.output, vars(chosen), files, chosen.resume) as run:
        options = {"named_by": ["--source", "--target"]}
        parts = {part: training.load_texts(file, columns, part, **options) for part, file in files.items() if file}
        for part in [part for part in PARTS if part not in parts]:
            parts["train"], parts[part] = training.split_by(parts["train"], "source", 0.1)
        sentences = (sentence for side in columns for sentence in parts["train"][side])
        tokenizer = training.train_translation_tokenizer(sentences, chosen.vocabulary_size, chosen.max_length)

        def tokenize(pair: dict) -> dict:
            return tokenizer(pair["source"], text_target=pair["target"], truncation=True)

        tokens = {
            part: pairs.map(tokenize, remove_columns=[*columns], desc="tokenizing") for part, pairs in parts.items()
        }
        for seed in map(str, chosen.seeds):
            folder = run.folder / f"seed-{seed}"
            if seed in run.results:
                shutil.rmtree(folder, ignore_errors=True)  # its checkpoints, if it was stopped while they were deleted
                continue
            print(f"seed {seed}")
            trainer = train(chosen, tokens, tokenizer, int(seed), folder)
            loss = trainer.evaluate()["eval_loss"]
            trainer.args.predict_with_generate = True
            ids = trainer.predict(tokens["test"], num_beams=4, max_new_tokens=2 * chosen.max_length).predictions
            translations = tokenizer.batch_decode(np.maximum(ids, 0), skip_special_tokens=True)
            score = bleu.corpus_score(translations, [parts["test"]["target"][:]]).score
            if all(loss < other["validation_loss"] for other in run.results.values()):
                text = f"Trained from random weights to translate, on {len(parts['train']):,} sentence pairs."
                options = {name: getattr(chosen, name) for name in ("steps", "batch_size", "learning_rate", "dropout")}
                card = {"data": [chosen.train], "hyperparameters": options | {"seed": int(seed)}}
                tested = chosen.test or chosen.train, "test"
                run.save(trainer.model, tokenizer, text, "translation", {"bleu": score}, tested, **card)
            result = {"bleu": score, "validation_loss": loss, "signature": str(bleu.get_signature())}
            run.results[seed] = result | {"translations": translations, "log": trainer.state.log_history}
            run.save_results()
            shutil.rmtree(folder)
        training.draw_learning_curves(
            {seed: result["log"] for seed, result in run.results.items()}, run.folder / "curves.png"
        )
        for name in ("bleu", "validation_loss"):
            print(f"{name}: {training.spread([of[name] for of in run.results.values()], '.2f')}")
        print(f"{bleu.get_signature()}\nbest model: {run.folder / 'model'}")


if __name__ == "__main__":
    with training.exit_on_error("translate"), training.one_bar():
        main()
