"""Find the files that describe a checkpoint: in a folder, in a .zip, or on the Hub, where the weights stay."""

import shutil
import tempfile
from pathlib import Path

from modeling_roformer.files.model_folder import special_file
from modeling_roformer.output.console import sentence_of

from ..errors import CheckpointError
from ..folder.legacy_folder import (
    CONFIGS,
    GENERATION_CONFIG,
    INDEX,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    name_of,
    unpack,
)
from ..formats.pytorch_files import PYTORCH
from .checkpoint_info import CARD, CheckpointInfo, Tensors, describe

# The files that describe a checkpoint, besides its index.
SMALL = (*CONFIGS, VOCABULARY, TOKENIZER_CONFIG, TOKENIZER, GENERATION_CONFIG, CARD)


def info(where: str | Path, *, revision: str | None = None, token: str | None = None) -> CheckpointInfo:
    """Describe the checkpoint at `where` without loading it.

    Tensor data is not read, except for the few bytes with the names of a tf.keras checkpoint's layers.

    Args:
        where: a saved model's folder, a legacy checkpoint's folder or .zip (its data files may be missing), or the name
            of a repository on the Hub. Only its configuration, vocabulary, card and headers are fetched.
        revision: branch, tag or commit of the repository.
        token: if None, the one from HF_TOKEN or `hf auth login`.

    Raises:
        ValueError: there is no checkpoint, or it has no revisions.
        HubError: the Hub failed or refused.

    Example:
        >>> info("chinese_roformer-v2-char_L-12_H-768_A-12.zip").family
        'RoFormer-V2'
    """
    path, shown = Path(where), str(where) or "."
    if revision is not None and path.exists():
        raise ValueError(
            f"{where} is a local path, without revisions like {revision!r}; repositories on the Hub have them"
        )
    if path.is_dir():
        if reason := special_file(path):
            raise CheckpointError(reason)
        return describe(path, _sizes(path), shown, name_of(path))
    if not path.is_file() and shown.count("/") != 1:  # a name without owner is more likely a mistyped folder
        raise ValueError(f"{where} does not exist: name a folder, a .zip, or a repository on the Hub (OWNER/NAME)")
    with tempfile.TemporaryDirectory() as folder:
        try:
            if path.is_file():
                sizes = unpack(path, Path(folder), lambda name: name in SMALL or name.endswith(INDEX))
                found = describe(Path(folder), sizes, shown, name_of(path), has_data=False)
            else:
                sizes, tensors, trouble = _fetch(shown, revision, token, Path(folder))
                found = describe(Path(folder), sizes, shown, path.name, has_data=False, tensors=tensors)
                found.kind, found.notes = f"{found.kind} on the Hub", found.notes + trouble
        except ValueError as error:  # the user knows the archive or the repository, not the temporary folder
            kind = CheckpointError if isinstance(error, CheckpointError) else ValueError
            raise kind(str(error).replace(folder, shown)) from None
    found.notes = [note.replace(folder, shown) for note in found.notes]
    return found


def _sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of a folder's files except hidden ones; also in subfolders, if it holds a checkpoint."""
    below = folder.rglob("*") if any((folder / name).is_file() for name in CONFIGS) else folder.iterdir()
    files = {file.relative_to(folder): file for file in below if file.is_file()}
    return {
        name.as_posix(): file.stat().st_size
        for name, file in files.items()
        if not any(part.startswith(".") for part in name.parts)
    }


def _fetch(
    repo_id: str, revision: str | None, token: str | None, folder: Path
) -> tuple[dict[str, int], Tensors | None, list[str]]:
    """Copy the small files of a repository into a folder.

    Returns the sizes of all files, the tensors of safetensors files by their headers, and why these cannot be read.
    Raises HubError if the Hub fails.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    from modeling_roformer.hub.errors import hub_bars, hub_error, usable_token

    token = usable_token(token)
    api = HfApi(endpoint=constants.ENDPOINT, token=token)
    try:
        with hub_bars(False):
            listed = api.list_repo_tree(repo_id, recursive=True, revision=revision)
            sizes = {file.path: file.size for file in listed if hasattr(file, "size")}
            wanted = set(SMALL) - ({TOKENIZER} if VOCABULARY in sizes else set())
            for name in [name for name in sizes if name in wanted or (name.endswith(INDEX) and "/" not in name)]:
                # Not read in the cache, which may also hold weights of an earlier download.
                shutil.copyfile(api.hf_hub_download(repo_id, name, revision=revision), folder / name)
            if not any(name in sizes for name in PYTORCH[:2]):
                return sizes, None, []
            metadata = api.get_safetensors_metadata(repo_id, revision=revision)
    except (NotASafetensorsRepoError, SafetensorsParsingError) as error:
        return sizes, {}, [sentence_of(error)]
    except Exception as error:  # of huggingface_hub, of its HTTP library, and of the system; all become a HubError
        consequence = f"{repo_id} is not a folder here, and could not be looked up on the Hub"
        raise hub_error(error, consequence, token) from None
    headers = [file.tensors for file in metadata.files_metadata.values()]
    return sizes, {name: (info.dtype, tuple(info.shape)) for file in headers for name, info in file.items()}, []
