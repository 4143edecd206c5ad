"""Folder of a training run: its settings, its results, and the checkpoint that it is resumed from."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import is_zipfile

import datasets
from huggingface_hub import EvalResult
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_roformer.data.files import all_files
from modeling_roformer.files import write_whole
from modeling_roformer.files.atomic_folder import is_saved_model, output_folder, require_nothing_lost
from modeling_roformer.files.lock import only_writer
from modeling_roformer.files.reading import LARGE, json_object
from modeling_roformer.model_cards import published_name, sha256_of, write_trained_card

from ..errors import TrainingError, resumable
from .device import processes

SETTINGS, RESULTS = "settings.json", "results.json"
_MOST_LISTED = 10_000  # files of a folder
_NOT_COMPARED = ("output", "resume")
Source = str | Path | datasets.Dataset | datasets.DatasetDict | Mapping[str, str]


class Run:
    """Run of a training script in a folder; see `start_run`.

    folder: the folder.
    results: the content of its results.json, a dict to be changed; `save_results` writes it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.results = json_object(folder / RESULTS, LARGE) if (folder / RESULTS).exists() else {}

    @property
    def checkpoint(self) -> str | None:
        """The last complete checkpoint of Trainer in the folder, for `resume_from_checkpoint`, or None."""
        return last_checkpoint(self.folder)

    def save_results(self) -> None:
        """Write `results` into results.json, atomically. Raises a ValueError if a number is not finite."""
        write_json(self.folder / RESULTS, self.results)

    def save(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        training: str,
        task: str = "",
        scores: Mapping[str, float] | None = None,
        tested_on: tuple[str | Path, str] = ("", ""),
        name: str = "model",
        **card,
    ) -> None:
        """Save a trained model with its tokenizer and its card in `folder/name`, complete or not at all.

        Args:
            training: what the model was trained to do, on how many texts, for the card.
            task: name of the task on the Hub, such as "text-classification".
            scores: scores by name; NaN is refused with a ValueError.
            tested_on: the data that they were measured on, and its split.
            name: name of the folder, and of the model in its card; `model` is called like the run there.
            card: further arguments of `write_trained_card`.
        """
        data = published_name(tested_on[0])
        results = [
            EvalResult(task, data, data, metric, value, dataset_split=tested_on[1])
            for metric, value in (scores or {}).items()
        ]
        run = self.folder.resolve().name
        title, place = run if name == "model" else name, f"{run}/{name}"
        with self.saving(name) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            write_trained_card(folder, title, training, scores=results, **{"place": place, **card})

    @contextmanager
    def saving(self, name: str = "model") -> Iterator[Path]:
        """Yield a folder to save a model into. At the end of the block it becomes `folder/name`, in one step, in place
        of an earlier model. Of several processes, only the main one's is kept."""
        is_main = processes().is_main_process
        with output_folder(self.folder / name, force=True) if is_main else TemporaryDirectory() as folder:
            yield Path(folder)


@contextmanager
def start_run(
    output: str | Path,
    settings: Mapping[str, object],
    data: Mapping[str, Source | list[str | Path] | None],
    resume: bool = False,
) -> Iterator[Run]:
    """Begin a run in a new or empty folder, or resume the one that the folder has, and hold the folder's lock.

    `settings.json` records the settings and what identifies the data. A run is resumed only if both are the same, so
    that results of another run are never taken for its own.

    Args:
        output: folder of the run.
        settings: what the results depend on, as JSON values or paths, such as `vars` of the script's arguments.
            `output`, `resume` and names in `data` are left out.
        data: the data that the run reads, by name. Files and folders are compared by the SHA-256 of their files, data
            sets of `datasets` by their fingerprint, and names on the Hub as they are. A dict is compared as it is. None
            is left out.
        resume: whether to resume a run, if there is one.

    Raises a TrainingError if the folder is not empty and `resume` is False, if the run in it has other settings or
    data, which are named, or if another process writes into the folder. In the block, a full disk raises one too.

    >>> with start_run("runs", {"seed": 0}, {"train": "reviews.csv"}, resume=True) as run:
    ...     trainer.train(resume_from_checkpoint=run.checkpoint)
    """
    folder = Path(output)
    with ExitStack() as stack:
        # If the main process raises an error, the launcher ends the others.
        if processes().is_main_process:
            stack.enter_context(only_writer(folder, TrainingError))
            _record_or_compare(folder, settings, data, resume)
        processes().wait_for_everyone()
        stack.enter_context(resumable(folder))
        yield Run(folder)


def _record_or_compare(folder: Path, settings: Mapping, data: Mapping, resume: bool) -> None:
    path = folder / SETTINGS
    if any(not entry.name.startswith(".") for entry in folder.iterdir()) and not (resume and path.exists()):
        advice = "resume its run with --resume, or name" if path.exists() else f"it has no {SETTINGS} to resume; name"
        raise TrainingError(f"{folder} is not empty: {advice} a new folder")
    if is_saved_model(model := folder / "model"):  # refused now, not after hours of training
        try:
            require_nothing_lost(model)
        except FileExistsError as error:
            raise TrainingError(str(error)) from None
    now = {
        "settings": {name: value for name, value in settings.items() if name not in {*_NOT_COMPARED, *data}},
        "data": {name: _identity(source) for name, source in data.items() if source is not None},
        "script": Path(sys.argv[0]).name,  # only for the message of another one
    }
    now = json.loads(json.dumps(now, default=str))
    if not path.exists():
        write_json(path, now)
        return
    begun = json_object(path, LARGE)
    before, after = _fields(begun), _fields(now)
    different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if different and begun.get("script", now["script"]) != now["script"]:
        raise TrainingError(
            f"{folder} has a run of {begun['script']}, which {now['script']} cannot resume: name another folder"
        )
    if different:
        command = "the command that began it"
        if "arguments.bf16" in different:  # its default depends on the device
            command += " with " + ("--no-bf16" if after["arguments.bf16"] else "--bf16")
        raise TrainingError(
            f"{folder} has a run with different {', '.join(different)}: name another folder, or repeat {command} "
            f"({path} has its settings and data)"
        )


def record_checksums(folder: Path, checksums: Mapping[str, str], is_begun: bool) -> None:
    """Record checksums of what was made of the data, by name, in the settings of a run, or compare them with those that
    it has.

    `is_begun` is whether the run has trained.

    Raises a TrainingError that names those that differ.
    """
    path = folder / SETTINGS
    settings = json_object(path, LARGE)
    if not is_begun:
        write_json(path, settings | {"checksums": checksums})
        return
    recorded = settings.get("checksums", {})
    if different := [name for name, checksum in checksums.items() if recorded.get(name) != checksum]:
        raise TrainingError(
            f"{folder} has a run with other pieces of the same texts ({', '.join(different)}): resume it with the "
            "versions of this package and of its libraries that began it, or name another folder"
        )


def _fields(recorded: Mapping) -> dict:
    """Return the data and the settings of a settings.json by name. A setting that is a dict has a name for each field,
    such as `arguments.bf16`."""
    fields = {**recorded.get("data", {})}
    for name, value in recorded.get("settings", {}).items():
        if isinstance(value, dict):
            fields |= {f"{name}.{field}": field_value for field, field_value in value.items()}
        else:
            fields[name] = value
    return fields


def _identity(source: Source | list) -> object:
    """Return the identity of data, as a JSON value."""
    if isinstance(source, datasets.DatasetDict):
        return {name: _identity(part) for name, part in source.items()}
    if isinstance(source, Mapping):
        return source
    if isinstance(source, datasets.Dataset):
        return source._fingerprint
    if isinstance(source, (list, tuple)):
        return [_identity(part) for part in source]
    path = Path(source)
    if path.is_dir():
        files = {str(file.relative_to(path)): sha256_of(file) for file in all_files(path) if file.is_file()}
        # A settings.json of hundreds of thousands of files would be too large to be read again.
        return files if len(files) <= _MOST_LISTED else sha256(json.dumps(files).encode()).hexdigest()
    return sha256_of(path) if path.is_file() else str(source)


def last_checkpoint(folder: str | Path) -> str | None:
    """Return the last complete checkpoint of Trainer in a folder, or None. Trainer writes trainer_state.json last.

    Raises a TrainingError if the state of its optimizer, of its schedule or of its random numbers was removed, or if a
    file of it is truncated.
    """
    folder = Path(folder)
    steps = (path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*") if path.is_dir())
    for step in sorted((int(step) for step in steps if step.isdecimal()), reverse=True):
        checkpoint = folder / f"checkpoint-{step}"
        try:
            if json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["global_step"] == step:
                break
        except (OSError, ValueError, LookupError, TypeError):
            continue
    else:
        return None
    if missing := _missing_state(checkpoint):
        raise TrainingError(
            f"{checkpoint} has no {missing}, so training would not resume as it was stopped: restore the file, remove "
            "the checkpoint to resume from the one before, or train in another folder"
        )
    if damaged := next(filter(_is_truncated, sorted(checkpoint.iterdir())), None):
        raise TrainingError(
            f"{damaged} is truncated: remove {checkpoint}, and the run resumes from the checkpoint before it, if any"
        )
    return str(checkpoint)


def _is_truncated(file: Path) -> bool:
    """Return whether a file of tensors is incomplete. The formats of torch and safetensors show it without reading the
    tensors."""
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="pt"):
                return False
        except SafetensorError:
            return True
    return file.suffix in (".pt", ".pth") and not is_zipfile(file)


def _missing_state(checkpoint: Path) -> str | None:
    """Return the name of the file of the optimizer, the schedule or the random numbers that a checkpoint lacks, or
    None. Trainer itself would silently begin with a new optimizer, or with other dropout."""
    names = {path.name for path in checkpoint.iterdir()}
    if not any(name.startswith(("rng_state", "scheduler", "optimizer")) for name in names):
        return None  # with save_only_model, a checkpoint has no states
    # FSDP saves the state of the optimizer in a file or a folder of another name, and DeepSpeed in global_step1000.
    if not any("optimizer" in name or name.startswith("global_step") for name in names):
        return "optimizer.pt"
    if "optimizer.pt" in names and "scheduler.pt" not in names:
        return "scheduler.pt"
    return None if any(name.startswith("rng_state") for name in names) else "rng_state.pth"


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, in the main process. Raise a ValueError if a number is not finite."""
    if processes().is_main_process:
        write_whole(path.resolve(), json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
