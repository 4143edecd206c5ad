"""Digests of what a run learns from: rows of text, tokenizers and saved models, whatever they are called and wherever they lie."""

import hashlib
import json
from pathlib import Path

import datasets
import pyarrow
import pyarrow.compute
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from ...output.progress_bar import byte_progress
from ..errors import TrainingError
from .digests import digests
from .start import has_tokenizer, saved_config

_AT_ONCE = 1000  # rows
# Fields of a config that say nothing of what the model computes, or that training sets.
_NOT_COMPARED = {
    "_name_or_path", "architectures", "dtype", "max_position_embeddings", "sparse_prediction", "transformers_version",
    "unpad_inputs",
}  # fmt: skip
_OF_TOKENIZER = (
    "add_sep_token", "do_lower_case", "strip_accents", "tokenize_chinese_chars", "truncation_side", "user_dict",
    "word_segmentation",
)  # fmt: skip


def digest_of_rows(rows: datasets.Dataset) -> str:
    """Return the SHA-256 of all values, their columns' names, and the names of classes.

    How the rows are stored has no influence: in files or in memory, in how many parts, with which width of text. A progress
    bar is shown.

    (`datasets` has a fingerprint of its own, which changes with the path and the time of the files.)
    """
    whole = hashlib.sha256()
    columns = sorted(rows.column_names)
    with byte_progress(shown=True) as bar:
        task = bar.add_task("checking the data", total=rows.data.nbytes)
        hashes = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}  # of lengths, of values
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
    """The values of an array of int64, or the bytes of all its texts, without what lies before and behind them."""
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
    """Return the SHA-256 of a text as it was read, in which neither a byte order mark nor the kind of line ends is left."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def digest_of_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of all that decides which ids a fast tokenizer gives."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    decisive = {name: backend[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")}
    decisive["model"] = backend["model"]["type"]
    decisive["fields"] = {name: tokenizer.init_kwargs.get(name) for name in _OF_TOKENIZER}
    decisive["vocabulary"] = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    return _digest_of_json(decisive)


def own_fields(fields: dict, config: PreTrainedConfig) -> dict:
    """Return those of a config's fields that are not the defaults of its class, as JSON holds them.

    So fields that a newer library has do not tell two configs apart. Left out is what does not tell one model from another.

    Args:
        fields: of a config, as `to_dict` gives them or as they were written down.
        config: one of the same class.
    """
    defaults = json.loads(json.dumps(type(config)().to_dict()))
    own = {name: value for name, value in json.loads(json.dumps(fields)).items() if name not in _NOT_COMPARED}
    if fields.get("position_encoding") == "learned" and "max_position_embeddings" in fields:  # the size of their table
        own["max_position_embeddings"] = fields["max_position_embeddings"]
    return {name: value for name, value in own.items() if name not in defaults or defaults[name] != value}


def digests_of_weights(place: str | Path) -> list[str]:
    """Return the SHA-256 of each file of weights that `from_pretrained` reads, with a progress bar.

    Args:
        place: folder of a saved model, or its name on the Hub.
    """
    for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME):
        found = cached_file(str(place), name, _raise_exceptions_for_missing_entries=False)
        if found is not None:
            files = get_checkpoint_shard_files(str(place), found)[0] if name.endswith(".json") else [found]
            return digests(map(Path, files), f"checking {place}")
    raise TrainingError(f"{place} holds no weights: neither {SAFE_WEIGHTS_NAME} nor {WEIGHTS_NAME}")


def digest_of_model(place: str | Path) -> str:
    """Return what tells a saved RoFormer from others: digests of its weights' files, and one of its config and tokenizer.

    Args:
        place: its folder, or its name on the Hub.
    """
    config = saved_config(place)
    rest = {"config": own_fields(config.to_dict(), config)}
    if has_tokenizer(place):
        rest["tokenizer"] = digest_of_tokenizer(AutoTokenizer.from_pretrained(place))
    return " ".join([*digests_of_weights(place), _digest_of_json(rest)])


def _digest_of_json(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return digest_of_text(text)
