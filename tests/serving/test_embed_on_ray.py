"""`roformer embed --ray` and `roformer vocab --ray`: results as without Ray, also if workers are killed."""

import os
import signal
import sys

import numpy as np
import pyarrow.parquet
import pytest
from helpers.small_texts import LEGACY, TEXTS

from modeling_roformer.cluster.address import ClusterError
from modeling_roformer.cluster.session import ray_session
from modeling_roformer.serving.vectors import TextEncoder, embed
from modeling_roformer.serving.vectors import vector_folder as vector_folder_module
from modeling_roformer.tokenization.vocabulary_maker.word_vocabulary import make_word_vocabulary

pytestmark = pytest.mark.ray
MANY = [f"{text}{'明月' * (i % 7)}" for i in range(12) for text in TEXTS]


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    """Start one Ray for all tests, with one thread per worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')
        patch.setenv("RAY_worker_niceness", "0")
        with ray_session():
            yield


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(text + "\n" for text in MANY), encoding="utf-8")
    return path


def read(folder):
    """Return the ids and vectors of all shards."""
    table = pyarrow.parquet.read_table(folder)
    return table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)


def workers() -> list[int]:
    """Return the process ids of Ray's workers."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as line:
                if line.read().startswith(b"ray::MapWorker"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def test_a_worker_that_is_killed_in_the_middle_is_replaced_and_the_vectors_are_the_same(
    saved, texts, tmp_path, monkeypatch
):
    embed(saved("word"), texts, tmp_path / "here", shard_size=5, keep_text=True)
    write, killed = vector_folder_module.VectorFolder.write, []

    def kill_when_three_are_done(self, name, data):
        write(self, name, data)
        if len(self.files()) == 3:
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(vector_folder_module.VectorFolder, "write", kill_when_three_are_done)
    report = embed(saved("word"), texts, tmp_path / "ray", shard_size=5, keep_text=True, ray="local", workers=2)
    assert killed and not os.path.exists(f"/proc/{killed[0]}")
    assert (report.texts, report.shards) == (120, 24)
    here, there = read(tmp_path / "here"), read(tmp_path / "ray")
    assert there[0] == here[0] == [f"texts.txt:{i + 1}" for i in range(120)]
    np.testing.assert_allclose(there[1], here[1], atol=1e-6)


def test_chunks_of_documents_survive_a_killed_worker(saved, tmp_path, monkeypatch):
    """A worker is killed in the middle of its documents, which other workers compute one at a time."""
    (tmp_path / "documents").mkdir()
    for i in range(24):
        (tmp_path / "documents" / f"{i:02d}.txt").write_text("\n".join(MANY[5 * i : 5 * i + 5]), encoding="utf-8")
    options = {"sample_by": "document", "chunk": 12, "overlap": 3, "shard_size": 4, "keep_text": True}
    embed(saved("word"), tmp_path / "documents", tmp_path / "here", **options)
    from ray import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    monkeypatch.setattr(sys.modules[embed.__module__], "TextEncoder", OnceDeadly)
    monkeypatch.setattr(OnceDeadly, "mark", str(tmp_path / "killed"), raising=False)
    report = embed(saved("word"), tmp_path / "documents", tmp_path / "ray", ray="local", workers=1, **options)
    cloudpickle.unregister_pickle_by_value(module)
    assert (tmp_path / "killed").exists()
    here, there = read(tmp_path / "here"), read(tmp_path / "ray")
    assert there[0] == here[0] and (report.texts, report.chunks) == (24, len(here[0])) and report.chunks > 48
    np.testing.assert_allclose(there[1], here[1], atol=1e-6)


class OnceDeadly(TextEncoder):
    """Encoder that kills its process at its second batch, in the first process alone."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "batch_tokens": 24})
        self.batches_done = 0

    def pooled(self, batch, names=None):
        self.batches_done += 1
        if self.batches_done == 2 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pooled(batch, names)


class Deadly(TextEncoder):
    """Encoder whose process one text kills."""

    def pooled(self, batch, names=None):
        if any(len(ids) == len(self.tokenize([TEXTS[3]])[0]) for ids in batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pooled(batch, names)


def test_a_text_that_kills_its_worker_every_time_is_named_and_what_is_done_is_kept(saved, tmp_path, monkeypatch):
    from ray import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # workers cannot import it
    path = tmp_path / "texts.txt"
    path.write_text("".join(text + "\n" for text in ["今天", "明月", *TEXTS]), encoding="utf-8")
    monkeypatch.setattr(sys.modules[embed.__module__], "TextEncoder", Deadly)
    with pytest.raises(ClusterError, match=r"texts\.txt:6.* 3 times"):
        embed(saved("word"), path, tmp_path / "out", shard_size=4, ray="local", workers=1)
    monkeypatch.undo()
    cloudpickle.unregister_pickle_by_value(module)
    kept = embed(saved("word"), path, tmp_path / "out", shard_size=4).kept
    assert kept <= 2 and len(read(tmp_path / "out")[0]) == 12


def test_a_stopped_run_resumes_on_ray_with_relative_paths(saved, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embed(saved("word"), "texts.txt", "out", shard_size=30)
    here = read(tmp_path / "out")
    (tmp_path / "out" / "000002.parquet").unlink()
    report = embed(saved("word"), "texts.txt", "out", shard_size=30, ray="local", workers=1)
    assert (report.kept, report.shards) == (3, 4)
    np.testing.assert_allclose(read(tmp_path / "out")[1], here[1], atol=1e-6)


@pytest.mark.parametrize("base", [LEGACY / "character" / "vocab.txt", None])
def test_words_are_the_same(tmp_path, base):
    for part in range(6):  # one task each
        lines = "".join(text + "\n" for text in MANY[part::6])
        (tmp_path / f"{part}.txt").write_text(lines, encoding="utf-8")
    made = {}
    for name, options in {"here": {"num_proc": 1}, "ray": {"ray": "local"}}.items():
        files = [tmp_path / f"{part}.txt" for part in range(6)]
        report = make_word_vocabulary(files, base, tmp_path / name, min_count=1, **options)
        made[name] = (tmp_path / name).read_text(encoding="utf-8"), report.tokens_after, report.documents
    assert made["here"] == made["ray"]
