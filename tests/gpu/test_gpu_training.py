"""Training on a GPU: pre-training, Trainer, Muon, nn.DataParallel, and FSDP in one process. `make test-gpu` runs it."""

import json
import math
import re
import runpy
import sys

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.small_models import small_model
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

from modeling_roformer.training import FiniteCallback, NotFinite
from modeling_roformer.training.pretraining.muon import MuonAndAdamW

pytestmark = pytest.mark.cuda
IDS = torch.randint(5, 100, (8, 24), generator=torch.Generator().manual_seed(3))


def losses_of(model, optimizer, steps=5, autocast=False):
    """Return the loss of each step on the same batch."""
    losses, ids = [], IDS.to(model.device)
    for _ in range(steps):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_model(**fields):
    return small_model("RoFormerForMaskedLM", initializer_range=0.1, **fields)


@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear"}])
def test_muon_learns_as_on_a_cpu(fields):
    """Its orthogonalisation is in bfloat16, which each device rounds in its own order."""
    losses = {}
    for device in ("cpu", "cuda"):
        model = make_model(**fields).to(device)
        optimizer = MuonAndAdamW(model, set(), 1e-2, 0.01, (0.9, 0.999), 1e-8)
        losses[device] = torch.tensor(losses_of(model, optimizer))
    torch.testing.assert_close(losses["cuda"], losses["cpu"], atol=0.02, rtol=0.01)
    assert losses["cuda"][-1] < losses["cuda"][0] - 0.1


@pytest.mark.parametrize("precision", [[], ["--no-bf16"]])
def test_pretraining(precision, tmp_path, monkeypatch):
    """Two stages of the script, the second with Muon."""
    lines = (REPOSITORY / "examples" / "long_document.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "corpus.txt").write_text("".join(lines[:20]), encoding="utf-8")
    (tmp_path / "stages.yaml").write_text(
        "stages:\n"
        "  - {length: 32, batch_size: 8, steps: 4, learning_rate: 1e-3}\n"
        "  - {length: 64, batch_size: 8, steps: 4, learning_rate: 1e-3, optimizer: muon}\n"
    )
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    script, model = REPOSITORY / "examples" / "pretrain_mlm.py", REPOSITORY / "examples" / "roformer-mini-zh"
    options = {"corpus": "corpus.txt", "config": "config.json", "output": "run"}
    paths = [word for name, file in options.items() for word in (f"--{name}", str(tmp_path / file))]
    monkeypatch.setattr(
        sys, "argv", [str(script), str(tmp_path / "stages.yaml"), *paths, "--tokenizer", str(model), *precision]
    )
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    runpy.run_path(str(script), run_name="__main__")
    assert torch.cuda.max_memory_allocated() > before  # it was trained there
    assert list((tmp_path / "run").rglob("model.safetensors"))


def test_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": row, "labels": row} for row in IDS]
    options = dict(per_device_train_batch_size=4, num_train_epochs=2, report_to=[], save_strategy="no", bf16=True)
    options |= dict(logging_steps=1, disable_tqdm=True, learning_rate=1e-2, lr_scheduler_type="constant")
    trainer = Trainer(make_model(), TrainingArguments(tmp_path, **options), train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert trainer.model.device.type == "cuda"
    assert len(losses) == 4 and losses[-1] < losses[0]


@pytest.mark.parametrize("save_steps", [2, 3])
def test_a_gradient_that_is_not_finite(tmp_path, save_steps):
    """The step and the name are told, although the host reads them a step later; and no checkpoint has NaN."""
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": row, "labels": row} for row in IDS]
    options = dict(per_device_train_batch_size=2, max_steps=4, report_to=[], save_steps=save_steps, disable_tqdm=True)
    trainer = Trainer(
        make_model(), TrainingArguments(tmp_path, **options), train_dataset=data, callbacks=[FiniteCallback()]
    )
    bias = trainer.model.cls.predictions.transform.dense.bias
    bias.register_hook(lambda gradient: gradient * (math.inf if trainer.state.global_step == 2 else 1))
    name = re.escape("cls.predictions.transform.dense.bias")
    with pytest.raises(NotFinite, match=f"gradient of {name} is not finite in step 3"):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"] * (save_steps == 2)


@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear", "linear_feature_map": "favor"}])
def test_data_parallel(fields):
    """On two GPUs where there are two; otherwise a replica on one, which `nn.DataParallel` itself would not make."""
    mask = (torch.arange(24) < torch.tensor([24, 5, 9, 24, 24, 5, 9, 24])[:, None]).long().cuda()
    batch = {"input_ids": IDS.cuda() * mask, "attention_mask": mask}
    model = small_model(initializer_range=0.1, **fields).cuda()
    replicas = nn.DataParallel(model, [0, 1]) if torch.cuda.device_count() > 1 else None
    results = []
    for called in (model, replicas or nn.parallel.replicate(model, [0])[0]):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            outputs = called(**batch).last_hidden_state
        (outputs[mask.bool()].float()[:, ::3]).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append({"outputs": outputs[mask.bool()].detach(), **gradients})
    for name, x in results[0].items():
        assert (results[1][name] - x).norm() <= 0.05 * x.norm() + 1e-2, name


@pytest.fixture
def one_process(tmp_path):
    distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/rendezvous", world_size=1, rank=0)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("fields", [{}, {"attention_type": "linear", "linear_feature_map": "favor"}])
def test_fully_sharded_in_one_process(fields, one_process):
    torch.cuda.set_device(0)
    fields |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    whole, sharded = make_model(**fields).cuda().train(), make_model(**fields).cuda().train()
    for layer in sharded.roformer.encoder.layer:
        fully_shard(layer)
    fully_shard(sharded)
    losses = [losses_of(model, torch.optim.AdamW(model.parameters(), lr=1e-3)) for model in (whole, sharded)]
    torch.testing.assert_close(*map(torch.tensor, losses), atol=1e-4, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
