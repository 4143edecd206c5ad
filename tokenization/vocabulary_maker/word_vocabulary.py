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
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.table import Table

from ...output.console import byte_progress, summary_table
from ..segmentation import JiebaSegmenter, cut_characters
from ..vocabulary import VocabularyError, check_vocabulary, has_words, read_vocabulary, write_vocabulary
from ..wordpiece import LONGEST_WORD, PREFIX, Normalizer, WordPiece, basic_words, is_cjk, is_punctuation
from .corpus import Chunk, CorpusError, corpus_files, read_chunks
from .new_vocabulary import first_entries, word_pieces

UNKNOWN = "[UNK]"
_RESERVED = re.compile(r"\[[^\[\]]+\]")  # special tokens, and [unused1] ... for users' own tokens
Base = dict[str, int] | None  # the base vocabulary, if there is one


@dataclass
class Counts:
    """Counts of a part of the corpus; parts can be added in any order.

    words: occurrences of each word of two or more Han characters: at most 340,000 words, since jieba without HMM finds
        only words of its dictionary.
    others: without a base, occurrences of all other words of basic tokenization.
    documents, characters: of the normalized text.
    tokens_before: tokens under the base vocabulary; other_tokens: tokens of the text outside `words` and `others`.
    """

    words: Counter = field(default_factory=Counter)
    others: Counter = field(default_factory=Counter)
    documents: int = 0
    characters: int = 0
    tokens_before: int = 0
    other_tokens: int = 0

    def add(self, other: "Counts") -> None:
        """Add the counts of another part."""
        self.words.update(other.words)
        self.others.update(other.others)
        self.documents += other.documents
        self.characters += other.characters
        self.tokens_before += other.tokens_before
        self.other_tokens += other.other_tokens


class WordCounter:
    """Counter of the words of a chunk, segmented as by RoFormerTokenizer, for a base and the text's field."""

    def __init__(self, base: Base, text_field: str):
        self.base, self.text_field = base, text_field
        self.normalize = Normalizer(lowercase=True, strip_accents=True)
        self.segment = JiebaSegmenter()
        if base is None:
            return
        self.cut_before = self.segment if has_words(base) else cut_characters
        self.pieces_before = WordPiece(base, base[UNKNOWN], self.normalize, whole_words=has_words(base))
        kept = {entry: base[entry] for entry in kept_entries(base)}
        self.pieces_after = WordPiece(kept, base[UNKNOWN], self.normalize, whole_words=True)

    def __call__(self, chunk: Chunk) -> Counts:
        counts, parts_before, parts = Counts(), Counter(), Counter()
        for text in chunk.documents(self.text_field):
            text = self.normalize(text)
            counts.documents += 1
            counts.characters += len(text)
            if self.base is not None:
                parts_before.update(self.cut_before(text))
            parts.update(self.segment(text))
        # Equal parts have equal tokens, so each is looked up once.
        counts.tokens_before = sum(n * len(self.pieces_before.ids[part]) for part, n in parts_before.items())
        for part, n in parts.items():
            if is_word(part):
                counts.words[part] = n
            elif self.base is not None:
                counts.other_tokens += n * len(self.pieces_after.ids[part])
            else:
                for word, _ in basic_words(self.normalize(part)):
                    if len(word) > LONGEST_WORD:
                        counts.other_tokens += n  # [UNK]
                    else:
                        counts.others[word] += n
        return counts


def is_word(text: str) -> bool:
    """Return whether a text is two or more Han characters; WordPiece has entries for parts of other words."""
    return len(text) > 1 and all(map(is_cjk, text))


def kept_entries(base: Iterable[str]) -> list[str]:
    """Return the entries of a vocabulary that are kept, in order.

    Entries that bert4keras' `load_vocab(simplified=True)` calls redundant are dropped: several characters with a Han
    character or a punctuation mark among them, such as '##中', since that is a token of its own. Entries in square
    brackets are kept, as in WoBERT's vocabulary, and so are words of Han characters.
    """

    def is_redundant(entry: str) -> bool:
        return len(entry) > 1 and any(is_cjk(c) or is_punctuation(c) for c in entry.removeprefix(PREFIX))

    return [entry for entry in base if is_word(entry) or _RESERVED.fullmatch(entry) or not is_redundant(entry)]


def count_words(paths: Iterable[str | Path], base: Base, field: str, num_proc: int | None, progress: bool) -> Counts:
    """Count the words of a corpus in `num_proc` processes; None for one per core. The counts do not depend on it.

    Only a few chunks are in memory. Raises CorpusError for the first file or line that cannot be read.
    """
    files, total, waiting = corpus_files(paths), Counts(), deque()
    num_proc = num_proc or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    bar = byte_progress(progress)
    task = bar.add_task("counting words", total=sum(file.stat().st_size for file in files))

    def add_first() -> None:
        consumed, counts = waiting.popleft()
        total.add(counts.result())
        bar.advance(task, consumed)

    JiebaSegmenter()("")  # forked processes share the dictionary that this reads
    pool = ProcessPoolExecutor(num_proc, initializer=_begin_process, initargs=(base, field))
    try:
        for chunk in (chunk for file in files for chunk in read_chunks(file)):
            waiting.append((chunk.consumed, pool.submit(_count, chunk)))
            bar.start()  # starts a thread, so the processes must be forked before
            if len(waiting) > 2 * num_proc:
                add_first()
        while waiting:
            add_first()
    finally:
        pool.shutdown(cancel_futures=True)
        bar.stop()
    return total


def _begin_process(base: Base, field: str) -> None:
    global _counter
    _counter = WordCounter(base, field)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends the workers
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is killed."""
    parent.join()
    os._exit(1)


def _count(chunk: Chunk) -> Counts:
    return _counter(chunk)


@dataclass(frozen=True)
class WordVocabularyReport:
    """Report on a new vocabulary and its tokens for the corpus.

    kept, dropped, added: entries; without a base, special tokens and characters are kept. covered: share of the corpus'
        characters in words of the new vocabulary; rarest: occurrences of the rarest word; tokens_before, tokens_after:
        tokens under the base (None without one) and the new vocabulary.
    """

    output: Path
    kept: int
    dropped: int
    added: int
    documents: int
    characters: int
    covered: float
    rarest: int
    tokens_before: int | None
    tokens_after: int
    seconds: float

    def table(self) -> Table:
        """Return the summary as a rich table."""
        tokens, per_token = f"{self.tokens_after:,}", f"{self.characters / self.tokens_after:.3f}"
        has_base = self.tokens_before is not None
        if has_base:
            tokens += f" (base: {self.tokens_before:,})"
            per_token += f" (base: {self.characters / self.tokens_before:.3f})"
        rows = {
            "output": str(self.output),
            "entries": f"{self.kept + self.added:,}",
            "kept from the base" if has_base else "special tokens and characters": f"{self.kept:,}",
            "dropped as redundant": f"{self.dropped:,}" if has_base else None,
            "words added": f"{self.added:,}, each at least {self.rarest:,} times in the corpus" if self.added else "0",
            "documents": f"{self.documents:,}",
            "characters": f"{self.characters:,}",
            "of them in words": f"{self.covered:.1%}",
            "tokens": tokens,
            "characters per token": per_token,
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
        corpus: text and JSON Lines files, also as .gz, and folders of them.
        base: vocab.txt to start from, for example Chinese BERT's; None for the special tokens and the characters of the
            corpus.
        output: vocab.txt to write, atomically.
        size: maximum number of entries.
        min_count, max_length: minimum occurrences and maximum characters of a word.
        field: the field of JSON Lines with the text.
        num_proc: processes; by default one per core. The vocabulary does not depend on it.
        force: replace `output` if it exists.
        progress: show a progress bar on stderr.

    Raises:
        VocabularyError: the base is not a vocabulary, or the first entries are more than `size`.
        CorpusError: the corpus cannot be read, or has no word to add to the base.
        FileExistsError: `output` exists, or is one of the inputs.

    >>> make_word_vocabulary(["laws.jsonl.gz"], "bert/vocab.txt", "words.txt", size=30_000).added
    16316
    """
    started = time.perf_counter()
    output, corpus = Path(output), list(corpus)
    for name, value in {"size": size, "min_count": min_count, "max_length": max_length, "num_proc": num_proc}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    _check_output(output, force)
    if output.resolve() in [file.resolve() for file in (Path(base or corpus[0]), *corpus_files(corpus))]:
        raise FileExistsError(f"{output} is the base or part of the corpus: name another file")
    # Too small a size is refused before hours of counting.
    if base is None:
        entries, kept = None, first_entries({}, {})
        _check_size(size, kept, "the special tokens and the characters of ASCII")
    else:
        entries = read_vocabulary(base)
        check_vocabulary(entries, UNKNOWN, str(base))
        kept = kept_entries(entries)
        _check_size(size, kept, "the entries that are kept from the base")

    counts = count_words(corpus, entries, field, num_proc, progress)
    if not counts.documents:
        raise CorpusError("the corpus has no text")
    words = counts.words
    if base is None:
        kept = first_entries(words, counts.others)
        _check_size(size, kept, "the special tokens and the characters of the corpus")
        words = words | word_pieces(counts.others, kept, size, min_count, max_length)
    added = _new_words(kept, words, min_count, max_length)[: size - len(kept)]
    if not added and base is not None:
        raise CorpusError(
            f"no word to add: no new word of at most {max_length} characters (--max-length) occurs at least "
            f"{min_count} times (--min-count) in the corpus, or {size:,} entries (--size) leave no room"
        )
    ids = {entry: number for number, entry in enumerate([*kept, *added])}
    _check_output(output, force)  # another process may have written it in the meantime
    output.parent.mkdir(parents=True, exist_ok=True)
    write_vocabulary(ids, output)

    split = WordPiece(ids, ids[UNKNOWN], None, whole_words=False).split
    tokens, in_words = counts.other_tokens, 0
    for word, n in counts.words.items():
        tokens += n if word in ids else n * len(word)
        in_words += n * len(word) * (word in ids)
    for word, n in counts.others.items():
        pieces = split(word)
        tokens += n * len(pieces)
        in_words += n * sum(end - start for _, start, end in pieces if end - start > 1)
    return WordVocabularyReport(
        output=output,
        kept=len(kept),
        dropped=len(entries or kept) - len(kept),
        added=len(added),
        documents=counts.documents,
        characters=counts.characters,
        covered=in_words / counts.characters,
        rarest=words[added[-1]] if added else 0,
        tokens_before=None if base is None else counts.tokens_before,
        tokens_after=tokens,
        seconds=time.perf_counter() - started,
    )


def _check_output(output: Path, force: bool) -> None:
    if output.is_dir() or (output.exists() and not force):
        trouble = "is a folder: name a file" if output.is_dir() else "already exists: --force replaces it"
        raise FileExistsError(f"{output} {trouble}")


def _check_size(size: int, kept: list[str], called: str) -> None:
    if size < len(kept):
        raise VocabularyError(f"size is {size:,}; expected at least {len(kept):,}, {called} (--size)")


def _new_words(kept: list[str], words: Mapping[str, int], min_count: int, max_length: int) -> list[str]:
    """Return the words to add, the most frequent first, and equally frequent ones in the order of their code points."""
    known = set(kept)
    found = [
        w for w, n in words.items() if n >= min_count and len(w.removeprefix(PREFIX)) <= max_length and w not in known
    ]
    return sorted(found, key=lambda word: (-words[word], word))
