"""Word vocabulary made from a corpus and a character vocabulary, as WoBERT's was made from Chinese BERT's, or from a
corpus alone.

The recipe is https://kexue.fm/archives/7758: remove the entries that tokenization never gives, keep the others, and add
the most frequent words. WoBERT took the frequencies of jieba; here words are counted in the corpus. Without a character
vocabulary, the first entries are those of `new_vocabulary`.
"""

import multiprocessing
import os
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from modeling_roformer.data import Batch, DataError, batch_texts, find_files, read_batches
from modeling_roformer.files.new_file import require_writable
from modeling_roformer.output.console import summary_table
from modeling_roformer.output.progress import byte_progress
from modeling_roformer.tokenization.segmentation import JiebaSegmenter
from modeling_roformer.tokenization.vocabulary import (
    VocabularyError,
    check_vocabulary,
    read_vocab_txt,
    write_vocabulary,
)
from modeling_roformer.tokenization.wordpiece import (
    LONGEST_WORD,
    PREFIX,
    Normalizer,
    basic_words,
    is_cjk,
    is_punctuation,
)

from .new_vocabulary import first_entries, is_word, word_pieces

UNKNOWN = "[UNK]"
_RESERVED = re.compile(r"\[[^\[\]]+\]")  # special tokens, and [unused1] ... for users' own tokens


def kept_entries(base: Iterable[str]) -> list[str]:
    """Return the entries of a vocabulary that are kept, in order.

    Entries that bert4keras' `load_vocab(simplified=True)` calls redundant are dropped: several characters with a Han
    character or a punctuation mark among them, such as '##中', since that is a token of its own. Entries in square
    brackets are kept, as in WoBERT's vocabulary, and so are words of Han characters.
    """

    def is_redundant(entry: str) -> bool:
        return len(entry) > 1 and any(is_cjk(c) or is_punctuation(c) for c in entry.removeprefix(PREFIX))

    return [entry for entry in base if is_word(entry) or _RESERVED.fullmatch(entry) or not is_redundant(entry)]


def count_batch(batch: Batch, all_words: bool, field: str) -> tuple[int, int, Counter]:
    """Count the documents, the rows without a text and the words of a batch, segmented as by RoFormerTokenizer.

    Words are two or more Han characters: at most 340,000 words, since jieba without HMM finds only words of its
    dictionary. With `all_words`, all other words of basic tokenization that the tokenizer reads are counted too.
    """
    normalize, segment = Normalizer(lowercase=True, strip_accents=True), JiebaSegmenter()
    documents, left_out, parts, words = 0, 0, Counter(), Counter()
    for _, text in batch_texts(batch, field):
        if text is None:
            left_out += 1
        else:
            documents += 1
            parts.update(segment(normalize(text)))
    for part, n in parts.items():
        if is_word(part):
            words[part] = n
        elif all_words:
            for word, _ in basic_words(normalize(part)):
                if len(word) <= LONGEST_WORD:  # a longer one is [UNK]
                    words[word] += n
    return documents, left_out, words


def count_words(
    files: list[Path], all_words: bool, field: str, num_proc: int | None, progress: bool
) -> tuple[int, int, Counter]:
    """Count the documents, the rows without a text and the words of files in `num_proc` processes, with a few batches
    in memory."""
    documents, left_out, words, waiting = 0, 0, Counter(), deque()
    num_proc = num_proc or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    batches = (batch for file in files for batch in read_batches(file, [field]))
    bar = byte_progress(progress)
    task = bar.add_task("counting words", total=sum(file.stat().st_size for file in files))
    JiebaSegmenter()("")  # forked processes share the dictionary that this reads
    pool = ProcessPoolExecutor(num_proc, initializer=_begin_process)
    try:
        while (batch := next(batches, None)) or waiting:
            if batch:
                waiting.append((batch.consumed, pool.submit(count_batch, batch, all_words, field)))
                bar.start()  # starts a thread, so the processes must be forked before
            if not batch or len(waiting) > 2 * num_proc:
                consumed, counts = waiting.popleft()
                new_documents, new_left_out, new_words = counts.result()
                documents += new_documents
                left_out += new_left_out
                words.update(new_words)
                bar.advance(task, consumed)
    finally:
        pool.shutdown(cancel_futures=True)
        bar.stop()
    return documents, left_out, words


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@dataclass(frozen=True)
class WordVocabularyReport:
    """Numbers of entries that are kept (without a base, special tokens and characters), dropped (None without a base)
    and added, of documents, and of rows without a text, which are left out. `rarest` is the number of occurrences of
    the rarest word."""

    output: Path
    kept: int
    dropped: int | None
    added: int
    rarest: int
    documents: int
    seconds: float
    left_out: int = 0

    def table(self) -> Table:
        """Return the summary as a rich table."""
        has_base = self.dropped is not None
        rows = {
            "output": str(self.output),
            "entries": f"{self.kept + self.added:,}",
            "kept from the base" if has_base else "special tokens and characters": f"{self.kept:,}",
            "dropped as redundant": f"{self.dropped:,}" if has_base else None,
            "words added": f"{self.added:,}, each at least {self.rarest:,} times in the corpus" if self.added else "0",
            "documents": f"{self.documents:,}",
            "left out": f"{self.left_out:,} rows without a text" if self.left_out else None,
            "seconds": f"{self.seconds:.1f}",
        }
        return summary_table(rows)


def make_word_vocabulary(
    corpus: Iterable[str | Path],
    base: str | Path | None,
    output: str | Path,
    *,
    size: int = 50_000,
    min_count: int = 5,
    max_length: int = 16,
    field: str = "text",
    num_proc: int | None = None,
    force: bool = False,
    progress: bool = False,
) -> WordVocabularyReport:
    """Write the vocab.txt of a word-level model.

    Args:
        corpus: files and folders, as `modeling_roformer.data.find_files` finds them. CSV, TSV and Parquet need the
            extra `embed`.
        base: vocab.txt to start from, for example Chinese BERT's; None for the special tokens and the characters of the
            corpus.
        output: vocab.txt to write, atomically.
        size: maximum number of entries.
        min_count, max_length: minimum occurrences and maximum characters of a word.
        field: the column with the text, except in text files.
        num_proc: processes; by default one per core. The vocabulary does not depend on it.
        force: replace `output` if it exists.
        progress: show a progress bar on stderr.

    Raises:
        VocabularyError: the base is not a vocabulary, or the first entries are more than `size`.
        DataError: the corpus cannot be read, or has no word to add to the base.
        FileExistsError: `output` exists, or is one of the inputs.

    >>> make_word_vocabulary(["laws.jsonl.gz"], "bert/vocab.txt", "words.txt", size=30_000).added
    16316
    """
    started = time.perf_counter()
    output, corpus = Path(output), list(corpus)
    for name, value in {"size": size, "min_count": min_count, "max_length": max_length, "num_proc": num_proc}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    require_writable(output, force)
    files = find_files(corpus)
    require_writable(output, force, [*files, *([] if base is None else [base])])
    if base is None:
        kept, dropped = first_entries({}), None
    else:
        entries = read_vocab_txt(base)
        check_vocabulary(entries, UNKNOWN, str(base))
        kept = kept_entries(entries)
        dropped = len(entries) - len(kept)
    _check_size(size, kept)  # before hours of counting

    documents, left_out, words = count_words(files, base is None, field, num_proc, progress)
    if not documents:
        raise DataError("the corpus has no text")
    if base is None:
        kept = first_entries(words)
        _check_size(size, kept)
        others = {word: n for word, n in words.items() if not is_word(word)}
        words = {word: n for word, n in words.items() if is_word(word)}
        words |= word_pieces(others, kept, size, min_count, max_length)
    new = {word: n for word, n in words.items() if n >= min_count and len(word.removeprefix(PREFIX)) <= max_length}
    added = sorted(new.keys() - set(kept), key=lambda word: (-new[word], word))[: size - len(kept)]
    if not added and base is not None:
        raise DataError(
            f"no word to add: no new word of at most {max_length} characters (--max-length) occurs at least "
            f"{min_count} times (--min-count) in the corpus, or {size:,} entries (--size) leave no room"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    write_vocabulary({entry: number for number, entry in enumerate([*kept, *added])}, output)
    rarest = words[added[-1]] if added else 0
    seconds = time.perf_counter() - started
    return WordVocabularyReport(output, len(kept), dropped, len(added), rarest, documents, seconds, left_out)


def _check_size(size: int, kept: list[str]) -> None:
    if size < len(kept):
        raise VocabularyError(f"size is {size:,}; expected at least {len(kept):,}, without any new word (--size)")
