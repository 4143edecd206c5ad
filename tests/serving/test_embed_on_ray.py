"""`roformer embed --ray`: vectors as without Ray, also if a worker is killed, on a Ray that other users cannot use."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from helpers import pages
from helpers.command_line import ROFORMER
from helpers.little_memory import with_little_memory
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.small_texts import TEXTS
from helpers.vector_folders import shards_of

from modeling_roformer.conversion import convert
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.vectors.on_ray import _check_token

MANY = [f"{text}{'明月' * (i % 7)}" for i in range(12) for text in TEXTS]


def test_the_token_is_readable_by_its_owner_alone(tmp_path, monkeypatch):
    """A token that others can read is refused; one from elsewhere is not checked."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".ray" / "auth_token"
    _check_token(create=False)
    assert not token.exists()
    _check_token(create=True)
    made = token.read_text()
    assert len(made) == 64 and token.stat().st_mode & 0o777 == 0o600
    _check_token(create=True)
    assert token.read_text() == made
    for mode in (0o644, 0o604, 0o640):
        token.chmod(mode)
        for create in (False, True):
            with refused(ServingError, f"chmod 600 {token}"):
                _check_token(create)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))  # mounted there by whoever runs the cluster
    _check_token(create=True)


def test_without_the_extra_one_sentence_says_what_to_install(saved, tmp_path, monkeypatch):
    from modeling_roformer.serving.vectors import embed

    (tmp_path / "texts.txt").write_text("今天\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused(ServingError, "ray", "pip install '.[ray]'"):
        embed(saved("word"), tmp_path / "texts.txt", tmp_path / "out", ray="local")


@pytest.mark.ray
@pytest.mark.parametrize("address", ["head-node", "head:"])
def test_an_address_that_is_none_is_named(saved, tmp_path, address):
    (tmp_path / "texts.txt").write_text("今天\n", encoding="utf-8")
    (tmp_path / "home").mkdir()
    command = [ROFORMER, *arguments(saved, "out", "--ray", address)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("roformer: ") and done.stderr.count("\n") == 1, done.stderr
    assert_states(done.stderr, address)


@pytest.fixture
def place(saved, tmp_path):
    """Return a folder with texts, with their vectors computed without Ray in `here`, and with a home."""
    (tmp_path / "texts.txt").write_text("".join(text + "\n" for text in MANY), encoding="utf-8")
    (tmp_path / "home").mkdir()
    done = subprocess.run([ROFORMER, *arguments(saved, "here")], cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 0
    return tmp_path


def arguments(saved, out, *more):
    options = ["--shard-size", 5, "--keep-text", "--chunk", 12]
    return ["embed", str(saved("word")), "texts.txt", out, *map(str, [*options, *more])]


def environment(place, **more):
    """Return an environment with another home, and with two CPU cores for Ray, whatever this machine has."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    limits = {"OMP_NUM_THREADS": "1", "RAY_OVERRIDE_RESOURCES": '{"CPU": 2}', "RAY_worker_niceness": "0"}
    return found | limits | {"HOME": str(place / "home")} | more


def assert_same(one, other):
    """Assert that two folders have the same ids, chunks and texts, and nearly the same vectors."""
    one, other = map(pyarrow.parquet.read_table, (one, other))
    assert one.column_names == other.column_names and len(one) > len(set(one["id"].to_pylist())) == len(MANY)
    assert one.drop_columns("vector") == other.drop_columns("vector") and "chunk" in one.column_names
    np.testing.assert_allclose(*(np.stack(table["vector"].to_numpy()) for table in (one, other)), atol=1e-6)


def processes_of(group: int) -> dict[int, str]:
    """Return the processes of a process group or session, and their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if group in (int(fields[2]), int(fields[3])):
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


@pytest.mark.ray
def test_a_worker_that_is_killed_is_replaced_and_no_port_is_open_to_others(saved, place):
    """The token is in a file of the user alone, and Ray listens on 127.0.0.1 alone; nothing is left behind."""
    command = [ROFORMER, *arguments(saved, "ray", "--ray", "local", "--workers", 2, "--batch-tokens", 1)]
    process = subprocess.Popen(
        command, cwd=place, env=environment(place), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 500
    while len(shards_of(place / "ray")) < 2:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    found = processes_of(process.pid)
    listening = addresses(found)
    (worker, *_) = (number for number, line in found.items() if line.startswith("ray::_Worker"))
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=500)
    assert process.returncode == 0 and "Traceback" not in err, err
    assert_same(place / "here", place / "ray")
    # 127.0.0.1, as the kernel writes it, and the same as an IPv6 address.
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert listening
    (token,) = (path for path in (place / "home").rglob("*") if path.is_file())
    assert token == place / "home" / ".ray" / "auth_token" and token.stat().st_mode & 0o777 == 0o600
    assert not any(token.read_text() in line for line in found.values())


@pytest.mark.ray
def test_batches_that_do_not_fit_in_a_workers_memory_are_halved(saved, place):
    command = [ROFORMER, *arguments(saved, "little", "--ray", "local", "--workers", 1)]
    little, none = (with_little_memory(place / str(tokens), tokens)["PYTHONPATH"] for tokens in (30, 5))
    inside = environment(place, PYTHONPATH=little)
    done = subprocess.run(command, cwd=place, env=inside, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("note: ") == 1, done.stderr
    assert_states(done.stderr, "--batch-tokens", 16384)
    assert_same(place / "here", place / "little")
    command = [ROFORMER, *arguments(saved, "none", "--ray", "local", "--workers", 1)]
    inside = environment(place, PYTHONPATH=none)
    done = subprocess.run(command, cwd=place, env=inside, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert_states(done.stderr, "texts.txt", "--batch-tokens", "--max-length")


@pytest.mark.ray
def test_the_command_of_the_page(tmp_path):
    (block,) = (block for block in pages.blocks("docs/vectors.md") if block.extra == "ray")
    (tmp_path / "home").mkdir()
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "roformer-mini-zh")
    inside = environment(tmp_path, COLUMNS="80", PATH=f"{ROFORMER.parent}{os.pathsep}{os.environ['PATH']}")
    (command,) = block.commands
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=inside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages.assert_printed(block, done.stdout)


def addresses(processes) -> set[str]:
    """Return the addresses on which processes listen."""
    inodes = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # it listens
                inodes[f"socket:[{fields[9]}]"] = fields[1].partition(":")[0]
    found = set()
    for number in processes:
        for link in Path(f"/proc/{number}/fd").glob("*"):
            try:
                found.add(inodes.get(os.readlink(link)))
            except OSError:
                continue
    return found - {None}


@pytest.mark.ray
def test_on_a_cluster_of_this_machine_with_its_token(saved, place):
    """A run that was stopped resumes there; another token, and an address without Ray, are refused."""
    ray, token = Path(sys.executable).with_name("ray"), secrets.token_hex(32)
    inside = environment(place, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token, PYTHONUNBUFFERED="1")
    folder = f"/tmp/r{secrets.token_hex(4)}"  # short, since a socket's path has at most 107 bytes
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = ["start", "--head", "--port", port, "--num-cpus", 2, "--include-dashboard", "false", "--block"]
    head += ["--node-ip-address", "127.0.0.1", "--temp-dir", folder]
    cluster = subprocess.Popen(
        [ray, *map(str, head)], env=inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        next(line for line in cluster.stdout if b"--block" in line)  # it has started
        (place / "there").symlink_to("here")
        (place / "here" / "000002.parquet").rename(place / "before.parquet")
        command = [ROFORMER, *arguments(saved, "there", "--ray", f"127.0.0.1:{port}", "--workers", 1)]
        refused = subprocess.run(
            command, cwd=place, env=inside | {"RAY_AUTH_TOKEN": "0" * 64}, capture_output=True, text=True
        )
        assert refused.returncode == 1 and len(shards_of(place / "here")) == 23, refused.stderr
        done = subprocess.run(command, cwd=place, env=inside, capture_output=True, text=True)
        assert done.returncode == 0 and "24, 23 of them kept" in done.stdout, done.stderr
        one, other = (pyarrow.parquet.read_table(place / name) for name in ("before.parquet", "here/000002.parquet"))
        assert one["id"] == other["id"]
        np.testing.assert_allclose(*(np.stack(table["vector"].to_numpy()) for table in (one, other)), atol=1e-6)
        too_many = [ROFORMER, *arguments(saved, "more", "--ray", f"127.0.0.1:{port}", "--workers", 3)]
        done = subprocess.run(too_many, cwd=place, env=inside, capture_output=True, text=True)
        assert done.returncode == 1
        assert_states(done.stderr.splitlines()[-1], "--workers", 3, "1 to 2", "CPU cores")
    finally:
        os.killpg(cluster.pid, signal.SIGTERM)
        cluster.communicate(timeout=100)
        shutil.rmtree(folder, ignore_errors=True)
