"""Masked language model pre-training in stages.

The folder of a run:

```text
settings.json                the run's settings, see `start_run`
stage-1/model/               the model after the stage: if it exists, the stage is finished
stage-1/log.json             the log of the stage
stage-2/checkpoint-1000/     the last two checkpoints of the current stage
model/, curves.png           the results; the card in model/ has stages, data and scores
```

A stage starts from the weights of the stage before, with a new optimizer and schedule. Its random number generators are
seeded with the sum of the run's seed and the stage's number.
"""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from accelerate.utils import set_seed
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.model_cards import published_name
from modeling_roformer.model_cards.facts import trained_at
from modeling_roformer.output.console import no_transformers_bar

from ..comparing.curves import draw_curves, read_logs
from ..errors import TrainingError
from ..runs.device import COPIES_AHEAD, ON_CPU, default_device_tokens, has_bfloat16, processes
from ..runs.length import with_trained_length
from ..runs.run_folder import Run, last_checkpoint, record_checksums, start_run, write_json
from .documents import Corpus, checksum_of
from .masking import HeldOutBatches, MaskingCollator, StageExamples
from .stage_trainer import StageTrainer
from .stages import Stage

# Arguments of Trainer, and fields of a configuration, that may change when a run is resumed.
_NOT_COMPARED = ("_name_or_path", "disable_tqdm", "logging_steps", "report_to", "save_steps", "transformers_version")


def pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    stages: Sequence[Stage],
    corpus: Corpus,
    output: str | Path,
    held_out: Corpus | None = None,
    seed: int = 0,
    device_tokens: int | None = None,
    resume: bool = False,
    **arguments,
) -> PreTrainedModel:
    """Train a masked language model stage by stage.

    Args:
        model: a RoFormerForMaskedLM or a similar model, fresh or trained.
        tokenizer: the tokenizer of the model.
        stages: the stages, in order.
        corpus: training documents.
        output: folder of the run; see the module's docstring.
        held_out: documents for `eval_loss` and `eval_accuracy`; 15 % of their words are replaced by [MASK].
        seed: seed of order, masks and dropout.
        device_tokens: maximum number of tokens that a device computes at once; larger batches are accumulated. None
            for what the memory of a GPU allows beside the weights and the optimiser's state, or 16,384 on a CPU.
        resume: whether to resume a run in `output` that was stopped.
        arguments: fields of `TrainingArguments`: `torch_compile`, `save_steps`, `logging_steps` … `bf16` is True by
            default on a GPU that has bfloat16.

    Returns:
        The trained model, which is also saved in `output/model` with the tokenizer.

    Raises:
        TrainingError: `output` has another run, or one with other pieces, or one although `resume` is False; or a
            gradient or a weight is not finite.
    """
    if model.config.vocab_size < len(tokenizer):
        raise TrainingError(
            f"the tokenizer has {len(tokenizer):,} entries, but the model {model.config.vocab_size:,}: give the model "
            "the tokenizer's vocabulary with `roformer vocab-init`"
        )
    if device_tokens is None:
        device_tokens = default_device_tokens(model)
    if arguments.get("bf16") is None:
        arguments["bf16"] = has_bfloat16() and not arguments.get("fp16")
    for stage in stages:  # before the first begins
        _device_batch(stage, device_tokens)
    documents = len(corpus.documents())
    words = "\n".join(getattr(tokenizer, "user_dict", []))  # which the backend lacks, as it lacks word_segmentation
    settings = {
        "stages": [vars(stage) for stage in stages],
        "seed": seed,
        "model": _compared(model.config.to_diff_dict()),
        "tokenizer": hashlib.sha256((tokenizer.backend_tokenizer.to_str() + words).encode()).hexdigest(),
        "word_segmentation": getattr(tokenizer, "word_segmentation", None),
        "arguments": _compared(arguments),
        "text": [[part.field, part.sample_by] for part in (corpus, held_out) if part],
        "documents": [documents, *([len(held_out.documents())] if held_out else [])],
    }
    base = model.name_or_path or None
    data = {"corpus": corpus.identity(), "held_out": held_out and held_out.identity(), "start": base}
    with no_transformers_bar(), start_run(output, settings, data, resume) as run:
        _check_pieces(run, tokenizer, stages, corpus, held_out)
        for number, stage in enumerate(stages, 1):
            if not (run.folder / f"stage-{number}" / "model").exists():
                _train_stage(run, model, tokenizer, number, stage, corpus, held_out, seed, device_tokens, **arguments)
                processes().wait_for_everyone()
            # A stage always begins with the saved weights, so that a resumed run does the same as another one.
            model = type(model).from_pretrained(run.folder / f"stage-{number}" / "model")
        if processes().is_main_process:
            _save(run, model, tokenizer, base, stages, corpus, documents, held_out, seed)
            draw_curves(run.folder)
        processes().wait_for_everyone()
    return model


def _check_pieces(run: Run, tokenizer, stages: Sequence[Stage], corpus: Corpus, held_out: Corpus | None) -> None:
    """Record checksums of all pieces, or compare them with those that the run recorded. The same texts may have other
    pieces in another version of this package or of a library."""
    checksums = {}
    for name, part in {"corpus": corpus, "held_out": held_out}.items():
        for length in dict.fromkeys(stage.length for stage in stages if part):
            pieces = part.pieces(tokenizer, length)
            if processes().is_main_process:
                checksums[f"{name} at {length} tokens"] = checksum_of(pieces)
    if processes().is_main_process:
        record_checksums(run.folder, checksums, is_begun=(run.folder / "stage-1").exists())
    processes().wait_for_everyone()


def _train_stage(
    run: Run, model, tokenizer, number: int, stage: Stage, corpus, held_out, seed: int, device_tokens: int, **arguments
) -> None:
    """Train the model through a stage, and save it."""
    _record_length(model, stage.length)
    # A saved model must return all logits by default, also if training starts from a checkpoint of a stage.
    saved_fields = {"sparse_prediction": False, "unpad_inputs": model.config.unpad_inputs}
    model.config.update(dict.fromkeys(saved_fields, True))
    folder = run.folder / f"stage-{number}"
    on_device, every = _device_batch(stage, device_tokens), arguments.get("save_steps", 500)
    settings = {
        "max_steps": stage.steps,
        "per_device_train_batch_size": on_device,
        "gradient_accumulation_steps": stage.batch_size // (on_device * processes().num_processes),
        "train_sampling_strategy": "sequential",  # StageExamples has the order
        "remove_unused_columns": False,
        "learning_rate": stage.learning_rate,
        "lr_scheduler_type": stage.schedule,
        "warmup_steps": round(stage.warmup * stage.steps),
        "weight_decay": stage.weight_decay,
        "save_steps": every,
        "save_total_limit": 2,
        "eval_strategy": "steps" if held_out else "no",
        "eval_steps": every,
        "logging_steps": 50,
        "report_to": [],
        "use_cpu": ON_CPU,
        "ddp_find_unused_parameters": getattr(model.config, "add_pooling_layer", False),  # only a pooler is unused
        "dataloader_num_workers": 0 if ON_CPU else 2,
        "dataloader_pin_memory": COPIES_AHEAD,
        "accelerator_config": {"non_blocking": COPIES_AHEAD},  # otherwise each copy of a batch waits for the device
    }
    arguments = TrainingArguments(str(folder), **settings | arguments)
    arguments._n_gpu = min(1, arguments.n_gpu)  # use torchrun for several GPUs; DataParallel is not supported
    batches = None
    if held_out:
        collator = MaskingCollator(tokenizer, replaced=1, random=0)
        batches = HeldOutBatches(
            held_out.pieces(tokenizer, stage.length), collator, max(1, device_tokens // stage.length)
        )
    trainer = StageTrainer(
        model,
        arguments,
        train_dataset=StageExamples(corpus.pieces(tokenizer, stage.length), stage, seed, number, by_length=not ON_CPU),
        data_collator=MaskingCollator(tokenizer, seed, number),
        held_out=batches,
    )
    set_seed(seed + number, device_specific=True)  # so that a stage starts in the same way in a resumed run
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    if trainer.state.global_step < stage.steps:  # as with enable_jit_checkpoint, after a signal
        done = f"step {trainer.state.global_step:,} of {stage.steps:,} in stage {number}"
        raise TrainingError(f"stopped after {done}: resume with the same command and --resume")
    model.config.update(saved_fields)
    write_json(folder / "log.json", trainer.state.log_history)
    if processes().is_main_process:
        with run.saving(f"stage-{number}/model") as saved:
            trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False).save_pretrained(saved)
            with_trained_length(tokenizer, stage.length).save_pretrained(saved)
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)


def _compared(fields: dict) -> dict:
    return {name: value for name, value in fields.items() if name not in _NOT_COMPARED}


def _device_batch(stage: Stage, device_tokens: int) -> int:
    """Return the number of pieces that a device computes at once: a divisor of its share of the batch."""
    devices = processes().num_processes
    if stage.batch_size % devices:
        raise TrainingError(
            f"a batch of {stage.batch_size:,} pieces cannot be split evenly over {devices:,} devices: set the stage's "
            "batch_size to a multiple"
        )
    pieces = stage.batch_size // devices
    return next(n for n in range(max(1, min(pieces, device_tokens // stage.length)), 0, -1) if pieces % n == 0)


def _record_length(model: PreTrainedModel, length: int) -> None:
    """Record the length of a stage in the config, for plain transformers, unless positions are learned."""
    config = model.config
    if isinstance(config, RoFormerConfig) and config.position_encoding != "learned":
        config.max_position_embeddings = max(config.max_position_embeddings, length)


def held_out_scores(output: str | Path) -> dict[str, float]:
    """Return `eval_loss` and `eval_accuracy` at the end of a finished run, or an empty dict without held-out
    documents."""
    last = next((entry for entry in reversed(read_logs(output)[0]) if "eval_loss" in entry), {})
    return {name: last[name] for name in ("eval_loss", "eval_accuracy") if name in last}


def _save(
    run: Run, model, tokenizer, base, stages, corpus: Corpus, documents: int, held_out: Corpus | None, seed: int
) -> None:
    """Save the trained model. Its card has names of the data, without their folders."""
    longest = max(stage.length for stage in stages)
    sources, tested = ([str(source) for source in part.sources] if part else [] for part in (corpus, held_out))
    run.save(
        model,
        with_trained_length(tokenizer, longest),
        f"Pre-trained to predict masked words, on {documents:,} documents of {_names(sources)}.",
        task="fill-mask",
        scores={name.removeprefix("eval_"): value for name, value in held_out_scores(run.folder).items()},
        tested_on=(_names(tested), "held out"),
        base=base,
        data=sources,
        hyperparameters={**{f"stage {number}": stage for number, stage in enumerate(stages, 1)}, "seed": seed},
        trained_at=trained_at(longest),
    )


def _names(sources: list[str]) -> str:
    return ", ".join(map(published_name, sources))
