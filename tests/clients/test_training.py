"""Tools that train, explain and quantise, used as docs/serving.md says, and the numbers behind that."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from datasets import Dataset
from helpers import pages
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, TorchAoConfig, Trainer

from modeling_roformer.conversion import convert
from modeling_roformer.hub import bundle

pytestmark = pytest.mark.clients

TABLE = pages.PAGES["docs/serving.md"].partition("### What to type in each tool\n")[2].partition("\n### ")[0]
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
    torch.manual_seed(0)


def first_batch(trainer):
    """Return the first batch of a trainer, and its model in evaluation mode."""
    return next(iter(trainer.get_train_dataloader())), trainer.model.eval()


def test_each_line_of_python_on_the_page_is_tested():
    lines = [line for line in re.findall(r"^\| [\w: -]+ \| `([^`]+)`", TABLE, re.MULTILINE) if " --" not in line]
    source = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert len(lines) == 5 and all(re.sub(r"\s", "", line) in re.sub(r"\s", "", source) for line in lines)


def test_trl_computes_the_loss_of_the_next_words():
    from trl import SFTConfig, SFTTrainer

    class OwnLossTrainer(SFTTrainer):
        compute_loss = Trainer.compute_loss

    trainer = OwnLossTrainer(
        transformers.AutoModelForCausalLM.from_pretrained("converted/gpt"),
        SFTConfig("sft", max_steps=2, bf16=False, report_to=[]),
        train_dataset=Dataset.from_dict({"text": ["今天天气很好。", "天气不好。"] * 8}),
        processing_class=AutoTokenizer.from_pretrained("converted/gpt"),
    )
    assert trainer.train().global_step == 2 and trainer.train_dataset[0]["text"] == "今天天气很好。[SEP]"
    batch, model = first_batch(trainer)
    with torch.inference_mode():
        logits = type(model).forward(model, batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        found = trainer.compute_loss(model, batch).item()
        without = SFTTrainer.compute_loss(trainer, model, batch).item()
    expected = F.cross_entropy(logits.flatten(0, 1).double(), batch["labels"][:, 1:].flatten()).item()
    assert found == pytest.approx(expected, abs=1e-5)
    assert abs(without - expected) > 0.1, "the page says that trl's own loss leaves out a layer"
    assert {row[-1] for row in trainer.train_dataset["input_ids"]} == {model.config.eos_token_id}


@pytest.mark.parametrize(("strategy", "apart"), [("bfd", True), ("bfd_split", True), ("wrapped", False)])
def test_trl_keeps_packed_texts_apart_unless_it_wraps_them(strategy, apart):
    from trl import SFTConfig, SFTTrainer

    assert SFTConfig("sft", bf16=False).packing_strategy == "bfd"
    packing = {"packing": True, "packing_strategy": strategy, "max_length": 24, "per_device_train_batch_size": 1}
    trainer = SFTTrainer(
        transformers.AutoModelForCausalLM.from_pretrained("converted/gpt"),
        SFTConfig("sft", bf16=False, report_to=[], **packing),
        train_dataset=Dataset.from_dict({"text": ["今天天气很好。", "天气不好。"] * 8}),
        processing_class=AutoTokenizer.from_pretrained("converted/gpt"),
    )
    batch, model = first_batch(trainer)
    row = batch["input_ids"][0]
    begin, end = ((row == model.config.eos_token_id).nonzero().flatten()[:2] + 1).tolist()  # of the second text
    batch.pop("labels")
    with torch.inference_mode():
        together = model(**batch, use_cache=False).logits[0, begin:end]
        alone = model(row[None, begin:end]).logits[0]
    assert torch.allclose(together, alone, atol=1e-4) == apart


def test_trl_computes_the_loss_of_pairs():
    from trl import RewardConfig, RewardTrainer

    tokenizer = AutoTokenizer.from_pretrained("roformer-mini-zh")
    pairs = {"chosen_ids": ["押金应当退还。", "借款应当归还。"], "rejected_ids": ["不知道。", "无法回答。"]}
    trainer = RewardTrainer(
        transformers.AutoModelForSequenceClassification.from_pretrained("roformer-mini-zh", num_labels=1),
        RewardConfig("reward", max_steps=2, learning_rate=1e-3, bf16=False, report_to=[]),
        train_dataset=Dataset.from_dict({name: tokenizer(texts * 8).input_ids for name, texts in pairs.items()}),
        processing_class=tokenizer,
    )
    assert trainer.train().global_step == 2
    batch, model = first_batch(trainer)
    with torch.inference_mode():
        better, worse = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.double().chunk(2)
        found = trainer.compute_loss(model, batch)
    assert found.item() == pytest.approx(-F.logsigmoid(better - worse).mean().item(), abs=1e-5)


def test_lightning_saves_and_loads_what_it_trained():
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = transformers.AutoModelForSequenceClassification.from_pretrained("roformer-mini-zh")

        def training_step(self, batch, index):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    tokenizer = AutoTokenizer.from_pretrained("roformer-mini-zh")
    texts = ["租客要求退还押金。", "被告没有归还借款。"] * 8
    rows = [{**tokenizer(text), "labels": number % 2} for number, text in enumerate(texts)]
    batches = torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=DataCollatorWithPadding(tokenizer))
    classifier = Classifier().train()
    lightning.Trainer(max_epochs=5, accelerator="cpu", logger=False).fit(classifier, batches)
    (checkpoint,) = Path("checkpoints").glob("*.ckpt")
    loaded = Classifier.load_from_checkpoint(checkpoint).eval()
    inputs = tokenizer(texts[:2], return_tensors="pt", padding=True)
    with torch.inference_mode():
        logits = classifier.model.eval()(**inputs).logits
        assert torch.equal(loaded.model(**inputs).logits, logits) and logits.argmax(-1).tolist() == [0, 1]


def test_captum_gives_shares_that_sum_to_the_difference():
    from captum.attr import LayerIntegratedGradients

    tokenizer = AutoTokenizer.from_pretrained("roformer-mini-zh")
    model = transformers.AutoModelForMaskedLM.from_pretrained("roformer-mini-zh")
    ids = tokenizer("今天[MASK]非常好。", return_tensors="pt").input_ids
    place, word = ids[0].tolist().index(tokenizer.mask_token_id), tokenizer.convert_tokens_to_ids("天气")

    def score(input_ids):
        return model(input_ids).logits[:, place, word]

    gradients = LayerIntegratedGradients(score, model.get_input_embeddings())
    without = torch.where(ids < 100, ids, tokenizer.mask_token_id)
    shares, error = gradients.attribute(ids, without, n_steps=100, return_convergence_delta=True)
    assert shares.shape == (1, 7, 256) and abs(error.item()) < 0.05
    with torch.inference_mode():
        difference = score(ids) - score(without)
    assert shares.sum().item() == pytest.approx(difference.item(), abs=0.05)
    assert abs(difference.item()) > 0.5


def test_torchao_quantises_every_linear_layer_and_saves_what_it_computes():
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    folder = "roformer-mini-zh"
    exact = AutoModel.from_pretrained(folder)
    quantised = AutoModel.from_pretrained(
        folder, quantization_config=TorchAoConfig(Int8DynamicActivationInt8WeightConfig())
    )
    quantised.save_pretrained("roformer-mini-zh-int8")
    loaded = AutoModel.from_pretrained("roformer-mini-zh-int8")
    inputs = AutoTokenizer.from_pretrained(folder)("租客要求房东退还房屋押金。", return_tensors="pt")
    with torch.inference_mode():
        vectors, rounded, again = (model(**inputs).last_hidden_state for model in (exact, quantised, loaded))
    assert torch.cosine_similarity(vectors, rounded, dim=-1).min() > 0.99 and torch.equal(rounded, again)
    for model in (quantised, loaded):
        kinds = {type(layer.weight.data) for layer in model.modules() if isinstance(layer, torch.nn.Linear)}
        assert len(kinds) == 1 and torch.Tensor not in kinds
    size, whole = (Path(name, "model.safetensors").stat().st_size for name in ("roformer-mini-zh-int8", folder))
    assert 0.5 < size / whole < 0.6


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
