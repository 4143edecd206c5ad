"""A folder that is no saved model is refused with what helps, and an adapter with the lines that merge it."""

import os
import re
import subprocess

import peft
import pytest
import torch
import transformers
from helpers.command_line import ROFORMER
from helpers.messages import assert_states
from helpers.small_models import small_config

import modeling_roformer
from modeling_roformer import RoFormerTokenizer
from modeling_roformer.files.model_folder import why_no_model

TOKENIZER = RoFormerTokenizer(
    {entry: n for n, entry in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今"])}
)
HEADS = {
    "SEQ_CLS": ("AutoModelForSequenceClassification", {"num_labels": 3}),
    "TOKEN_CLS": ("AutoModelForTokenClassification", {"num_labels": 5}),
    "FEATURE_EXTRACTION": ("AutoModel", {}),
    None: ("AutoModelForMaskedLM", {}),
}


def adapter_in(folder, task="SEQ_CLS"):
    """An adapter as PEFT saves it, for a base model in another folder; the adapted model is returned."""
    head, fields = HEADS[task]
    modeling_roformer.RoFormerForMaskedLM(small_config(vocab_size=len(TOKENIZER))).save_pretrained(folder / "base")
    torch.manual_seed(0)
    model = getattr(transformers, head).from_pretrained(folder / "base", **fields)
    config = peft.LoraConfig(task_type=task, target_modules=["query", "value"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    adapted.save_pretrained(folder / "adapter")
    TOKENIZER.save_pretrained(folder / "adapter")
    return adapted.eval()


@pytest.mark.parametrize("task", HEADS)
def test_the_lines_that_merge_an_adapter_do(tmp_path, monkeypatch, task):
    adapted = adapter_in(tmp_path, task)
    monkeypatch.chdir(tmp_path)
    lines = re.findall("`(.*?)`", why_no_model(tmp_path / "adapter"))
    assert len(lines) == 2
    names = {**vars(modeling_roformer), "PeftModel": peft.PeftModel}
    exec("\n".join(lines), names | {name: getattr(transformers, name) for name, _ in HEADS.values()})
    assert why_no_model(tmp_path / "merged") is None
    loaded = getattr(transformers, HEADS[task][0]).from_pretrained("merged").eval()
    ids = torch.tensor([[2, 5, 3]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids)[0], adapted(ids)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"task_type": ["SEQ_CLS"], "auto_mapping": null}'])
def test_a_damaged_adapter_is_an_adapter_all_the_same(tmp_path, content):
    (tmp_path / "adapter_config.json").write_text(content)
    assert_states(why_no_model(tmp_path), tmp_path, "adapter")


def test_the_folder_of_a_run_is_not_its_model(tmp_path):
    adapter_in(tmp_path / "run")
    (tmp_path / "run" / "base").rename(tmp_path / "run" / "model")
    assert_states(why_no_model(tmp_path / "run"), tmp_path / "run", tmp_path / "run" / "model", "config.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "model.safetensors", "README.md"])
@pytest.mark.parametrize(
    "command",
    [
        ["card", "model"],
        ["bundle", "model", "out"],
        ["vocab-init", "model", "words.txt", "out"],
        ["export-tf", "model", "out"],
        ["export-onnx", "model", "out"],
        ["export-nomic-bert", "model", "out"],
        ["convert", "model", "out"],
        ["info", "model"],
    ],
    ids=lambda command: command[0],
)
def test_a_pipe_among_the_files_of_a_model_is_named(tmp_path, command, name):
    """Commands waited for it for ever, or took it for a missing file."""
    modeling_roformer.RoFormerForMaskedLM(small_config(vocab_size=len(TOKENIZER))).save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    TOKENIZER.save_vocabulary(str(tmp_path))
    (tmp_path / "vocab.txt").rename(tmp_path / "words.txt")
    (tmp_path / "model" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "model" / name)
    done = subprocess.run([ROFORMER, *command], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()
    assert_states(done.stderr, f"model/{name}", "pipe")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["embed", "adapter", "texts.txt", "out"],
        ["push", "adapter", "somebody/adapter"],
        ["card", "adapter"],
        ["convert", "adapter", "out"],
        ["export-onnx", "adapter", "out"],
        ["export-nomic-bert", "adapter", "out"],
    ],
)
def test_commands_tell_how_to_merge_an_adapter(tmp_path, command):
    adapter_in(tmp_path)
    (tmp_path / "texts.txt").write_text("今\n")
    done = subprocess.run([ROFORMER, *command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and "Traceback" not in done.stderr and not (tmp_path / "out").exists()
    assert_states(done.stderr, "PeftModel.from_pretrained", "AutoModelForSequenceClassification")
