"""Work on Ray: whatever is killed, each item is done once; and what never works is said in one sentence."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from modeling_roformer.cli import with_address
from modeling_roformer.cluster.errors import ClusterError
from modeling_roformer.cluster.session import ray_session
from modeling_roformer.cluster.stream import Attempts, Watch, in_common, map_on_ray, suspects


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("embed a b c --ray", "embed a b c --ray local"),
        ("embed --ray a b c", "embed --ray local a b c"),
        ("embed a b c --ray head:6379", "embed a b c --ray head:6379"),
        ("embed --ray 10.0.0.1:6379 a b c", "embed --ray 10.0.0.1:6379 a b c"),
        ("embed --ray auto a b c", "embed --ray auto a b c"),
        ("embed a b c --ray --workers 2", "embed a b c --ray local --workers 2"),
        ("embed --ray data:zh b c", "embed --ray local data:zh b c"),
        ("info a", "info a"),
        ("", ""),
    ],
)
def test_the_address_may_be_left_out(typed, read):
    assert with_address(typed.split()) == read.split()


def killed(attempts: Attempts, batches, alone: int) -> list[int]:
    """Tries that are all killed at one part, each as a worker goes about it; gives the parts that are named in the end."""
    for _ in range(20):
        ended = attempts.begin(7, 6)
        if found := in_common(ended):
            return found
        watch = Watch(lambda parts: attempts.note(7, parts), suspects(ended, 6))
        rest = [[part for part in batch if part not in watch.suspects] for batch in batches]
        for batch in [*rest, *([part] for part in watch.suspects)]:
            if batch:
                watch(batch)
            if alone in batch:
                break
    raise AssertionError("it is tried for ever")


def test_what_kills_its_worker_each_time_is_named_after_three_tries():
    attempts = Attempts()
    assert killed(attempts, [[0, 3, 5], [1, 2, 4]], alone=4) == [4]
    assert len(attempts.ended[7]) == 3
    attempts.done(7)
    assert attempts.begin(7, 6) == []  # a machine that is lost takes results with it, which are made again


def test_workers_that_end_at_other_parts_each_time_accuse_none():
    attempts = Attempts()
    for parts in ([0, 3, 5], [1, 2], [4], [0, 3], [5]):
        assert not in_common(attempts.begin(7, 6))
        attempts.note(7, parts)


def test_a_worker_that_ends_before_it_begins():
    """It is too large for the machine, say: the whole is named."""
    attempts = Attempts()
    for number in range(3):
        ended = attempts.begin(7, 6)
        assert not in_common(ended) and len(suspects(ended, 6)) == (6 if number == 2 else 0)
    assert in_common(attempts.begin(7, 6)) == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def silent():
    """The address of something that listens and says nothing that a Ray would."""
    server = socket.create_server(("127.0.0.1", 0))
    connections = []

    def answer():
        while True:
            try:
                connections.append(server.accept()[0])
                connections[-1].sendall(b"220 mail.example.org ready\r\n")
            except OSError:
                return

    threading.Thread(target=answer, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.close()


@pytest.mark.ray
def test_an_address_where_no_ray_answers_is_named_soon(silent):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        started = time.perf_counter()
        for address, what in [
            (f"127.0.0.1:{unused.getsockname()[1]}", "Connection refused"),
            (silent, "what listens there is no Ray"),
            ("head.invalid:6379", "no Ray answers at head.invalid:6379"),
            ("nonsense", "is no address of a Ray"),
            ("ray://127.0.0.1:10001", "is Ray Client's"),
        ]:
            with pytest.raises(ClusterError, match=what), ray_session(address):
                pass
        assert time.perf_counter() - started < 60


@pytest.fixture(scope="module")
def ray_here():
    """Two workers have room in it, whatever this machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')
        patch.setenv("RAY_worker_niceness", "0")
        with ray_session():
            yield


@pytest.mark.ray
def test_it_listens_on_this_machine_alone_and_reports_nothing(ray_here):
    import ray
    from ray._common.usage.usage_lib import usage_stats_enabled

    assert not usage_stats_enabled() and ray.nodes()[0]["NodeManagerAddress"] == "127.0.0.1"
    inodes = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # it listens
                inodes[fields[9]] = fields[1].partition(":")[0]
    family = {os.getpid()}
    parents = {
        int(stat.parent.name): int(stat.read_text().rpartition(")")[2].split()[1])
        for stat in readable("/proc/[0-9]*/stat")
    }
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    listening = set()
    for number in family:
        for link in Path(f"/proc/{number}/fd").glob("*"):
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                listening.add(inodes.get(target[8:-1]))
    # 127.0.0.1, as the kernel writes it, and the same as an IPv6 address.
    assert listening - {None} <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert listening - {None}


def readable(pattern: str):
    for path in Path("/").glob(pattern.lstrip("/")):
        try:
            path.read_text()
        except OSError:
            continue
        yield path


class Numbers:
    """Work that kills its worker at some numbers, once each."""

    def __init__(self, folder: str, once: list[int]):
        self.folder, self.once = Path(folder), once

    def __call__(self, items: list[int], watch: Watch) -> tuple[int, list[int]]:
        for part, number in enumerate(items):
            watch([part])
            mark = self.folder / str(number)
            if number in self.once and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid(), [number * number for number in items]


def describe(items, parts):
    return f"number {items[parts[0]]}"


@pytest.mark.ray
def test_workers_that_are_killed_are_replaced_and_nothing_is_lost_or_doubled(ray_here, tmp_path, pickled):
    items = [[10 * i, 10 * i + 1] for i in range(12)]
    results = list(map_on_ray(Items(items), Work(tmp_path, [20, 51]), describe, workers=2, cores=1))
    assert sorted(square for _, squares in results for square in squares) == [n * n for two in items for n in two]
    assert len(list(tmp_path.iterdir())) == 2 and len({pid for pid, _ in results}) >= 2


@pytest.mark.ray
def test_what_items_and_work_raise_is_one_sentence(ray_here, tmp_path, pickled):
    with pytest.raises(ClusterError, match="^line 3 is no number$"):
        list(map_on_ray(Items([[1]], "line 3 is no number"), Work(tmp_path, []), describe, workers=1, cores=1))
    with pytest.raises(ClusterError, match=r"3 workers are asked for \(--workers\), but there are 2 CPU cores"):
        list(map_on_ray(Items([[1]]), Work(tmp_path, []), describe, workers=3, cores=1))


class Items:
    def __init__(self, items, error=None):
        self.items, self.error = items, error

    def __call__(self):
        yield from self.items
        if self.error:
            raise ValueError(self.error)


class Work:
    def __init__(self, folder, *arguments):
        self.arguments = (str(folder), *arguments)

    def __call__(self):
        return Numbers(*self.arguments)


@pytest.fixture
def pickled():
    """Workers cannot import this module: what is in it travels with the work."""
    from ray import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"ray is not installed: `pip install '\.\[ray\]'` brings it"), ray_session():
        pass


def test_the_package_needs_none_of_it():
    code = "import sys, modeling_roformer; print({'ray', 'pyarrow', 'datasets'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
