"""Masked language model pre-training in stages, with resuming.

The folder of a run:

```text
run.json                     the run's settings: stages, seed, and digests of corpus, tokenizer and weights; see
                             `resuming`
corpus/                      the corpus as Arrow files, unless another cache folder was given
stage-1/model/               the model after the stage, written atomically: if it exists, the stage is finished
stage-1/log.json             the log of the stage
stage-2/checkpoint-1000/     the last two checkpoints of the current stage, with optimizer and random number generators
tensorboard/                 events for TensorBoard
model/, curves.png           the results; the card in model/ has stages, data and scores
```

A stage starts from the weights of the stage before, with a new optimizer and schedule. Its random number generators are
seeded with the sum of the run's seed and the stage's number.
"""

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch
from accelerate.utils import set_seed
from huggingface_hub import EvalResult
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.integrations import TensorBoardCallback, is_tensorboard_available

from ...configuration import RoFormerConfig
from ...files.atomic_file import leftovers, remove_leftovers, write_whole
from ...files.atomic_folder import output_folder
from ...model_cards.trained_card import published_name, write_trained_card
from ...output.console import no_transformers_bar
from ..comparing.curves import draw_curves, read_logs, stage_folders
from ..errors import StoppedBySignal, TrainingError
from ..runs.checkpointing import RUN
from ..runs.checkpoints import remove_all_but, require_undamaged
from ..runs.data_sets import require_outside
from ..runs.device import ON_CPU, device_batch_size, on_main_process, processes
from ..runs.digests import digest_of_tokenizer, digests_of_weights, non_default_fields
from ..runs.finite import first_not_finite
from ..runs.resuming import check_same, run_lock
from .documents import Corpus
from .masking import HeldOutBatches, MaskingCollator, StageExamples
from .stage_trainer import StageTrainer, StopSignal
from .stages import USUAL_LENGTH, Stage, usual_stage

# Prefixes of the arguments of Trainer that do not change the trained weights.
_NOT_COMPARED = (
    "accelerator_config", "activation_checkpointing", "dataloader_", "ddp_", "deepspeed", "disable_tqdm", "eval_",
    "fsdp", "gradient_checkpointing", "hub_", "include_", "log_", "logging_", "parallelism_config", "per_device_",
    "project", "push_to_hub", "report_to", "run_name", "save_", "skip_memory_metrics", "torch_compile",
    "torch_empty_cache_steps", "trackio_", "use_cpu",
)  # fmt: skip
_SHOWN = ("length", "batch_size", "steps", "learning_rate")  # of a stage, besides what differs from the defaults


def pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    stages: Sequence[Stage] | None,
    corpus: Corpus,
    output: str | Path,
    held_out: Corpus | None = None,
    seed: int = 0,
    device_tokens: int = 16_384,
    epochs: int | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
    **arguments,
) -> PreTrainedModel:
    """Train a masked language model stage by stage. The same call resumes a stopped run.

    Two calls are the same if the content of their arguments is: the texts of the corpus, and the files of a loaded
    model. Of a model made in memory, only the config is compared.

    Args:
        model: a RoFormerForMaskedLM or a similar model, fresh or trained.
        tokenizer: the tokenizer of the model.
        stages: the stages, in order; None for a `usual_stage`, of `epochs` epochs.
        corpus: training documents.
        output: folder of the run; see the module's docstring.
        held_out: documents for `eval_loss` and `eval_accuracy`; 15 % of their words are replaced by [MASK].
        seed: seed of order, masks and dropout.
        device_tokens: maximum number of tokens that a device computes at once; larger batches are accumulated.
        tell: function that is called with the stage that was chosen.
        arguments: fields of `TrainingArguments`: `bf16`, `torch_compile`, `save_steps`, `logging_steps` …

    Returns:
        The trained model, which is also saved in `output/model` with the tokenizer.

    Raises:
        TrainingError: `output` belongs to another run; a loss, a gradient or a weight is not finite; a checkpoint
            cannot be written; or all checkpoints are damaged.
        StoppedBySignal: the run received SIGTERM or Ctrl-C. The same call resumes it.
    """
    output = Path(output)
    if model.config.vocab_size < len(tokenizer):
        raise TrainingError(
            f"the tokenizer has {len(tokenizer):,} entries, but the model {model.config.vocab_size:,}: give the model "
            "the tokenizer's vocabulary with `roformer vocab-init`"
        )
    if epochs is not None and (stages is not None or epochs < 1):
        reason = "the stages have their steps" if stages is not None else "expected at least 1"
        raise TrainingError(f"epochs is {epochs}, but {reason}")
    is_sharded = arguments.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if is_sharded and any(stage.optimizer == "muon" for stage in stages or ()):
        raise TrainingError("the optimizer muon does not work with FSDP: start with torchrun, or use adamw")
    with no_transformers_bar():
        run = _Run(model, tokenizer, stages or [], corpus, output, held_out, seed, device_tokens, arguments)
        return run.train(epochs, tell)


def require_same_run(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    stages: Sequence[Stage],
    corpus: Corpus,
    output: str | Path,
    held_out: Corpus | None = None,
    seed: int = 0,
    device_tokens: int = 16_384,
    **arguments,
) -> None:
    """Raise a TrainingError if `pretrain` would refuse the folder with these arguments, because it belongs to another
    run.

    A script that trains several models calls it before the first training.
    """
    _Run(model, tokenizer, stages, corpus, Path(output), held_out, seed, device_tokens, arguments).require_same()


def held_out_scores(output: str | Path) -> dict[str, float]:
    """Return `eval_loss` and `eval_accuracy` at the end of a finished run, or an empty dict without held-out
    documents."""
    entries, ends = read_logs(output)
    before = ends[-2] if len(ends) > 1 else 0  # steps before the last stage
    last = next((entry for entry in reversed(entries) if "eval_loss" in entry and entry["step"] > before), {})
    return {name: last[name] for name in ("eval_loss", "eval_accuracy") if name in last}


class _Run:
    """State of a call of `pretrain`."""

    def __init__(self, model, tokenizer, stages, corpus, output, held_out, seed, device_tokens, arguments):
        self.model, self.tokenizer, self.stages = model, tokenizer, stages
        self.corpus, self.output, self.held_out = corpus, output, held_out
        self.seed, self.device_tokens, self.arguments = seed, device_tokens, arguments
        self.base = model.name_or_path or None
        self.stop = StopSignal()
        self.state = processes()
        # Training sets these fields to True; a saved model must return all logits by default.
        self.saved_fields = {name: getattr(model.config, name) for name in ("unpad_inputs", "sparse_prediction")}

    def train(self, epochs: int | None, tell: Callable[[str], None]) -> PreTrainedModel:
        for stage in self.stages:  # check all stages before the first begins
            _device_batch(stage, self.device_tokens, self.state.num_processes)
        with run_lock(self.output):
            on_main_process(self._require_fresh_or_begun)  # before the corpus is read, which may take hours
            self._read_corpora()
            if not self.stages:
                pieces = len(self.corpus.pieces(self.tokenizer, USUAL_LENGTH))
                self.stages = [usual_stage(pieces, self.model.config.hidden_size, epochs)]
                _device_batch(self.stages[0], self.device_tokens, self.state.num_processes)
                on_main_process(partial(tell, f"{pieces:,} pieces; stage: {_in_yaml(self.stages[0])}"))
            self.description = on_main_process(self._record_or_compare)
            return self._train_stages()

    def require_same(self) -> None:
        """Raise a TrainingError if the folder has another run."""
        if (self.output / RUN).exists():
            self._read_corpora()
            on_main_process(lambda: self._require_same(self._description()))

    def _require_same(self, run: dict) -> None:
        hint = f"or start another run from the model of a finished stage, {self.output}/stage-1/model"
        check_same(self.output, self._read_recorded(self.output / RUN), run, hint)
        for number, path in stage_folders(self.output).items():
            if number > len(self.stages):
                raise TrainingError(
                    f"{path} is of another run, this one ends with stage {len(self.stages)}: move it away"
                )

    def _read_corpora(self) -> None:
        corpora = [corpus for corpus in (self.held_out, self.corpus) if corpus]
        for corpus in corpora:
            require_outside(corpus.sources, self.output, *self._caches)
        for corpus in corpora:
            corpus.documents()

    @property
    def _caches(self) -> set[Path]:
        return {Path(corpus.cache).resolve() for corpus in (self.corpus, self.held_out) if corpus}

    def _train_stages(self) -> PreTrainedModel:
        for number, stage in enumerate(self.stages, 1):
            folder = self.output / f"stage-{number}"
            if number < len(self.stages) and (self.output / f"stage-{number + 1}" / "model").exists():
                continue
            if not (folder / "model").exists():
                self._train_stage(number, stage, folder)
            else:
                on_main_process(partial(self._require_own, folder / "model", number))
            # Load it even if it is in memory, so that a resumed run does the same as an uninterrupted one.
            self.model = type(self.model).from_pretrained(folder / "model")
            if name := first_not_finite(self.model):
                raise TrainingError(
                    f"{folder / 'model'}: {name} is not finite, so stage {number} failed: use a lower learning_rate "
                    "and another output folder"
                )
        if self.state.is_main_process:
            with output_folder(self.output / "model", force=True) as folder:
                self.model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
                self._write_card(folder)
            draw_curves(self.output)
        self.state.wait_for_everyone()
        return self.model

    def _require_own(self, model: Path, number: int) -> None:
        """Raise a TrainingError if the model of a stage is damaged, or of another run. Remove its checkpoints
        otherwise."""
        require_undamaged(model, f"remove that folder to train stage {number} again")
        if (path := model / RUN).is_file():  # which earlier versions did not write
            check_same(model, self._read_recorded(path), self._run_of(number), f"or move {model} away")
        remove_all_but(model.parent, 0)  # of a process that was killed before it did so

    def _run_of(self, number: int) -> dict:
        """Return what tells the weights of a stage from those of other runs and stages."""
        return {**self.description, "stage": number}

    def _write_card(self, folder: Path) -> None:
        """Write the card of the trained model. It has names of the data, without their folders."""
        sources = [str(source) for source in self.corpus.sources]
        names = ", ".join(map(published_name, sources))
        scores = held_out_scores(self.output)
        data = ", ".join(map(published_name, self.held_out.sources)) if self.held_out else ""
        write_trained_card(
            folder,
            self.output.resolve().name,
            f"Pre-trained to predict masked words, on {len(self.corpus.documents()):,} documents of {names}.",
            base=self.base,
            data=sources,
            hyperparameters={
                **{f"stage {number}": _in_yaml(stage) for number, stage in enumerate(self.stages, 1)},
                "seed": self.seed,
                "bf16": self.arguments.get("bf16"),
            },
            scores=[
                EvalResult("fill-mask", data, data, name.removeprefix("eval_"), value, dataset_split="held out")
                for name, value in scores.items()
            ],
            trained_at=f"up to {max(stage.length for stage in self.stages):,} tokens",
        )

    def _record_or_compare(self) -> dict:
        """Record the settings of a new run in run.json, or compare them with the recorded ones. Return them."""
        path, run = self.output / RUN, self._description()
        if path.exists():
            self._require_same(run)
        remove_leftovers(path)  # this process has the lock of the folder
        write_whole(path.resolve(), json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return run

    def _require_fresh_or_begun(self) -> None:
        """Raise a TrainingError if the folder has other things than a run, or than a process leaves that ended before
        it began."""
        path = self.output / RUN
        known = {self.output.resolve() / "corpus", *(Path(left).resolve() for left in leftovers(path))}
        known |= {place for cache in self._caches for place in (cache, *cache.parents)}
        if not path.exists() and not {entry.resolve() for entry in self.output.iterdir()} <= known:
            raise TrainingError(f"{self.output} is not empty and has no run.json: name a new folder")

    def _read_recorded(self, path: Path) -> dict:
        """Return the recorded settings."""
        try:
            begun = json.loads(path.read_text(encoding="utf-8"))
            begun["model"] = non_default_fields(begun["model"], self.model.config)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise TrainingError(f"{path} is damaged: name another folder") from None
        return begun

    def _description(self) -> dict:
        """Return the settings that must not change when a run resumes, as JSON values."""
        entries = sorted(self.tokenizer.get_vocab(), key=self.tokenizer.get_vocab().get)
        return {
            "stages": [stage.to_dict() for stage in self.stages],
            "seed": self.seed,
            "corpus": self.corpus.digest(),
            "documents": len(self.corpus.documents()),
            "held_out": self.held_out.digest() if self.held_out else None,
            "vocabulary": hashlib.sha256("\n".join(entries).encode("utf-8", "replace")).hexdigest(),
            "tokenizer": digest_of_tokenizer(self.tokenizer),
            "model": non_default_fields(self.model.config.to_dict(), self.model.config),
            "weights": _weight_digests(self.model),
            "arguments": _compared_arguments(self.arguments),
        }

    def _train_stage(self, number: int, stage: Stage, folder: Path) -> None:
        """Train the model through a stage and save it."""
        self.model.config.update(dict.fromkeys(self.saved_fields, True))
        _record_length(self.model, stage.length)
        trainer = StageTrainer(
            self.model,
            self._arguments(stage, folder),
            train_dataset=StageExamples(self.corpus.pieces(self.tokenizer, stage.length), stage, self.seed, number),
            data_collator=MaskingCollator(self.tokenizer, self.seed, number),
            held_out=self._held_out_batches(stage),
            stop=self.stop,
            saved_fields=self.saved_fields,
            run=self._run_of(number),
        )
        self._show_in_tensorboard(trainer, number, trainer.checkpoint)
        # So that a stage starts in the same way in a resumed run.
        set_seed(self.seed + number, device_specific=True)
        with self.stop.listening():
            trainer.train_or_resume()
        done = trainer.state.global_step
        if done < stage.steps:
            self._raise_stopped(f"step {done:,} of {stage.steps:,} in stage {number}")
        is_main = self.state.is_main_process
        if is_main:
            log = json.dumps(trainer.state.log_history, indent=1, allow_nan=False)
            write_whole(folder / "log.json", log + "\n")
        trainer.require_finite_weights()
        with trainer.writing(folder / "model") as model:
            trainer.save_model(str(model))
            trainer.record_run(model)
            if is_main:
                self.tokenizer.save_pretrained(model)
        if is_main:
            remove_all_but(folder, 0)
        if self.stop.number:
            self._raise_stopped(f"stage {number}")

    def _raise_stopped(self, last: str) -> None:
        raise StoppedBySignal(f"stopped by a signal after {last}; run the same command to resume", self.stop.number)

    def _arguments(self, stage: Stage, folder: Path) -> TrainingArguments:
        on_device = _device_batch(stage, self.device_tokens, self.state.num_processes)
        every = self.arguments.get("save_steps", 500)
        settings = {
            "max_steps": stage.steps,
            "per_device_train_batch_size": on_device,
            "gradient_accumulation_steps": stage.batch_size // (on_device * self.state.num_processes),
            "train_sampling_strategy": "sequential",  # StageExamples has the order
            "remove_unused_columns": False,
            "learning_rate": stage.learning_rate,
            "lr_scheduler_type": stage.schedule,
            "warmup_steps": round(stage.warmup * stage.steps),
            "weight_decay": stage.weight_decay,
            "save_steps": every,
            "save_total_limit": 2,
            "eval_strategy": "steps" if self.held_out else "no",
            "eval_steps": every,
            "logging_steps": 50,
            "logging_nan_inf_filter": False,
            "report_to": [],
            "use_cpu": ON_CPU,
            # Only a pooler is unused.
            "ddp_find_unused_parameters": getattr(self.model.config, "add_pooling_layer", False),
            "dataloader_num_workers": 0 if ON_CPU else 2,
            "dataloader_pin_memory": torch.cuda.is_available(),
        }
        arguments = TrainingArguments(str(folder), **settings | self.arguments)
        arguments._n_gpu = min(1, arguments.n_gpu)  # use torchrun for several GPUs; DataParallel is not supported
        return arguments

    def _held_out_batches(self, stage: Stage) -> HeldOutBatches | None:
        if self.held_out is None:
            return None
        collator = MaskingCollator(self.tokenizer, replaced=1, random=0)
        pieces = self.held_out.pieces(self.tokenizer, stage.length)
        return HeldOutBatches(pieces, collator, max(1, self.device_tokens // stage.length))

    def _show_in_tensorboard(self, trainer: StageTrainer, number: int, last: Path | None) -> None:
        if not (is_tensorboard_available() and self.state.is_main_process):
            return
        from torch.utils.tensorboard import SummaryWriter

        begun = int(last.name.partition("-")[2]) + 1 if last else 0  # later entries are logged again
        writer = SummaryWriter(str(self.output / "tensorboard" / f"stage-{number}"), purge_step=begun)
        trainer.add_callback(TensorBoardCallback(writer))


def _in_yaml(stage: Stage) -> str:
    """Return the fields of a stage that differ from the defaults, as in a file of stages."""
    default = Stage(stage.length, stage.batch_size, stage.steps, 1).to_dict()
    shown = {name: value for name, value in stage.to_dict().items() if name in _SHOWN or value != default[name]}
    values = (f"{name}: {value:g}" if isinstance(value, float) else f"{name}: {value}" for name, value in shown.items())
    return f"{{{', '.join(values)}}}"


def _device_batch(stage: Stage, device_tokens: int, devices: int) -> int:
    """Return how many pieces a device computes at once: the most that its tokens allow and that divide the batch."""
    if stage.batch_size % devices:
        raise TrainingError(f"a batch of {stage.batch_size:,} pieces cannot be split evenly over {devices:,} devices")
    return device_batch_size(stage.batch_size // devices, device_tokens // stage.length)


def _record_length(model: PreTrainedModel, length: int) -> None:
    """Record the length of a stage in the config, for plain transformers, unless positions are learned."""
    config = model.config
    if isinstance(config, RoFormerConfig) and getattr(config, "position_encoding", "rotary") != "learned":
        config.max_position_embeddings = max(config.max_position_embeddings, length)


def _weight_digests(model: PreTrainedModel) -> list[str] | None:
    """Return the digests of the files from which a model was loaded, or None for a fresh model."""
    try:
        return digests_of_weights(model.name_or_path) if model.name_or_path else None
    except (TrainingError, OSError):  # only its config was loaded from there
        return None


def _compared_arguments(arguments: dict) -> dict:
    """Return the `TrainingArguments` that change the trained weights and differ from the defaults."""
    compared = {name: value for name, value in arguments.items() if not name.startswith(_NOT_COMPARED)}
    for field in fields(TrainingArguments):
        if field.name in compared and compared[field.name] == field.default:
            del compared[field.name]
    return json.loads(json.dumps(compared, default=str))


def tokenizer_options(chosen: argparse.Namespace) -> dict:
    """Return the options of `load_tokenizer`."""
    return {"word_segmentation": None} if chosen.characters else {}


def pretraining_options(chosen: argparse.Namespace) -> dict:
    """Return the arguments of `pretrain` but model, tokenizer, stages and output."""

    def corpus(sources: list[str]) -> Corpus:
        cache = chosen.cache or chosen.output / "corpus"
        return Corpus(sources, cache, chosen.field, chosen.num_proc, chosen.sample_by)

    return {
        "corpus": corpus(chosen.corpus),
        "held_out": corpus(chosen.eval) if chosen.eval else None,
        "seed": chosen.seed,
        "device_tokens": chosen.device_tokens,
        "save_steps": chosen.save_steps,
        "logging_steps": chosen.logging_steps,
        "bf16": chosen.bf16,
        "torch_compile": chosen.compile,
    }
