"""Digests of files, data, tokenizers and models. They do not depend on names and places."""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import pyarrow
import pyarrow.compute
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from ...model_cards import sha256_of
from ...output.console import byte_progress
from ...registration import transformers
from ..errors import TrainingError
from .models import has_tokenizer, saved_config

_THREADS = 4  # hashing releases the GIL
_AT_ONCE = 1000  # rows
# Fields of a config that do not change what the model computes, or that training sets.
_NOT_COMPARED = {
    "_name_or_path", "architectures", "dtype", "max_position_embeddings", "sparse_prediction", "transformers_version",
    "unpad_inputs",
}  # fmt: skip
_OF_TOKENIZER = (
    "add_sep_token", "do_lower_case", "strip_accents", "tokenize_chinese_chars", "truncation_side", "user_dict",
    "word_segmentation",
)  # fmt: skip


def file_digests(files: Iterable[Path], title: str | None = None) -> list[str]:
    """Return the SHA-256 of each file, in hexadecimal. Show a progress bar if it has a title.

    >>> file_digests([Path("model.safetensors")], "verifying checkpoint-500")
    """
    files = list(files)
    with byte_progress(title is not None) as bar, ThreadPoolExecutor(_THREADS) as pool:
        task = bar.add_task(title or "", total=sum(file.stat().st_size for file in files))
        return list(pool.map(lambda file: sha256_of(file, lambda size: bar.advance(task, size)), files))


def digest_of_rows(rows: datasets.Dataset) -> str:
    """Return the SHA-256 of all values, the names of their columns and of the classes, with a progress bar.

    It does not depend on how the rows are stored: in files or in memory, in how many parts, with which string type.
    (The fingerprint of `datasets` changes with the path and the time of the files.)
    """
    whole = hashlib.sha256()
    columns = sorted(rows.column_names)
    with byte_progress(shown=True) as bar:
        task = bar.add_task("checking the data", total=rows.data.nbytes)
        hashes = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}  # of the lengths and of the values
        for table in rows.select_columns(columns).with_format("arrow").iter(_AT_ONCE):
            for name in columns:
                values = pyarrow.compute.cast(table.column(name).combine_chunks(), pyarrow.large_string())
                values = pyarrow.compute.cast(values, pyarrow.large_binary())
                lengths = pyarrow.compute.fill_null(pyarrow.compute.binary_length(values), -1)
                for one, array in zip(hashes[name], (lengths, values), strict=True):
                    one.update(_bytes_of(array))
            bar.advance(task, table.nbytes)
    for name in columns:
        classes = getattr(rows.features[name], "names", None)
        whole.update(json.dumps([name, classes, len(rows), *(one.hexdigest() for one in hashes[name])]).encode())
    return whole.hexdigest()


def _bytes_of(array: pyarrow.Array) -> memoryview:
    """Return the values of an int64 array, or the bytes of all texts, without the rest of a sliced buffer."""
    *_, buffer = array.buffers()
    if buffer is None:
        return memoryview(b"")
    if array.type == pyarrow.int64():
        first, last = array.offset * 8, (array.offset + len(array)) * 8
    else:
        offsets = memoryview(array.buffers()[1]).cast("q")
        first, last = offsets[array.offset], offsets[array.offset + len(array)]
    return memoryview(buffer)[first:last]


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text that was read without a byte order mark and with line ends normalised."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def digest_of_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of everything that determines the ids of a fast tokenizer."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    decisive = {name: backend[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")}
    decisive["model"] = backend["model"]["type"]
    decisive["fields"] = {name: tokenizer.init_kwargs.get(name) for name in _OF_TOKENIZER}
    decisive["vocabulary"] = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    return _digest_of_json(decisive)


def non_default_fields(fields: dict, config: PreTrainedConfig) -> dict:
    """Return the fields of a config that differ from the defaults of its class, as JSON values.

    A field that a newer library adds then makes no difference. Fields that do not change the model's output are left
    out. `fields` are from `to_dict` or as an earlier run recorded them; `config` is any config of the same class.
    """
    defaults = json.loads(json.dumps(type(config)().to_dict()))
    own = {name: value for name, value in json.loads(json.dumps(fields)).items() if name not in _NOT_COMPARED}
    if fields.get("position_encoding") == "learned" and "max_position_embeddings" in fields:  # the size of the table
        own["max_position_embeddings"] = fields["max_position_embeddings"]
    return {name: value for name, value in own.items() if name not in defaults or defaults[name] != value}


def digests_of_weights(place: str | Path) -> list[str]:
    """Return the SHA-256 of each weight file of a saved model, a folder or a name on the Hub, with a progress bar."""
    for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME):
        found = cached_file(str(place), name, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            files = get_checkpoint_shard_files(str(place), found)[0] if name.endswith(".json") else [found]
            return file_digests(map(Path, files), f"checking {place}")
    raise TrainingError(f"{place} has no weights: expected {SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME}")


def digest_of_model(place: str | Path) -> str:
    """Return the digests of the weight files of a saved RoFormer, and one of its config and tokenizer."""
    config = saved_config(place)
    rest = {"config": non_default_fields(config.to_dict(), config)}
    if has_tokenizer(place):
        rest["tokenizer"] = digest_of_tokenizer(transformers.AutoTokenizer.from_pretrained(place))
    return " ".join([*digests_of_weights(place), _digest_of_json(rest)])


def _digest_of_json(value: object) -> str:
    return digest_of_text(json.dumps(value, sort_keys=True, ensure_ascii=False))
