"""Small inputs of each script that can resume, and its command line."""

import json
import shutil
from pathlib import Path

import torch
from helpers.paths import REPOSITORY
from helpers.small_models import TINY

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer

EXAMPLES = REPOSITORY / "examples"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
WORDS = "明月几时有把酒问青天不知今夕是何年"
DOCUMENTS = ["明月旋转，明月几时有。把酒问青天。", "不知天上宫阙，今夕是何年。", "没有句号的一行"] * 3
SETTING = """
vocabulary_size: 290
longest: 24
batch_tokens: 96
steps: 2
warmup_steps: 1
save_steps: 1
averaged: 1
beams: 2
model: {d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
  encoder_ffn_dim: 16, decoder_ffn_dim: 16}
"""


def save_model(folder: Path, seed: int = 0, **fields) -> None:
    tokenizer = RoFormerTokenizer(str(VOCAB))
    torch.manual_seed(seed)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=len(tokenizer), **TINY, **fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_inputs(folder: Path) -> None:
    """Write the inputs of all scripts."""
    save_model(folder / "a" / "model")
    write(folder / "text.txt", "".join(f"{i} times {i} is {i * i}.\n" for i in range(120)))
    write(folder / "corpus.txt", "\n".join(DOCUMENTS))
    write(folder / "held-out.txt", DOCUMENTS[0])
    write(folder / "stages.yaml", "stages: [{length: 16, batch_size: 4, steps: 2, learning_rate: 1e-3}]")
    write(folder / "config.json", json.dumps(TINY))
    for part in ("train", "dev"):
        lines = (f"{WORDS[i : i + 4]}\t{i % 2}" for i in range(12))
        write(folder / "glue" / "sst2" / f"{part}.tsv", "\n".join(lines))
    write(folder / "reviews.tsv", "\n".join(f"{WORDS[i : i + 4]}\t{'好坏'[i % 2]}" for i in range(12)))
    for part in ("train", "validation", "test"):
        write(folder / f"{part}.de", "".join(f"{i} und {i}\n" for i in range(8)))
        write(folder / f"{part}.en", "".join(f"{i} and {i}\n" for i in range(8)))
    for part, rows in (("questions", range(8)), ("test_questions", range(8, 12))):
        lines = (f"{WORDS[i : i + 3]}\t{WORDS[i : i + 6]}" for i in rows)
        write(folder / f"{part}.tsv", "\n".join(["question\tpassage", *lines]))
    write(folder / "setting.yaml", SETTING)
    shutil.copy(EXAMPLES / "triplets.jsonl", folder)


def command(script: str, inputs: Path) -> list:
    """Return the arguments of a script but --output."""
    place = {path.name: path for path in inputs.iterdir()}
    model = inputs / "a" / "model"
    if script == "paper/char_lm":
        small = (
            "--variants after --steps 2 --eval-steps 1 --layers 1 --hidden-size 16 --heads 2 --length 16 --batch-size 4"
        )
        return [place["text.txt"], *small.split(), "--features", 8, "--new-tokens", 1]
    if script == "paper/position_laboratory/compare":
        small = "--encodings rotary --layers 1 --hidden-size 8 --heads 2 --length 8 --batch-size 4 --steps 2"
        return [place["text.txt"], *small.split()]
    if script == "finetune_glue":
        small = "--tasks sst2 --epochs 1 --length 16 --batch-size 12 --learning-rates 1e-3"
        return ["--models", model, "--data", place["glue"], *small.split()]
    if script == "finetune_classification":
        return [model, "--train", place["reviews.tsv"], "--epochs", 1, "--batch-size", 12]
    if script == "train_retriever":
        small = "--epochs 1 --hard-epochs 0 --batch-size 4 --length 16 --learning-rate 1e-3"
        return [model, "--train", place["questions.tsv"], "--validation", place["test_questions.tsv"], *small.split()]
    if script == "finetune_triplet":
        return [place["triplets.jsonl"], "--models", model, "--epochs", 1, "--max-length", 16]
    if script == "translate":
        files = [[f"--{part}", place[f"{part}.de"], place[f"{part}.en"]] for part in ("train", "validation", "test")]
        return [place["setting.yaml"], *(word for pair in files for word in pair), "--encodings", "rotary"]
    shared = [place["stages.yaml"], "--corpus", place["corpus.txt"], "--logging-steps", 1]
    if script == "pretrain_mlm":
        return [*shared, "--from", model, "--eval", place["held-out.txt"]]
    tokenizer = ["--tokenizer", VOCAB, "--config", place["config.json"]]
    return [*shared, *tokenizer, "--encodings", "rotary"]  # paper/compare_position_embeddings
