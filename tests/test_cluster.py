"""Work on Ray: each item is done once, even if workers are killed, and one sentence names an item that never works."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from helpers import command_line
from helpers.messages import assert_states, refused

from modeling_roformer.cluster.address import ClusterError, host_and_port
from modeling_roformer.cluster.private_session import check_token_file, private_session
from modeling_roformer.cluster.session import ray_session
from modeling_roformer.cluster.stream import Attempts, Watch, in_common, map_on_ray, suspects

run = command_line.run  # the fixture


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("local", None),
        ("auto", None),
        ("head:6379", ("head", 6379)),
        ("head-node.example.org:1", ("head-node.example.org", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[::1]:6379", ("::1", 6379)),
    ],
)
def test_addresses(address, place):
    assert host_and_port(address) == place


@pytest.mark.parametrize(
    "address", ["head-node", "data:zh", "head:", "--workers", "head:0", "head:65536", "a b:1", "ray://head:1"]
)
def test_what_is_no_address_is_named(address):
    with refused(ClusterError, address, "HOST:PORT"):
        host_and_port(address)


@pytest.mark.parametrize(
    ("typed", "code", "named"),
    [
        ("embed model texts out --ray head-node", 1, "'head-node'"),
        ("embed --ray model texts out", 1, "'model'"),  # and not: OUT is missing
        ("embed model texts out --ray --workers 2", 1, "'--workers'"),
        ("embed model texts out --ray", 2, "--ray"),
        ("embed --ray local -- model --ray out", 1, "folder"),  # a source may be called --ray
        ("vocab corpus --base vocab.txt --output words.txt --ray head-node", 1, "'head-node'"),
        ("vocab --base vocab.txt --output words.txt --ray corpus", 1, "'corpus'"),
    ],
)
def test_the_option_takes_an_address_always(run, tmp_path, monkeypatch, typed, code, named):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*typed.split())
    assert found == code and out == "" and ("HOST:PORT" in err) == named.startswith("'"), err
    assert_states(err, named)
    assert not list(tmp_path.iterdir())


def test_a_token_that_others_can_read_is_refused(tmp_path, monkeypatch):
    """Only if they can reach it, and if it is the token that this user sends to a cluster."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        monkeypatch.setenv("HOME", home)
        check_token_file()  # there is none
        token = Path(home) / ".ray" / "auth_token"
        token.parent.mkdir(mode=0o755)
        token.write_text("0" * 64)
        os.chmod(home, 0o755)
        for mode, others in ((0o644, True), (0o604, True), (0o640, True), (0o600, False)):
            token.chmod(mode)
            if others:
                with refused(ClusterError, f"chmod 600 {token}"):
                    check_token_file()
            else:
                check_token_file()
        token.chmod(0o644)
        for folder in (Path(home), token.parent):
            before = folder.stat().st_mode
            folder.chmod(0o700)
            check_token_file()
            folder.chmod(before)
        token.rename(token.with_name("elsewhere"))
        token.symlink_to("elsewhere")
        with refused(ClusterError, f"chmod 600 {token}"):
            check_token_file()
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))  # mounted there by whoever runs the cluster
        check_token_file()


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files to other users")
def test_a_token_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    os.chown(token, 65534, 65534)
    with refused(ClusterError, token, 65534):
        check_token_file()


def killed(attempts: Attempts, batches, alone: int) -> list[int]:
    """Tries that are all killed at one part, each as a worker goes about it; gives the parts that are named in the
    end."""
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
        for address, facts in [
            (f"127.0.0.1:{unused.getsockname()[1]}", ["Connection refused", "--ray local"]),
            (silent, ["--ray local"]),
            ("head.invalid:6379", ["--ray local"]),
            ("nonsense", ["HOST:PORT"]),
        ]:
            with refused(ClusterError, address, *facts), ray_session(address):
                pass
        assert time.perf_counter() - started < 60


@pytest.fixture(scope="module")
def ray_here():
    """Two workers have room in it, whatever this machine has. Others can enter the home, and create what they like."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chmod(home, 0o755)
        patch.setenv("HOME", home)
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')
        patch.setenv("RAY_worker_niceness", "0")
        with ray_session():
            yield


@pytest.mark.ray
def test_no_other_user_gets_into_a_ray_on_this_machine(ray_here):
    """Its folders are closed to them, its token is in no file, and without it nobody connects."""
    import ray

    token, address = os.environ["RAY_AUTH_TOKEN"], ray.get_runtime_context().gcs_address
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    private = session.parent.parent
    assert stat.S_IMODE(private.stat().st_mode) == 0o700 and private.stat().st_uid == os.getuid()
    assert len(token) == 64 and not list(Path(os.environ["HOME"]).iterdir())
    for path in private.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert token.encode() not in path.read_bytes()
    assert not any(token in path.read_text() for path in readable("/proc/[0-9]*/cmdline"))
    connect = (
        "import logging, ray\n"
        f"ray.init({address!r}, logging_level=logging.CRITICAL, log_to_driver=False)\n"
        "print('connected')"
    )
    for theirs, found in ((token, "connected"), ("0" * 64, "")):
        environment = {
            **os.environ,
            "RAY_AUTH_TOKEN": theirs,
            "RAY_AUTH_MODE": "token",
            "RAY_gcs_rpc_server_connect_timeout_s": "3",
        }
        done = subprocess.run([sys.executable, "-c", connect], env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == found, done.stderr
    if os.getuid() == 0:  # and what another user tries himself
        look = f"import os; os.setgid(65534); os.setuid(65534); os.listdir({str(private)!r})"
        done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
        assert "PermissionError" in done.stderr


SESSION = """
import os, sys
seen = dict(os.environ)
from modeling_roformer.cluster.session import ray_session
if sys.argv[1] == "interrupted":  # and then another one, with another token
    import ray
    from ray._private.node import Node
    start = Node.start_ray_processes
    def interrupted(self):
        start(self)
        Node.start_ray_processes = start
        raise KeyboardInterrupt
    Node.start_ray_processes = interrupted
    try:
        with ray_session():
            pass
    except KeyboardInterrupt:
        print("interrupted", *(name for name in os.listdir(os.environ["TMPDIR"]) if "ray" in name), flush=True)
try:
    with ray_session():
        print("ready", flush=True)
        sys.stdin.read()
        if sys.argv[1] == "interrupted":
            print(ray.get(ray.remote(lambda: 7).remote()), flush=True)
finally:
    assert {name for name in os.environ if "AUTH" in name} == {name for name in seen if "AUTH" in name}
"""


@pytest.mark.ray
def test_of_a_session_nothing_is_left_however_it_ends():
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as top:

        def session(how: object, place: str) -> subprocess.Popen:
            os.makedirs(f"{top}/{place}", exist_ok=True)
            environment = {**os.environ, "TMPDIR": f"{top}/{place}", "RAY_OVERRIDE_RESOURCES": '{"CPU": 1}'}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            program = [sys.executable, "-c", SESSION, str(how)]
            return subprocess.Popen(program, env=environment, text=True, **pipes)

        def sessions(i: int) -> list[str]:
            return [name for name in os.listdir(f"{top}/{i}") if "ray" in name]

        ways = [signal.SIGINT, signal.SIGKILL]
        begun = [session(how, str(i)) for i, how in enumerate(ways)]  # at once, since each takes seconds to start
        for i, (how, process) in enumerate(zip(ways, begun, strict=True)):
            assert process.stdout.readline() == "ready\n"
            assert len(sessions(i)) == 1
            process.send_signal(how)
            process.communicate(timeout=900)
        assert sessions(0) == []
        assert len(sessions(1)) == 1  # which the next session removes, even one that is interrupted
        assert session("interrupted", "1").communicate(timeout=900)[0] == "interrupted\nready\n7\n"
        assert sessions(1) == []


@pytest.mark.ray
def test_what_a_killed_session_still_writes_is_removed():
    """Its processes end some seconds after it; until then they may write to its folder."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as top:
        folder = Path(top, ".ray.0123abcd.unfinished")
        folder.mkdir()
        write = "import os, sys\nfor i in range(10**9): os.makedirs(f'{sys.argv[1]}/{i}/log')"
        with (
            subprocess.Popen([sys.executable, "-c", write, str(folder)]) as process,
            pytest.MonkeyPatch.context() as patch,
        ):
            try:
                patch.setattr(tempfile, "tempdir", top)
                with private_session():
                    assert not folder.exists()
                assert process.wait(timeout=900) == -signal.SIGKILL
            finally:
                process.kill()
        assert os.listdir(top) == []


@pytest.mark.ray
def test_a_process_that_starts_while_others_are_ended_is_ended_too(monkeypatch):
    """The raylet starts its agents some seconds after itself, and they make the session's folder again."""
    import psutil

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as top:
        folder = Path(top, ".ray.0123abcd.unfinished")
        folder.mkdir()
        raylet = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(folder)])
        agents: list[subprocess.Popen] = []
        processes = psutil.process_iter

        def process_iter():
            for process in processes():
                if process.pid == raylet.pid and not agents:  # its number is higher than those that have been listed
                    write = "import os, sys, time\ntime.sleep(2)\nos.makedirs(f'{sys.argv[1]}/logs')"
                    agents.append(subprocess.Popen([sys.executable, "-c", write, str(folder)]))
                yield process

        monkeypatch.setattr(psutil, "process_iter", process_iter)
        monkeypatch.setattr(tempfile, "tempdir", top)
        try:
            with private_session():
                assert not folder.exists()
            assert [process.wait(timeout=900) for process in (raylet, *agents)] == [-signal.SIGKILL] * 2
            assert os.listdir(top) == []
        finally:
            for process in (raylet, *agents):
                process.kill()


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
    with refused(ClusterError, "--workers", 3, "1 to 2", "CPU cores"):
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
    with refused(ClusterError, "ray", "pip install '.[ray]'"), ray_session():
        pass


def test_the_package_needs_none_of_it():
    code = "import sys, modeling_roformer; print({'ray', 'pyarrow', 'datasets'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
