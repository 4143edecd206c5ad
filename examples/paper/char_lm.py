"""Train a character language model with Performer, without and with RoPE: Figure 3 (right) of the RoFormer paper.

    python examples/paper/char_lm.py TEXT --output RUNS [--unit byte] [--prompt "ROMEO:"] [--paper]

TEXT is any text file; the paper uses enwik8, a dump of Wikipedia. The first 90 % are for training, the next 5 % for the
validation loss, and the last 5 % for the bits per character that are printed at the end. All models start with the same
weights and random features and read the same batches. They differ in where RoPE is applied: nowhere ("none"), "after"
Performer's feature map (equation 19), or "before" it. `--paper` sets the paper's size: 12 layers of 768 with 12 heads,
texts of 1,024 tokens, batches of 128, learning rate 1e-4; and the 266 features of the code that the paper cites,
64·ln 64 for heads of 64.
"""

import argparse
import math
import shutil
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed

from modeling_roformer import RoFormerConfig, RoFormerForCausalLM
from modeling_roformer.training import (
    FiniteCallback,
    TrainingError,
    draw_panels,
    exit_on_error,
    last_checkpoint,
    start_run,
)
from modeling_roformer.training.comparing.curves import points, smooth

VARIANTS = {
    "none": {"position_encoding": "none"},
    "after": {"linear_rotation": "after"},
    "before": {"linear_rotation": "before"},
}
LONGEST_PROMPT = 100  # characters, by default: a text may have all its characters on one line
PAPER = {
    "layers": 12,
    "hidden_size": 768,
    "heads": 12,
    "length": 1024,
    "batch_size": 128,
    "learning_rate": 1e-4,
    "features": 266,
}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--output", type=Path, required=True, help="a new folder, for the models of all variants")
    parser.add_argument("--resume", action="store_true", help="go on with the runs in --output")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="where RoPE is applied")
    parser.add_argument("--unit", choices=("character", "byte"), default="character", help="a token")
    parser.add_argument("--paper", action="store_true", help="the paper's size, in place of the next seven options")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=256, help="tokens per text")
    parser.add_argument("--batch-size", type=int, default=16, help="texts per step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--features", type=int, default=64, help="random features per head")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--eval-steps", type=int, default=100, help="steps between evaluations, and between checkpoints"
    )
    parser.add_argument(
        "--device-batch", type=int, help="texts that a device computes at once; default: the whole batch"
    )
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompt", help="text to continue at the end; default: the start of the first line of TEXT")
    parser.add_argument("--new-tokens", type=int, default=200)
    chosen = parser.parse_args()
    if chosen.paper:
        vars(chosen).update(PAPER)
    chosen.device_batch = chosen.device_batch or chosen.batch_size
    if chosen.batch_size % chosen.device_batch:
        parser.error(f"--batch-size {chosen.batch_size} is not a multiple of --device-batch {chosen.device_batch}")
    return chosen


def make_tokenizer(text: str, unit: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each character of a text, or for each of the 256 bytes."""
    units = sorted(pre_tokenizers.ByteLevel.alphabet() if unit == "byte" else set(text))
    vocabulary = {entry: number for number, entry in enumerate(["<unk>", *units])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[], unk_token="<unk>"))
    if unit == "byte":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:  # single characters: the time for a piece grows with the square of its length
        tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.ByteLevel() if unit == "byte" else decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", clean_up_tokenization_spaces=False)


def texts_of(ids: torch.Tensor, length: int, name: str) -> list[dict[str, torch.Tensor]]:
    """Cut ids into consecutive texts of `length` tokens."""
    pieces = ids[: len(ids) // length * length].view(-1, length)
    if not len(pieces):
        raise TrainingError(
            f"the text is too short: its {name} part has {len(ids):,} tokens, fewer than --length {length:,}"
        )
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def config_of(variant: str, vocabulary: int, chosen: argparse.Namespace) -> RoFormerConfig:
    return RoFormerConfig(
        vocab_size=vocabulary,
        hidden_size=chosen.hidden_size,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.heads,
        intermediate_size=4 * chosen.hidden_size,
        pad_token_id=None,
        is_decoder=True,
        use_cache=False,
        attention_type="linear",
        linear_feature_map="favor",
        linear_num_features=chosen.features,
        linear_seed=chosen.seed,
        **VARIANTS[variant],
    )


def new_model(config: RoFormerConfig, seed: int) -> RoFormerForCausalLM:
    """Return a model with random weights from the seed."""
    set_seed(seed)
    return RoFormerForCausalLM(config)


def train(model: RoFormerForCausalLM, parts: dict[str, list], chosen: argparse.Namespace, folder: Path) -> Trainer:
    """Train, from the last checkpoint if there is one."""
    arguments = TrainingArguments(
        str(folder),
        seed=chosen.seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.device_batch,
        per_device_eval_batch_size=chosen.device_batch,
        gradient_accumulation_steps=chosen.batch_size // chosen.device_batch,
        learning_rate=chosen.learning_rate,
        warmup_steps=min(100, chosen.steps // 10),
        bf16=chosen.bf16,
        eval_strategy="steps",
        eval_steps=chosen.eval_steps,
        save_steps=chosen.eval_steps,
        save_total_limit=2,
        logging_steps=max(1, chosen.steps // 200),
        report_to=[],
    )
    data = {"train_dataset": parts["training"], "eval_dataset": parts["validation"]}
    trainer = Trainer(model, arguments, callbacks=[FiniteCallback()], **data)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return trainer


def main() -> None:
    """Train a model of each variant and show the results."""
    chosen, console = read_arguments(), Console(markup=False)
    text = chosen.text.read_text(encoding="utf-8-sig")
    if not text.strip():
        raise TrainingError(f"{chosen.text} is empty: use another file")
    tokenizer = make_tokenizer(text, chosen.unit)
    ids = torch.tensor([i for line in tokenizer(text.splitlines(keepends=True))["input_ids"] for i in line])
    ends = [0, len(ids) * 18 // 20, len(ids) * 19 // 20, len(ids)]
    parts = {
        name: texts_of(ids[first:last], chosen.length, name)
        for name, first, last in zip(("training", "validation", "test"), ends, ends[1:], strict=False)
    }
    in_test = len(tokenizer.decode(ids[ends[2] :])) / (len(ids) - ends[2])  # characters per token
    with start_run(chosen.output, vars(chosen), {"text": chosen.text}, chosen.resume) as run:
        start = new_model(config_of("none", len(tokenizer), chosen), chosen.seed).state_dict()
        for name in [name for name in chosen.variants if name not in run.results]:
            model, checkpoints = new_model(config_of(name, len(tokenizer), chosen), chosen.seed), run.folder / name
            model.load_state_dict(start)
            print(f"RoPE: {name}, {model.num_parameters():,} parameters, {len(parts['training']):,} training texts")
            trainer = train(model, parts, chosen, checkpoints)
            loss = trainer.evaluate(parts["test"], metric_key_prefix="test")["test_loss"]
            model.config.use_cache = True
            with run.saving(f"{name}-model") as folder:
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            run.results[name] = {
                "bits_per_character": loss / math.log(2) / in_test,
                "validation_loss": points(trainer.state.log_history, "eval_loss")[-1][1],
                "log": trainer.state.log_history,
            }
            run.save_results()
            shutil.rmtree(checkpoints)
        table = Table("RoPE", "bits per character", "validation loss", title=str(chosen.text))
        for name, result in run.results.items():
            table.add_row(name, f"{result['bits_per_character']:.3f}", f"{result['validation_loss']:.4f}")
        console.print(table)
        logs = {name: result["log"] for name, result in run.results.items()}
        panels = {
            "training loss, smoothed": {name: smooth(points(log, "loss")) for name, log in logs.items()},
            "validation loss": {name: points(log, "eval_loss") for name, log in logs.items()},
        }
        picture = draw_panels(run.folder / "losses.png", panels)
        show_continuation(run.folder / f"{name}-model", name, tokenizer, text, chosen, console)
        print(f"\nlosses: {picture}; each folder beside it has a model")


def show_continuation(
    place: Path, name: str, tokenizer: PreTrainedTokenizerFast, text: str, chosen: argparse.Namespace, console: Console
) -> None:
    """Print what a saved model writes after a line of the text."""
    model = RoFormerForCausalLM.from_pretrained(place)
    prompt = chosen.prompt or next(line for line in text.splitlines(keepends=True) if line.strip())[:LONGEST_PROMPT]
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    set_seed(chosen.seed)
    # The size of the model's cache does not grow with the text.
    new = model.generate(inputs["input_ids"], max_new_tokens=chosen.new_tokens, do_sample=True, top_p=0.9)
    console.print(f"\nRoPE {name}, continued:\n{tokenizer.decode(new[0])}", markup=False, highlight=False)


if __name__ == "__main__":
    with exit_on_error("char_lm"):
        main()
