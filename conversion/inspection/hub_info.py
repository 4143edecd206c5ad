"""Describe a checkpoint on the Hub; its weights stay there, except for the headers of safetensors files."""

import shutil
import tempfile
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

from modeling_roformer.hub.errors import hub_bars, hub_error, usable_token
from modeling_roformer.output.console import sentence_of

from ..folder.legacy_folder import INDEX
from ..formats.pytorch_files import PYTORCH
from .checkpoint_info import CheckpointInfo
from .folder_info import SMALL, folder_info
from .saved_info import saved_info


def repository_info(repo_id: str, revision: str | None, token: str | None) -> CheckpointInfo:
    """Describe the checkpoint in a repository; raise HubError if the Hub fails, ValueError if there is none."""
    token = usable_token(token)
    api = HfApi(endpoint=constants.ENDPOINT, token=token)
    try:
        with hub_bars(False):
            listed = api.list_repo_tree(repo_id, recursive=True, revision=revision)
            sizes = {file.path: file.size for file in listed if hasattr(file, "size")}
            paths = {
                name: api.hf_hub_download(repo_id, name, revision=revision) for name in sizes if _is_wanted(name, sizes)
            }
            tensors, trouble = _tensors(api, repo_id, revision, sizes)
    except Exception as error:
        consequence = f"{repo_id} is not a folder here, and could not be looked up on the Hub"
        raise hub_error(error, consequence, token) from None
    name = repo_id.split("/")[-1]
    with tempfile.TemporaryDirectory() as folder:
        # The cache may also hold weights of an earlier download, which are not needed.
        for file, path in paths.items():
            shutil.copyfile(path, Path(folder) / file)
        try:
            if tensors is None:
                found = folder_info(Path(folder), sizes, repo_id, name, has_data=False)
                found.notes = [trouble or note.replace(folder, repo_id) for note in found.notes]
            else:
                config = Path(folder) / "config.json"
                found = saved_info(Path(folder), config, None, repo_id, name, tensors=tensors)
                found.notes += [trouble] if trouble else []
        except ValueError as error:
            raise ValueError(str(error).replace(folder, repo_id)) from None
    found.kind, found.files = f"{found.kind} on the Hub", sorted(sizes.items())
    return found


def _is_wanted(name: str, sizes: dict[str, int]) -> bool:
    """Return whether a file describes the checkpoint; tokenizer.json is only wanted if there is no vocab.txt."""
    if name == "tokenizer.json" and "vocab.txt" in sizes:
        return False
    return name in SMALL or (name.endswith(INDEX) and "/" not in name)


def _tensors(api: HfApi, repo_id: str, revision: str | None, sizes: dict[str, int]):
    """Return name -> dtype and shape by the headers, or None if they cannot be read; and the reason."""
    if not any(name in sizes for name in PYTORCH[:2]):
        binary = next((name for name in PYTORCH[2:] if name in sizes), None)
        return None, binary and f"{binary} stays on the Hub, so its parameters are not counted"
    if "config.json" not in sizes:
        return None, None
    try:
        metadata = api.get_safetensors_metadata(repo_id, revision=revision)
    except (NotASafetensorsRepoError, SafetensorsParsingError) as error:
        return {}, sentence_of(error)
    return {
        name: (tensor.dtype, tuple(tensor.shape))
        for file in metadata.files_metadata.values()
        for name, tensor in file.tensors.items()
    }, None
