"""Tools that train, explain and quantise: the blocks of docs/elsewhere.md, and the numbers behind them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import pages
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from torch.nn import functional as F

from modeling_roformer.conversion import convert
from modeling_roformer.hub import bundle

pytestmark = pytest.mark.clients

PAGE = "docs/elsewhere.md"
SECTION = pages.PAGES[PAGE].partition("## Training and serving\n")[2]
BLOCKS = {
    re.search(r"(?:from|import) (trl import SFT|trl import R|lightning|captum|torchao)", block.code)[1]: block
    for block in pages.blocks(PAGE)
    if block.language == "python" and block.code in SECTION and "mlflow" not in block.code
}
TRAIN = """
import os, sys
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

folder, output = sys.argv[1:]
options = {"trust_remote_code": True} if "code" in folder else {}
if not options:
    import modeling_roformer
else:
    sys.modules["modeling_roformer"] = None
set_seed(0)
tokenizer = AutoTokenizer.from_pretrained(folder, **options)
no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
model = AutoModelForSequenceClassification.from_pretrained(folder, **no_dropout, **options)
texts = ["租客要求退还押金。", "被告没有归还借款。", "房东没有退还押金。", "原告要求归还借款。"]
rows = Dataset.from_list([{**tokenizer(text), "labels": number % 2} for number, text in enumerate(texts)])
arguments = TrainingArguments(
    output, per_device_train_batch_size=4 // int(os.environ.get("WORLD_SIZE", 1)), max_steps=3, learning_rate=1e-3,
    report_to=[], use_cpu=True, save_strategy="no",
)
trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
trainer.train()
trainer.save_model()
if trainer.is_world_process_zero():
    print("processes:", trainer.accelerator.num_processes)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("clients")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", place / "roformer-mini-zh")
    convert(REPOSITORY / "tests" / "fixtures" / "legacy" / "gpt", place / "converted" / "gpt")
    return place


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def run(tool):
    """Run the block of a tool, compare what it prints with the page, and return its names."""
    torch.manual_seed(0)
    names = {"__name__": "__main__"}
    printed = pages.run_code(BLOCKS[tool], names)
    assert printed.endswith(BLOCKS[tool].output), f"{BLOCKS[tool]} prints\n{printed}"
    return names


def first_batch(trainer):
    """Return the first batch of a trainer, and its model in evaluation mode."""
    return next(iter(trainer.get_train_dataloader())), trainer.model.eval()


def test_every_block_is_tested():
    assert set(BLOCKS) == {"trl import SFT", "trl import R", "lightning", "captum", "torchao"}


def test_trl_computes_the_loss_of_the_next_words():
    from trl import SFTTrainer

    trainer = run("trl import SFT")["trainer"]
    assert trainer.state.global_step == 2
    batch, model = first_batch(trainer)
    with torch.inference_mode():
        logits = type(model).forward(model, batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        found = trainer.compute_loss(model, batch).item()
        without = SFTTrainer.compute_loss(trainer, model, batch).item()
    expected = F.cross_entropy(logits.flatten(0, 1).double(), batch["labels"][:, 1:].flatten()).item()
    assert found == pytest.approx(expected, abs=1e-5)
    assert abs(without - expected) > 0.1, "the page says that trl's own loss leaves out a layer"
    assert {row[-1] for row in trainer.train_dataset["input_ids"]} == {model.config.eos_token_id}


def test_trl_computes_the_loss_of_pairs():
    trainer = run("trl import R")["trainer"]
    batch, model = first_batch(trainer)
    with torch.inference_mode():
        better, worse = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.double().chunk(2)
        found = trainer.compute_loss(model, batch)
    assert found.item() == pytest.approx(-F.logsigmoid(better - worse).mean().item(), abs=1e-5)


def test_lightning_saves_and_loads_what_it_trained():
    names = run("lightning")
    inputs = names["tokenizer"]("租客要求退还押金。", return_tensors="pt")
    (checkpoint,) = Path("checkpoints").glob("*.ckpt")
    loaded = names["Classifier"].load_from_checkpoint(checkpoint).eval()
    with torch.inference_mode():
        assert torch.equal(loaded.model(**inputs).logits, names["classifier"].model(**inputs).logits)


def test_captum_gives_shares_that_sum_to_the_difference():
    names = run("captum")
    with torch.inference_mode():
        difference = names["score"](names["inputs"].input_ids) - names["score"](names["without"])
    assert names["shares"].sum().item() == pytest.approx(difference.item(), abs=0.05)
    assert abs(difference.item()) > 0.5


def test_torchao_quantises_every_linear_layer_and_saves_what_it_computes():
    names = run("torchao")
    for model in (names["model"], names["loaded"]):
        kinds = {type(layer.weight.data) for layer in model.modules() if isinstance(layer, torch.nn.Linear)}
        assert len(kinds) == 1 and torch.Tensor not in kinds
    size, exact = (
        Path(name, "model.safetensors").stat().st_size for name in ("roformer-mini-zh-int8", "roformer-mini-zh")
    )
    assert 0.5 < size / exact < 0.6


@pytest.mark.parametrize("with_code", [False, True])
def test_accelerate_launch_trains_in_two_processes_as_in_one(with_code, folder, tmp_path):
    model = folder / "roformer-mini-zh"
    if with_code:
        bundle(model, tmp_path / "with-code")
        model = tmp_path / "with-code"
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    launch = ["-m", "accelerate.commands.launch", "--num_machines=1", "--mixed_precision=no"]
    launch += ["--dynamo_backend=no", "--main_process_port=0"]
    for count in (1, 2):
        # On CPUs, accelerate itself starts processes by mpirun only; --multi_gpu starts them as torchrun does.
        several = ["--multi_gpu"] if count > 1 else ["--cpu"]
        command = [sys.executable, *launch, *several, f"--num_processes={count}", "train.py", str(model), f"out{count}"]
        environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and f"processes: {count}\n" in done.stdout, done.stderr[-3000:]
    one, two = (load_file(tmp_path / f"out{count}" / "model.safetensors") for count in (1, 2))
    start = load_file(folder / "roformer-mini-zh" / "model.safetensors")
    assert max((one[name] - start[name]).abs().max() for name in one.keys() & start.keys()) > 1e-3
    # Adam divides by the gradients' size, so that the order of a sum moves the smallest ones by a step.
    assert all(torch.isclose(one[name], two[name], rtol=0, atol=1e-4).float().mean() > 0.99 for name in one)
