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
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.table import Table

from ...files.atomic_folder import temporary_sibling
from ...output.console import byte_progress, summary_table
from ..segmentation import JiebaSegmenter, cut_characters
from ..vocabulary import VocabularyError, check_vocabulary, has_words, read_vocabulary, write_vocabulary
from ..wordpiece import LONGEST_WORD, PREFIX, Normalizer, WordPiece, basic_words, is_cjk, is_punctuation
from .corpus import Chunk, CorpusError, corpus_files, read_chunks
from .new_vocabulary import first_entries, word_pieces

UNKNOWN = "[UNK]"
_RESERVED = re.compile(r"\[[^\[\]]+\]")  # special tokens, and [unused1] ... for users' own tokens


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


Base = dict[str, int] | None  # the base vocabulary, if there is one
Results = Generator[tuple[int, Counts], None, None]  # bytes of the corpus, and their counts


class WordCounter:
    """Counter of the words of a chunk, segmented as by RoFormerTokenizer.

    base: dict of entry -> id, or None; text_field: the field of JSON Lines with the text.
    """

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
    return [entry for entry in base if is_word(entry) or _RESERVED.fullmatch(entry) or not _is_redundant(entry)]


def _is_redundant(entry: str) -> bool:
    return len(entry) > 1 and any(is_cjk(c) or is_punctuation(c) for c in entry.removeprefix(PREFIX))


def make_entries(kept: list[str], words: Mapping[str, int], size: int, min_count: int, max_length: int) -> list[str]:
    """Return the new vocabulary: the entries that are kept, then words, the most frequent first.

    `words` has the occurrences of each word; equally frequent words are in the order of their code points. The other
    arguments are those of `make_word_vocabulary`.
    """
    known = set(kept)
    new = [
        w for w, n in words.items() if n >= min_count and len(w.removeprefix(PREFIX)) <= max_length and w not in known
    ]
    new.sort(key=lambda word: (-words[word], word))
    return kept + new[: size - len(kept)]


def _check_output(output: Path, force: bool) -> None:
    if output.is_dir() or (output.exists() and not force):
        trouble = "is a folder: name a file" if output.is_dir() else "already exists: --force replaces it"
        raise FileExistsError(f"{output} {trouble}")


def _check_size(size: int, kept: list[str], called: str) -> None:
    if size < len(kept):
        raise VocabularyError(f"size is {size:,}; expected at least {len(kept):,}, {called} (--size)")


def count_words(
    paths: Iterable[str | Path],
    base: Base,
    *,
    field: str = "text",
    num_proc: int | None = None,
    ray: str | None = None,
    progress: bool = False,
) -> Counts:
    """Count the words of a corpus.

    Args:
        paths: files and folders (see `corpus_files`), read in chunks, so that memory does not depend on their size.
        base: dict of entry -> id, or None to make a vocabulary without one.
        field: the field of JSON Lines with the text.
        num_proc: processes; None for one per core. The counts do not depend on it.
        ray: address of a Ray to count on (see `ray_session`), with a process for each of its cores.
        progress: show a progress bar on stderr.

    Raises:
        CorpusError: names the first file or line that cannot be read.
    """
    files = corpus_files(paths)
    total = Counts()
    bar = byte_progress(progress)
    task = bar.add_task("counting words", total=sum(file.stat().st_size for file in files))
    if ray is not None:
        results = _on_ray(base, field, files, ray, num_proc)
    elif (num_proc := num_proc or _cores()) > 1:
        results = _in_parallel(base, field, _chunks(files), num_proc)
    else:
        results = _in_turn(base, field, _chunks(files))
    try:
        for consumed, counts in results:
            bar.start()  # starts a thread, so the processes must be forked before
            total.add(counts)
            bar.advance(task, consumed)
    finally:
        results.close()
        bar.stop()
    return total


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(files: Iterable[Path]) -> Iterator[Chunk]:
    return (chunk for file in files for chunk in read_chunks(file))


def _in_turn(base: Base, field: str, chunks: Iterator[Chunk]) -> Results:
    counter = WordCounter(base, field)
    for chunk in chunks:
        yield chunk.consumed, counter(chunk)


def _in_parallel(base: Base, field: str, chunks: Iterator[Chunk], num_proc: int) -> Results:
    """Yield the results in the order of the chunks, with only a few chunks in memory."""
    JiebaSegmenter()("")  # forked processes share the dictionary that this reads
    pool = ProcessPoolExecutor(num_proc, initializer=_begin_process, initargs=(base, field))
    waiting = []
    try:
        for chunk in chunks:
            waiting.append((chunk.consumed, pool.submit(_count_here, chunk)))
            if len(waiting) > 2 * num_proc:
                consumed, result = waiting.pop(0)
                yield consumed, result.result()
        for consumed, result in waiting:
            yield consumed, result.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_process(base: Base, field: str) -> None:
    global _counter
    _counter = WordCounter(base, field)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends the workers
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is killed: it shares the lock of the temporary folder."""
    parent.join()
    os._exit(1)


def _count_here(chunk: Chunk) -> Counts:
    return _counter(chunk)


def _on_ray(base: Base, field: str, files: list[Path], address: str, workers: int | None) -> Results:
    """Yield the results in any order."""
    from ...cluster.stream import map_on_ray

    return map_on_ray(
        partial(_chunks, files), partial(_CountOnRay, base, field), _place, address=address, workers=workers,
        on_gpus=False, cores=1,
    )  # fmt: skip


class _CountOnRay:
    """Work of one worker of Ray."""

    def __init__(self, base: Base, field: str):
        self.counter = WordCounter(base, field)

    def __call__(self, chunk: Chunk, watch: object) -> tuple[int, Counts]:
        return chunk.consumed, self.counter(chunk)


def _place(chunk: Chunk, parts: object) -> str:
    return f"{chunk.path}, line {chunk.first_line} and those after it"


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
        if self.tokens_before is not None:
            tokens += f" (base: {self.tokens_before:,})"
            per_token += f" (base: {self.characters / self.tokens_before:.3f})"
        has_base = self.tokens_before is not None
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
    ray: str | None = None,
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
        field, num_proc, ray: see `count_words`.
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

    with temporary_sibling(output) as folder:
        counts = count_words(corpus, entries, field=field, num_proc=num_proc, ray=ray, progress=progress)
        if not counts.documents:
            raise CorpusError("the corpus has no text")
        words = counts.words
        if base is None:
            kept = first_entries(words, counts.others)
            _check_size(size, kept, "the special tokens and the characters of the corpus")
            words = words | word_pieces(counts.others, kept, size, min_count, max_length)
        vocabulary = make_entries(kept, words, size, min_count, max_length)
        added = vocabulary[len(kept) :]
        if not added and base is not None:
            raise CorpusError(
                f"no word to add: no new word of at most {max_length} characters (--max-length) occurs at least "
                f"{min_count} times (--min-count) in the corpus, or {size:,} entries (--size) leave no room"
            )
        write_vocabulary({entry: number for number, entry in enumerate(vocabulary)}, folder / output.name)
        _check_output(output, force)  # another process may have written it in the meantime
        os.replace(folder / output.name, output)

    ids = {entry: number for number, entry in enumerate(vocabulary)}
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
