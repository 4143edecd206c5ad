"""Find the files of a legacy checkpoint, in a folder or in the published .zip."""

import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from modeling_roformer.files.atomic_folder import overlap, temporary_sibling
from modeling_roformer.files.model_folder import ADAPTER, adapter_advice, special_file

from ..errors import CheckpointError
from ..formats.pytorch_files import PYTORCH, PYTORCH_SUFFIXES
from ..formats.zip_archive import open_zip

BERT4TORCH = "bert4torch_config.json"
CONFIGS = ("bert_config.json", "config.json", BERT4TORCH)
VOCABULARY = "vocab.txt"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"  # the only vocabulary file of new versions of transformers
TOKENIZER_CONFIG = "tokenizer_config.json"
INDEX = ".index"
TRANSFORMERS_HDF5 = "tf_model.h5"  # a copy of the model, saved by transformers' TensorFlow classes
_DATA = re.compile(r"\.data-\d+-of-\d+$")  # at the end of the name of a TensorFlow checkpoint's data file
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class LegacyFiles:
    """The paths of one checkpoint: configuration, vocabulary and weights.

    `weights` is a file (Keras' HDF5, PyTorch's, safetensors, or the index of shards), or the prefix of a TensorFlow
    checkpoint (its .index, if a file is named like the prefix).
    """

    config: Path
    vocab: Path
    weights: Path


@contextmanager
def legacy_files(path: str | Path, checkpoint: str | None, unpack_beside: Path | None) -> Iterator[LegacyFiles]:
    """Yield the files at `path`, a folder or a .zip, which is unpacked next to `unpack_beside` while the block runs.

    Without `unpack_beside`, it is unpacked in the system's folder for temporary files.

    `checkpoint` names the weights, if there are several. Raises CheckpointError, one sentence, if a file is missing or
    the choice is ambiguous.
    """
    path = Path(path)
    if path.is_dir():
        yield find_files(path, checkpoint)
    elif path.is_file():
        with _temporary_folder(unpack_beside) as folder:
            try:
                unpack(path, folder)
                yield find_files(folder, checkpoint)
            except CheckpointError as error:
                # The user knows the archive, not the temporary folder that it was unpacked into.
                raise CheckpointError(str(error).replace(str(folder), str(path))) from None
    else:
        raise CheckpointError(
            f"{path} does not exist: name a folder or a .zip with a checkpoint (`roformer pull` fetches them from the "
            "Hub)"
        )


@contextmanager
def _temporary_folder(beside: Path | None) -> Iterator[Path]:
    if beside is not None:
        with temporary_sibling(beside) as folder:
            yield folder
    else:
        with TemporaryDirectory() as folder:
            yield Path(folder)


def checked_output(source: Path, output: str | Path) -> Path:
    """Return the absolute path of an output folder.

    Raises FileExistsError if it is or contains the source or a file that the source links to, or lies in the source.
    """
    output = Path(output).resolve()
    if overlap(source, output):
        raise FileExistsError(f"{output} is, contains or lies in the input, {source}: name a folder next to it")
    links = [path for path in source.iterdir() if path.is_symlink()] if source.is_dir() else []
    if link := next((path for path in links if overlap(path.resolve(), output)), None):
        raise FileExistsError(f"{output} has what {link} of the input links to: name another folder")
    return output


def name_of(path: str | Path) -> str:
    """Return the name of a checkpoint: the folder's, or the archive's and that of the folder in it.

    A link has two names, its own and that of its target.
    """
    names = [Path(path).absolute().name, Path(path).resolve().name]
    if zipfile.is_zipfile(path):
        with open_zip(Path(path)) as archive:
            names += sorted(place.name for place in _places(archive.infolist()))
    return "/".join(name for name in dict.fromkeys(names) if name)


def find_files(folder: Path, checkpoint: str | None = None) -> LegacyFiles:
    """Return the files of the checkpoint in a folder; raise CheckpointError if one is missing or there are several."""
    if reason := special_file(folder):
        raise CheckpointError(reason)
    config = next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    if config is None:
        if (folder / ADAPTER).is_file():
            raise CheckpointError(adapter_advice(folder))
        raise CheckpointError(f"{folder} has no {' or '.join(CONFIGS)}")
    weights = _only_weights(folder) if checkpoint is None else _prefix(folder, checkpoint)
    is_pytorch = weights in PYTORCH or Path(weights).suffix in PYTORCH_SUFFIXES
    if is_pytorch and (folder / CONFIGS[1]).is_file():
        config = folder / CONFIGS[1]  # transformers' own
    vocabularies = (VOCABULARY, TOKENIZER) if is_pytorch else (VOCABULARY,)
    vocab = next((folder / name for name in vocabularies if (folder / name).is_file()), None)
    if vocab is None:
        remedy = "save the tokenizer there" if is_pytorch else "copy the model's vocabulary there"
        raise CheckpointError(f"{folder / VOCABULARY} is missing: {remedy}")
    return LegacyFiles(config, vocab, folder / weights)


def _only_weights(folder: Path) -> str:
    """Return the name of the only weights in a folder."""
    found = find_weights(folder)
    if not found:
        raise CheckpointError(
            f"{folder} has no weights: no TensorFlow checkpoint ({INDEX}), no Keras HDF5 file, no "
            f"{' and no '.join(PYTORCH[::2])}"
        )
    if len(found) > 1:
        raise CheckpointError(several_weights(folder, found))
    return found[0]


def several_weights(folder: Path, names: list[str]) -> str:
    """Return the sentence for a folder with several checkpoints."""
    return f"{folder} has several checkpoints; choose one with --checkpoint: {', '.join(names)}"


def find_weights(folder: Path) -> list[str]:
    """Return the names of all weights in a folder: prefixes of TensorFlow checkpoints, HDF5 files, PyTorch files."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not _DATA.search(file.name))
    found = [_prefix(folder, file.name) for file in files if file.name.endswith(INDEX)]
    pytorch = [name for name in PYTORCH if (folder / name).is_file()][:1]
    found += [file.name for file in files if is_hdf5(file) and not (pytorch and file.name == TRANSFORMERS_HDF5)]
    return found + pytorch


def _prefix(folder: Path, name: str) -> str:
    """Return the name of a checkpoint by one of its files: their prefix, unless a Keras HDF5 file has that name."""
    prefix = _DATA.sub("", re.sub(r"\.(index|meta)$", "", name))
    return name if (folder / prefix).is_file() else prefix


def is_hdf5(path: Path) -> bool:
    """Return whether there is a file that starts like HDF5; Keras writes it under any name."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE


def unpack(path: Path, folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, int]:
    """Unpack the folder of a .zip that has a configuration; only base names are kept, so that no member escapes.

    Files whose name is not `wanted` are not unpacked. Returns name -> size of all files. Raises CheckpointError, one
    sentence.
    """
    with open_zip(path, "is neither a folder nor a readable .zip") as archive:
        members = [member for member in archive.infolist() if not member.is_dir() and not _is_litter(member)]
        places = _places(members)
        if len(places) != 1:
            found = f"{len(places)} folders with" if places else "no"
            raise CheckpointError(f"{path} has {found} {' or '.join(CONFIGS)}")
        members = [member for member in members if _name(member).parent in places]
        sizes = {_name(member).name: member.file_size for member in members}
        members = [member for member in members if wanted(_name(member).name)]
        for member in members:
            with archive.open(member) as packed, open(folder / _name(member).name, "wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        return sizes


def _places(members: list[zipfile.ZipInfo]) -> set[PurePosixPath]:
    """Return the folders with a configuration; if some have a vocabulary, which modules of SentenceTransformer lack,
    only these."""
    names = [_name(member) for member in members if not _is_litter(member)]
    places = {name.parent for name in names if name.name in CONFIGS}
    return places & {name.parent for name in names if name.name in (VOCABULARY, TOKENIZER)} or places


def _name(member: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(member.filename.replace("\\", "/"))


def _is_litter(member: zipfile.ZipInfo) -> bool:
    """Return whether a member was added by macOS, is hidden, or has no usable name."""
    name = _name(member)
    return name.name.startswith(".") or not name.name or "__MACOSX" in name.parts
