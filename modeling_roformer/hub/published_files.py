"""The files of a model folder that are published, and those that are left out."""

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from .checksums import SUM

SILENT = (".*", "__pycache__", "*.pyc")
UNDERSCORE = ("_*",)
TRAINING_FOLDERS = (
    "checkpoint-*", "global_step*", "optimizer_[0-9]*", "pytorch_model_fsdp*", "runs", "wandb", "mlruns",
    "lightning_logs",
)  # fmt: skip
TRAINING = (
    "checkpoint-*",
    # transformers' Trainer
    "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth", "training_args.bin", "trainer_state.json",
    # accelerate's save_state, and its FSDP
    "optimizer.bin", "optimizer_[0-9]*.bin", "scheduler.bin", "scheduler_[0-9]*.bin", "sampler.bin",
    "sampler_[0-9]*.bin", "dl_state_dict*.bin", "random_states_*.pkl", "custom_checkpoint_*.pkl", "pytorch_model_fsdp*",
    "*.distcp",
    # DeepSpeed
    "latest", "latest_universal", "zero_to_fp32.py", "*model_states.pt", "*optim_states.pt",
    # TensorBoard, and our checkpoints
    "events.out.tfevents.*", "whole.json", "run.json",
)  # fmt: skip
SECRET_FOLDERS = ("credentials", "secret", "secrets")
# Whole names: added_tokens.json, special_tokens_map.json and token_counts.json are not credentials.
CREDENTIAL = re.compile(
    r"""
      id_(rsa|dsa|ecdsa|ed25519).*                            # SSH
    | .*\.(pem|key|ppk|p8|p12|pfx|jks|keystore|kdbx|token)    # keys, and stores of them
    | .*\.env | \.env.*
    | [._]?netrc | \.?pgpass | \.?htpasswd | \.?kubeconfig.* | .*\.kubeconfig
    | (.*[._-])?credentials?([._-].*)?
    | (.*[._-])?(secrets?|passwords?|api[_-]?keys?)(\..*)? | client[_-]secret.*
    | .*(service[_-]?account|firebase-adminsdk).*\.json       # Google
    | (.*[_-])?token | token\.(txt|json) | stored_tokens     # the last is huggingface_hub's
    | kaggle\.json | rclone\.conf
    | (.*[_-])?(access|api|auth|bearer|bot|gh|github|gitlab|hf|hub|huggingface|refresh|wandb)[_-]?tokens?\.\w+
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A private key at the start of a line, in Google's JSON or in PuTTY's format, or a token of the Hub alone, in any file.
PRIVATE_KEY = re.compile(
    rb"""
      (^|"private_key"\s*:\s*")[ \t]*-----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY([ ]BLOCK)?-----
    | \APuTTY-User-Key-File-
    | \A\s*hf_[A-Za-z0-9]{30,}\s*\Z
    """,
    re.VERBOSE | re.MULTILINE,
)
# Byte order marks, also doubled ones, and the zero bytes that UTF-16 puts between letters.
ENCODING = re.compile(rb"\A(\xef\xbb\xbf|\xff\xfe|\xfe\xff)+|\0")
KEY_BYTES = 1 << 16  # a larger file is not a key
# The places where a card can name a file: [text](file "title"), ![text](<file>), [label]: file, <img src="file">.
LINKS = re.compile(
    r"""
      \]\(\s*(?:<([^<>\n]*)>|([^\s()<>]+))
    | ^[ ]{0,3}\[[^\]\n]+\]:\s*<?([^\s<>]+)
    | \b(?:src|href)\s*=\s*["']?([^"'\s>]+)
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
NAMED = 20  # at most, files named for each reason

HIDDEN = "hidden"
CREDENTIALS = "looks like a credential"
LEFT_BY_TRAINING = "left by training"
BEGINS_SO = 'begins with "_"'


@dataclass(frozen=True)
class PublishedFiles:
    """The published files by their path in the repository, and the names left out by reason (a folder's ends in "/").

    `identities` has device, inode, size and time of the last change of each file, as they were when it was found.
    """

    files: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    identities: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def changed(self) -> list[str]:
        """Return the files that were written, removed or linked elsewhere since they were found."""
        return [name for name, path in self.files.items() if _identity(path) != self.identities[name]]

    def note(self) -> str | None:
        """Return a sentence that names the files left out, or None if there are none."""
        parts = []
        for reason, names in self.left_out.items():
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            parts.append(f"{', '.join(names[:NAMED])}{more} ({reason})")
        return f"left out: {'; '.join(parts)}" if parts else None


def published_files(directory: Path, card: str = "") -> PublishedFiles:
    """Return the files of a folder that are published.

    Hidden files and Python's caches are left out silently. Files of training, names that begin with "_", and files that
    look like credentials are left out and named in the note. A file that the card shows or links to belongs to the
    model, even in a folder that is left out (`![loss](runs/loss.png)`; a link to the folder itself changes nothing),
    unless it is hidden or looks like a credential.

    Links are followed within the folder, and from a snapshot in huggingface_hub's cache to the blobs of the same
    repository.

    Args:
        directory: the folder, or a link to it.
        card: the text of its README.md.

    Raises:
        ValueError: a link leads elsewhere, to nothing, to a folder that contains it, or to a credential.
    """
    found = PublishedFiles()
    named = set(_named_by(card))
    root = Path(os.path.realpath(directory))
    blobs = _blobs(root)

    def walk(folder: Path, prefix: str, above: tuple[Path, ...], of_the_folder: str | None) -> None:
        for path in sorted(folder.iterdir()):
            is_folder = path.is_dir()
            name = f"{prefix}{path.name}{'/' * is_folder}"
            reason = _reason(path) or of_the_folder
            if reason == HIDDEN:
                continue
            shown = any(file.startswith(name) for file in named) if is_folder else name in named
            if reason == CREDENTIALS or (reason and not shown):
                found.left_out.setdefault(reason, []).append(name)
                continue
            real = _target(path, root, blobs)
            if is_folder:
                if real in above:
                    raise ValueError(f"{path} is a link to a folder that contains it: remove it")
                walk(path, name, (*above, real), reason)
            elif path.is_file():
                found.files[name], found.identities[name] = path, _identity(path)

    walk(Path(directory), "", (root,), None)
    return found


def _identity(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _reason(path: Path) -> str | None:
    """Return why a file or folder is left out, by its name or content. A link to a folder has two names."""
    is_folder = path.is_dir()
    names = {path.name, os.path.basename(os.path.realpath(path))} if is_folder else {path.name}
    for name in names:
        if name.lower() in SECRET_FOLDERS if is_folder else _is_credential(path):
            return CREDENTIALS
        if _matches(name, SILENT):
            return HIDDEN
        if _matches(name, TRAINING_FOLDERS if is_folder else TRAINING):
            return LEFT_BY_TRAINING
        if _matches(name, UNDERSCORE):
            return BEGINS_SO
    return None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _is_credential(path: Path) -> bool:
    """Return whether a file is a credential, by its name or its content; a link's target is not read."""
    if CREDENTIAL.fullmatch(path.name):
        return True
    if path.is_symlink() or not path.is_file() or path.stat().st_size > KEY_BYTES:
        return False
    with open(path, "rb") as file:
        return PRIVATE_KEY.search(ENCODING.sub(b"", file.read(KEY_BYTES))) is not None


def _target(path: Path, root: Path, blobs: Path | None) -> Path:
    """Return the target of a path, following links; raise ValueError if that must not be published."""
    real = Path(os.path.realpath(path))
    if not real.exists():
        raise ValueError(f"{path} is a link to {real}, which does not exist: remove it, or put the file there")
    if not (real.is_relative_to(root) or (real.parent == blobs and SUM.fullmatch(real.name))):
        raise ValueError(f"{path} is a link to {real}, outside the folder: replace the link by a copy")
    folders = real.relative_to(root).parts if real.is_relative_to(root) else ()
    if path.is_symlink() and (_is_credential(real) or any(part.lower() in SECRET_FOLDERS for part in folders)):
        raise ValueError(f"{path} is a link to {real}, which {CREDENTIALS} and is not published: remove it")
    return real


def _blobs(root: Path) -> Path | None:
    """Return the folder of blobs for a snapshot, or part of one, in huggingface_hub's cache; None for other folders."""
    for folder in (root, *root.parents):
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            return folder.parent.parent / "blobs"
    return None


def _named_by(card: str) -> Iterator[str]:
    """Yield the files that a card shows or links to, by their path in the repository."""
    for groups in LINKS.findall(card):
        link = unquote(next(filter(None, groups), "").partition("#")[0].partition("?")[0])
        # The Hub's own address of a file is https://huggingface.co/NAME/REPOSITORY/resolve/main/loss.png.
        address = re.fullmatch(r"https?://.+?/(?:resolve|blob|raw)/[^/]+/(.+)", link)
        yield posixpath.normpath(address[1] if address else link)
