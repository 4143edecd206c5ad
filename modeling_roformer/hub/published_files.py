"""The files of a model folder that are published, and those that are left out."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

HIDDEN = (".*", "__pycache__", "*.pyc")
TRAINING = (
    "checkpoint-*",
    "runs",
    "wandb",
    "mlruns",
    "lightning_logs",
    "events.out.tfevents.*",
    # transformers' Trainer
    "optimizer.pt",
    "scheduler.pt",
    "scaler.pt",
    "rng_state*.pth",
    "training_args.bin",
    "trainer_state.json",
    # accelerate, FSDP and DeepSpeed
    "optimizer.bin",
    "optimizer_[0-9]*",
    "scheduler.bin",
    "sampler.bin",
    "dl_state_dict*.bin",
    "random_states_*.pkl",
    "custom_checkpoint_*.pkl",
    "pytorch_model_fsdp*",
    "*.distcp",
    "global_step*",
    "latest",
    "zero_to_fp32.py",
    "*model_states.pt",
    "*optim_states.pt",
)
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
    | (.*[_-])?token | token\.(txt|json) | stored_tokens      # the last is huggingface_hub's
    | kaggle\.json | rclone\.conf
    | (.*[_-])?(access|api|auth|bearer|bot|gh|github|gitlab|hf|hub|huggingface|refresh|wandb)[_-]?tokens?\.\w+
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A private key at the start of a line or in Google's JSON, or a token of the Hub, in any small file.
PRIVATE_KEY = re.compile(
    rb'(^|\xef\xbb\xbf|"private_key"\s*:\s*")[ \t]*-----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY|\bhf_[A-Za-z0-9]{30,}\b',
    re.MULTILINE,
)
KEY_BYTES = 1 << 16  # a larger file is not a key
NAMED = 20  # at most, files named for each reason


def published_files(directory: Path) -> tuple[dict[str, Path], str | None]:
    """Return the files of a folder that are published, by their path there, and a sentence on what else is not hidden.

    Raises ValueError if a link leads out of the folder,
    to a folder or to nothing, except to a blob of the same repository in huggingface_hub's cache.
    """
    root = Path(os.path.realpath(directory))
    places = [root] if root.parent.name != "snapshots" else [root, root.parent.parent / "blobs"]
    files: dict[str, Path] = {}
    names_by_reason: dict[str, list[str]] = {}

    def walk(folder: Path, prefix: str) -> None:
        for path in sorted(folder.iterdir()):
            real, name = Path(os.path.realpath(path)), prefix + path.name
            if reason := _reason(path):
                if reason != "hidden":
                    names_by_reason.setdefault(reason, []).append(name + "/" * path.is_dir())
            elif path.is_dir() and not path.is_symlink():
                walk(path, f"{name}/")
            elif not real.is_file() or not any(real.is_relative_to(place) for place in places):
                raise ValueError(f"{path} leads to {real}, out of the folder or to no file: replace the link by a copy")
            elif path.is_symlink() and _reason(real):
                raise ValueError(f"{path} is a link to {real}, which is not published: remove it")
            else:
                files[name] = path

    walk(Path(directory), "")
    parts = [
        f"{', '.join(names[:NAMED])}{f' and {len(names) - NAMED:,} more' * (len(names) > NAMED)} ({reason})"
        for reason, names in names_by_reason.items()
    ]
    return files, f"left out: {'; '.join(parts)}" if parts else None


def _reason(path: Path) -> str | None:
    """Return why a file or folder is left out, by its name, or by the content of a small file that is not a link."""
    is_small = path.is_file() and not path.is_symlink() and path.stat().st_size <= KEY_BYTES
    if CREDENTIAL.fullmatch(path.name) or (is_small and PRIVATE_KEY.search(path.read_bytes())):
        return "looks like a credential"
    for reason, patterns in (("hidden", HIDDEN), ("left by training", TRAINING)):
        if any(fnmatchcase(path.name.lower(), pattern) for pattern in patterns):
            return reason
    return None
