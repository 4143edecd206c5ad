"""Masked language modelling in stages, one after the other, which goes on where it was stopped.

The folder of a run:

```text
run.json                     what was begun: stages, seed, vocabulary, corpus; the same command must say the same
corpus/                      the corpus as Arrow files, unless another folder was named
stage-1/model/               the model after a stage, whole; its presence says that the stage is done
stage-1/log.json             what it logged
stage-2/checkpoint-1000/     the last two checkpoints of the stage under way, with optimizer and generators
tensorboard/                 where TensorBoard looks
model/, curves.png           what came out
```

A stage begins with the weights of the one before, and an optimizer and a schedule of its own. Its generator starts from the
run's seed and its number.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import torch
from accelerate.utils import set_seed
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.integrations import TensorBoardCallback, is_tensorboard_available

from ..configuration import RoFormerConfig
from ..output.output_folder import output_folder
from ..output.progress_bar import no_transformers_bar
from .checkpoints import is_whole, last_whole, remove_all_but
from .curves import draw_curves
from .device import ON_CPU, processes
from .documents import cut_documents, read_documents, tokenize_documents
from .errors import Stopped, TrainingError
from .examples import HeldOutBatches, StageExamples
from .masking import MaskingCollator
from .stage_trainer import StageTrainer, StopSignal
from .stages import Stage

# Fields of a config that may change while a run is the same one.
_NOT_COMPARED = {
    "_name_or_path", "architectures", "dtype", "max_position_embeddings", "sparse_prediction", "transformers_version",
    "unpad_inputs",
}  # fmt: skip


@dataclass
class Corpus:
    """What is read, and where it is kept.

    sources: files, folders and names of data sets (see `read_documents`).
    cache: folder for the Arrow files.
    field: where JSON Lines and data sets keep the text.
    num_proc: processes that read and tokenize.
    """

    sources: Sequence[str | Path]
    cache: str | Path
    field: str = "text"
    num_proc: int | None = None

    def __post_init__(self) -> None:
        self._tokens: tuple[PreTrainedTokenizerBase | None, datasets.Dataset | None] = None, None

    def tokens(self, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Rows of `tokenize_documents`."""
        if self._tokens[0] is not tokenizer:
            # In a distributed run the main process makes the files, and the others find them.
            with processes().main_process_first():
                documents = read_documents(self.sources, self.cache, self.field, self.num_proc)
                self._tokens = tokenizer, tokenize_documents(documents, tokenizer, self.num_proc)
        return self._tokens[1]

    def pieces(self, tokenizer: PreTrainedTokenizerBase, length: int) -> datasets.Dataset:
        """Rows of `cut_documents`."""
        tokens = self.tokens(tokenizer)
        with processes().main_process_first():
            pieces = cut_documents(tokens, length, self.num_proc)
        if not len(pieces):
            raise TrainingError(f"the corpus holds no token: {', '.join(map(str, self.sources))}")
        return pieces


def pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    stages: Sequence[Stage],
    corpus: Corpus,
    output: str | Path,
    held_out: Corpus | None = None,
    seed: int = 0,
    device_tokens: int = 16_384,
    **arguments,
) -> PreTrainedModel:
    """Train a masked language model stage after stage; called again with the same arguments, it goes on.

    Args:
        model: a RoFormerForMaskedLM or one like it, fresh or trained.
        tokenizer: its tokenizer.
        stages: what to do, in order.
        corpus: what to learn from.
        output: folder of the run; see the module.
        held_out: documents for `eval_loss` and `eval_accuracy`, of which 15 % of the words are replaced by [MASK].
        seed: of order, masks and dropout.
        device_tokens: most tokens that a device computes at once; batches are divided accordingly.
        arguments: of `TrainingArguments`: `bf16`, `torch_compile`, `save_steps`, `logging_steps` …

    Returns:
        The trained model, which is also saved in `output/model` with the tokenizer.

    Raises:
        TrainingError: what was begun in `output` is another run, a loss is not finite, a checkpoint cannot be written.
        Stopped: SIGTERM or Ctrl-C; the same call goes on.
    """
    output = Path(output)
    if model.config.vocab_size < len(tokenizer):
        raise TrainingError(
            f"the tokenizer has {len(tokenizer):,} entries and the model {model.config.vocab_size:,}: this is a checkpoint of "
            "another vocabulary (`roformer vocab-init` gives it a new one)"
        )
    if is_fsdp_asked_for(arguments) and any(stage.optimizer == "muon" for stage in stages):
        raise TrainingError(
            "the optimizer muon needs whole matrices, which FSDP shares out: start with torchrun, or take adamw"
        )
    with no_transformers_bar():
        return _Run(model, tokenizer, stages, corpus, output, held_out, seed, device_tokens, arguments).train()


def is_fsdp_asked_for(arguments: dict) -> bool:
    """Whether `accelerate launch` or an argument of `TrainingArguments` says so."""
    return bool(arguments.get("fsdp")) or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


class _Run:
    """See `pretrain`."""

    def __init__(self, model, tokenizer, stages, corpus, output, held_out, seed, device_tokens, arguments):
        self.model, self.tokenizer, self.stages = model, tokenizer, stages
        self.corpus, self.output, self.held_out = corpus, output, held_out
        self.seed, self.device_tokens, self.arguments = seed, device_tokens, arguments
        self.stop = StopSignal()
        self.state = processes()
        # Training sets these: who computes with the logits of a saved model expects them all.
        self.saved_fields = {name: getattr(model.config, name) for name in ("unpad_inputs", "sparse_prediction")}

    def train(self) -> PreTrainedModel:
        for stage in self.stages:  # what is wrong with the last is said before the first
            _device_batch(stage, self.device_tokens, self.state.num_processes)
        if self.held_out is not None:
            self.held_out.tokens(self.tokenizer)
        _begin(self.output, self._description())
        for number, stage in enumerate(self.stages, 1):
            folder = self.output / f"stage-{number}"
            if not is_whole(folder / "model"):
                self._train_stage(number, stage, folder)
            # From the disk even where it is in memory: so a run that goes on does nothing else than one that went through.
            self.model = type(self.model).from_pretrained(folder / "model")
        if self.state.is_main_process:
            with output_folder(self.output / "model", force=True) as folder:
                self.model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
            draw_curves(self.output)
        self.state.wait_for_everyone()
        return self.model

    def _description(self) -> dict:
        """What must be the same for a run to go on, as JSON holds it."""
        entries = sorted(self.tokenizer.get_vocab(), key=self.tokenizer.get_vocab().get)
        config = {name: value for name, value in self.model.config.to_dict().items() if name not in _NOT_COMPARED}
        return {
            "stages": [stage.to_dict() for stage in self.stages],
            "seed": self.seed,
            "corpus": [*map(str, self.corpus.sources), f"{len(self.corpus.tokens(self.tokenizer)):,} documents"],
            "vocabulary": hashlib.sha256("\n".join(entries).encode("utf-8", "replace")).hexdigest(),
            "model": json.loads(json.dumps(config)),
        }

    def _train_stage(self, number: int, stage: Stage, folder: Path) -> None:
        """Train `model`, and save it when the stage is done."""
        self.model.config.update(dict.fromkeys(self.saved_fields, True))
        _tell_length(self.model, stage.length)
        trainer = StageTrainer(
            self.model,
            self._arguments(stage, folder),
            train_dataset=StageExamples(self.corpus.pieces(self.tokenizer, stage.length), stage, self.seed, number),
            data_collator=MaskingCollator(self.tokenizer, self.seed, number),
            held_out=self._held_out_batches(stage),
            stop=self.stop,
            saved_fields=self.saved_fields,
        )
        self._show_in_tensorboard(trainer, number)
        # Every stage begins as it would in a process of its own.
        set_seed(self.seed + number, device_specific=True)
        with self.stop.listening():
            trainer.train_on()
        done = trainer.state.global_step
        if done < stage.steps:
            raise Stopped(
                f"stopped as asked after step {done:,} of {stage.steps:,} in stage {number}, and saved; the same command goes on",
                self.stop.number,
            )
        is_main = self.state.is_main_process
        if is_main:
            (folder / "log.json").write_text(json.dumps(trainer.state.log_history, indent=1) + "\n", encoding="utf-8")
        with trainer.writing(folder / "model") as model:
            trainer.save_model(str(model))
            if is_main:
                self.tokenizer.save_pretrained(model)
        if is_main:
            remove_all_but(folder, 0)
        if self.stop.number:
            raise Stopped(f"stopped as asked after stage {number}; the same command goes on", self.stop.number)

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
            # DDP need not look for weights that took no part: only a pooler takes none.
            "ddp_find_unused_parameters": getattr(self.model.config, "add_pooling_layer", False),
            "dataloader_num_workers": 0 if ON_CPU else 2,
            "dataloader_pin_memory": torch.cuda.is_available(),
        }
        arguments = TrainingArguments(str(folder), **settings | self.arguments)
        arguments._n_gpu = min(1, arguments.n_gpu)  # several GPUs are for torchrun; DataParallel is not made for this
        return arguments

    def _held_out_batches(self, stage: Stage) -> HeldOutBatches | None:
        if self.held_out is None:
            return None
        collator = MaskingCollator(self.tokenizer, replaced=1, random=0)
        pieces = self.held_out.pieces(self.tokenizer, stage.length)
        return HeldOutBatches(pieces, collator, max(1, self.device_tokens // stage.length))

    def _show_in_tensorboard(self, trainer: StageTrainer, number: int) -> None:
        if not (is_tensorboard_available() and self.state.is_main_process):
            return
        from torch.utils.tensorboard import SummaryWriter

        last = last_whole(trainer.folder)  # what was logged after it is logged anew
        begun = int(last.name.partition("-")[2]) + 1 if last else 0
        writer = SummaryWriter(str(self.output / "tensorboard" / f"stage-{number}"), purge_step=begun)
        trainer.add_callback(TensorBoardCallback(writer))


def _device_batch(stage: Stage, device_tokens: int, devices: int) -> int:
    """How many pieces a device computes at once: as many as its tokens allow, of those numbers that divide the batch."""
    if stage.batch_size % devices:
        raise TrainingError(
            f"a batch of {stage.batch_size:,} pieces cannot be shared out evenly to {devices:,} devices"
        )
    share = stage.batch_size // devices
    most = max(1, min(share, device_tokens // stage.length))
    return next(n for n in range(most, 0, -1) if share % n == 0)


def _tell_length(model: PreTrainedModel, length: int) -> None:
    """Note the longest stage in the config of a model whose positions have no end, for plain transformers."""
    config = model.config
    if isinstance(config, RoFormerConfig) and getattr(config, "position_encoding", "rotary") != "learned":
        config.max_position_embeddings = max(config.max_position_embeddings, length)


def _begin(output: Path, run: dict) -> None:
    """Write down what is begun, or compare with what was."""
    path = output / "run.json"
    if path.exists():
        try:
            begun = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise TrainingError(f"{path} is broken: it is not JSON") from None
        if others := [name for name, value in run.items() if begun.get(name) != value]:
            raise TrainingError(
                f"{output} holds a run with other {' and '.join(others)}: name another folder for this one; --from "
                f"{output}/stage-1/model goes on from a stage that is done"
            )
        return
    if output.exists() and (not output.is_dir() or {entry.name for entry in output.iterdir()} - {"corpus"}):
        raise TrainingError(f"{output} is not empty and holds no run: name a new folder")
    state = processes()
    state.wait_for_everyone()  # all have looked
    if state.is_main_process:
        output.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(path)
    state.wait_for_everyone()
