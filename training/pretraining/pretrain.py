"""Masked language modelling in stages, one after the other, which goes on where it was stopped.

The folder of a run:

```text
run.json                     what was begun: stages, seed, and digests of corpus, tokenizer and weights; see `fingerprint`
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
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import datasets
import torch
from accelerate.utils import set_seed
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.integrations import TensorBoardCallback, is_tensorboard_available

from ...configuration import RoFormerConfig
from ...output.output_folder import output_folder
from ...output.progress_bar import no_transformers_bar
from ...tokenization.whole_file import write_whole
from ..comparing.curves import draw_curves
from ..errors import Stopped, TrainingError
from ..runs.checkpoints import remove_all_but, require_undamaged
from ..runs.content import digest_of_rows, digest_of_tokenizer, digests_of_weights, own_fields
from ..runs.device import ON_CPU, by_main_process, processes
from ..runs.fingerprint import check_same, only_run
from ..runs.finite import first_not_finite
from .documents import cut_documents, read_documents, tokenize_documents
from .masking import MaskingCollator
from .stage_examples import HeldOutBatches, StageExamples
from .stage_trainer import StageTrainer, StopSignal
from .stages import Stage

# How the names of those arguments of Trainer begin that do not change what is learned.
_NOT_COMPARED = (
    "accelerator_config", "activation_checkpointing", "dataloader_", "ddp_", "deepspeed", "disable_tqdm", "eval_", "fsdp",
    "gradient_checkpointing", "hub_", "include_", "log_", "logging_", "parallelism_config", "per_device_", "project",
    "push_to_hub", "report_to", "run_name", "save_", "skip_memory_metrics", "torch_compile", "torch_empty_cache_steps",
    "trackio_", "use_cpu",
)  # fmt: skip


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
        self._documents: datasets.Dataset | None = None

    def documents(self) -> datasets.Dataset:
        """Rows of `read_documents`."""
        if self._documents is None:
            # In a distributed run the main process makes the files, and the others find them.
            with processes().main_process_first():
                self._documents = read_documents(self.sources, self.cache, self.field, self.num_proc)
        return self._documents

    def tokens(self, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Rows of `tokenize_documents`."""
        if self._tokens[0] is not tokenizer:
            documents = self.documents()
            with processes().main_process_first():
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
    """Train a masked language model stage after stage; called again with the same arguments, it resumes.

    Whether they are the same is told by what they hold: the corpus by its texts, a model that was loaded by its files. Of a
    model that was made in memory the config alone is compared, since its weights follow from that and a seed.

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
        TrainingError: what was begun in `output` is another run, a loss, a gradient or a weight is not finite, a checkpoint
            cannot be written, or all that training could resume from is damaged.
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
        with only_run(self.output):
            for corpus in filter(None, (self.held_out, self.corpus)):
                corpus.documents()
            by_main_process(self._begin)
            return self._train_stages()

    def _train_stages(self) -> PreTrainedModel:
        for number, stage in enumerate(self.stages, 1):
            folder = self.output / f"stage-{number}"
            if (self.output / f"stage-{number + 1}" / "model").exists():
                continue
            if not (folder / "model").exists():
                self._train_stage(number, stage, folder)
            else:
                again = f"remove that folder to train stage {number} again"
                by_main_process(partial(require_undamaged, folder / "model", again))
            # From the disk even where it is in memory: so a run that goes on does nothing else than one that went through.
            self.model = type(self.model).from_pretrained(folder / "model")
            if name := first_not_finite(self.model):
                raise TrainingError(
                    f"{folder / 'model'}: {name} is not finite, so stage {number} has failed: give it a lower learning_rate, and "
                    "name another folder"
                )
        if self.state.is_main_process:
            with output_folder(self.output / "model", force=True) as folder:
                self.model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
            draw_curves(self.output)
        self.state.wait_for_everyone()
        return self.model

    def _begin(self) -> None:
        """Write down what is begun, or compare it with what was."""
        path, run = self.output / "run.json", self._description()
        if path.exists():
            hint = f"--from {self.output}/stage-1/model starts another run from a stage that is done"
            check_same(self.output, self._begun(path), run, hint)
        elif {entry.name for entry in self.output.iterdir()} - {"corpus"}:
            raise TrainingError(f"{self.output} is not empty and holds no run: name a new folder")
        write_whole(path.resolve(), json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def _begun(self, path: Path) -> dict:
        """What `_description` was, where an earlier version has written it too."""
        try:
            begun = json.loads(path.read_text(encoding="utf-8"))
            begun["model"] = own_fields(begun["model"], self.model.config)
            if isinstance(begun["corpus"], list):  # names, and "9 documents"
                begun["documents"] = int(begun.pop("corpus")[-1].split()[0].replace(",", ""))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise TrainingError(f"{path} is broken, and does not say what was begun: name another folder") from None
        return begun

    def _description(self) -> dict:
        """What must be the same for a run to be resumed, as JSON holds it."""
        entries = sorted(self.tokenizer.get_vocab(), key=self.tokenizer.get_vocab().get)
        documents = self.corpus.documents()
        return {
            "stages": [stage.to_dict() for stage in self.stages],
            "seed": self.seed,
            "corpus": digest_of_rows(documents),
            "documents": len(documents),
            "held_out": digest_of_rows(self.held_out.documents()) if self.held_out else None,
            "vocabulary": hashlib.sha256("\n".join(entries).encode("utf-8", "replace")).hexdigest(),
            "tokenizer": digest_of_tokenizer(self.tokenizer),
            "model": own_fields(self.model.config.to_dict(), self.model.config),
            "weights": _weights_of(self.model),
            "arguments": _that_matter(self.arguments),
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
        self._show_in_tensorboard(trainer, number, trainer.checkpoint)
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
            (folder / "log.json").write_text(
                json.dumps(trainer.state.log_history, indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
        trainer.require_finite_weights()
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

    def _show_in_tensorboard(self, trainer: StageTrainer, number: int, last: Path | None) -> None:
        if not (is_tensorboard_available() and self.state.is_main_process):
            return
        from torch.utils.tensorboard import SummaryWriter

        begun = int(last.name.partition("-")[2]) + 1 if last else 0  # what was logged after it is logged anew
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


def _weights_of(model: PreTrainedModel) -> list[str] | None:
    """Digests of the files that a model was loaded from; None of a fresh one, which follows from its config and a seed."""
    if not model.name_or_path:
        return None
    try:
        return digests_of_weights(model.name_or_path)
    except (TrainingError, OSError):  # its config alone is from there
        return None


def _that_matter(arguments: dict) -> dict:
    """Those arguments of `TrainingArguments` that change what is learned, where they are not the defaults."""
    defaults = {field.name: field.default for field in fields(TrainingArguments)}
    found = {
        name: value
        for name, value in arguments.items()
        if not name.startswith(_NOT_COMPARED) and not (name in defaults and defaults[name] == value)
    }
    return json.loads(json.dumps(found, default=str))
