"""Progress where stderr is not a terminal: a line now and then. ROFORMER_PROGRESS_SECONDS shortens the time between."""

import io
import logging
import os
import re
import subprocess
import sys
import time

import pytest
from helpers.command_line import ROFORMER
from helpers.paths import REPOSITORY
from tqdm import tqdm

from modeling_roformer.output.progress import bars_are_shown, bars_as_lines, byte_progress, tracked

SECONDS = "ROFORMER_PROGRESS_SECONDS"


def stderr_of(folder, words, seconds):
    """Return what a program in a process of its own writes into a file as its stderr."""
    environment = {name: value for name, value in os.environ.items() if name != SECONDS} | {"OMP_NUM_THREADS": "1"}
    environment |= {SECONDS: seconds} if seconds else {}
    with open(folder / "log", "w+", encoding="utf-8") as log:
        subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=log, check=True)
        log.seek(0)
        return log.read()


@pytest.mark.slow
def test_a_command_prints_lines_into_a_log(tmp_path):
    command = [ROFORMER, "convert", REPOSITORY / "examples" / "roformer-mini-zh"]
    assert stderr_of(tmp_path, [*command, "quiet"], None) == ""  # it takes less than a minute
    lines = stderr_of(tmp_path, [*command, "model"], "0.001").splitlines()
    assert lines and all(re.fullmatch(r"converting [\d.]+/[\d.]+ MB [\d:-]+", line) for line in lines), lines


SCRIPT = """
import time
from datasets import Dataset
from modeling_roformer.training import exit_on_error, near_duplicates
with exit_on_error("script"):
    rows = Dataset.from_dict({"text": ["明月"] * 9}).map(lambda row: row, desc="tokenizing")
    near_duplicates(rows["text"][:], 0.5, progress=True)
"""


@pytest.mark.slow
def test_a_script_prints_lines_into_a_log(tmp_path):
    words = [sys.executable, "-c", SCRIPT]
    assert stderr_of(tmp_path, words, None) == ""
    log = stderr_of(tmp_path, words, "0")
    assert "\r" not in log and "\x1b" not in log
    assert re.search(r"^tokenizing: 100% 9/9 \[.*\]$", log, re.MULTILINE), log


@pytest.fixture
def stderr(monkeypatch):
    """Return a function that replaces stderr in the test, since pytest's own is set after the fixtures."""
    monkeypatch.setenv(SECONDS, "0")

    def replace() -> io.StringIO:
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        return sys.stderr

    return replace


def test_bars_of_libraries_are_lines(stderr):
    stderr = stderr()
    assert not bars_are_shown()
    with bars_as_lines():
        assert bars_are_shown()
        logging.StreamHandler().emit(logging.LogRecord("", 0, "", 0, "a message", None, None))
        with tqdm(total=2, desc="outer") as outer, tqdm(total=3, desc="inner", leave=False, position=1) as inner:
            inner.update(3)
            outer.update(2)
            inner.refresh()
            outer.refresh()
        with tqdm(total=5):
            print("another", "message", file=sys.stderr)
        with bars_as_lines():
            assert bars_are_shown()
    assert sys.stderr is stderr and not bars_are_shown()
    lines = [re.sub(r" \[.*\]$", "", line) for line in stderr.getvalue().split("\n")]
    assert lines[0] == "a message" and "another message" in lines
    assert {"outer: 100% 2/2", "inner: 100% 3/3", "progress: 0% 0/5"} <= {*lines}
    assert not re.search(r"[\r\x1b|]|\n\n", stderr.getvalue())


def test_no_more_than_a_line_in_the_time_between(stderr, monkeypatch):
    stderr = stderr()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.delenv(SECONDS)
    with bars_as_lines():
        bar = tqdm(total=1000, desc="steps", mininterval=0)
        for _ in range(150):  # seconds
            now[0] += 1
            bar.update()
            bar.refresh()
        bar.close()
    lines = stderr.getvalue().splitlines()
    assert [line.partition(" [")[0] for line in lines] == ["steps: 6% 60/1000", "steps: 12% 120/1000"]


def test_hidden_progress_prints_nothing(stderr, monkeypatch):
    stderr = stderr()
    monkeypatch.setenv(SECONDS, "0.001")
    with byte_progress(shown=False) as bar:
        task = bar.add_task("reading", total=100)
        bar.advance(task, 50)
        assert [*tracked("ab", "letters", shown=False)] == ["a", "b"] and bar.tasks[0].completed == 50
    assert stderr.getvalue() == ""


def wait_for(stderr, text):
    for _ in range(3000):
        if text in stderr.getvalue():
            return
        time.sleep(0.01)
    pytest.fail(f"{text} is not in {stderr.getvalue()!r}")


def test_a_step_that_takes_long_prints_lines_too(stderr, monkeypatch):
    """Nothing advances while it waits for the line."""
    stderr = stderr()
    monkeypatch.setenv(SECONDS, "0.001")
    with byte_progress(shown=True) as bar:
        bar.advance(bar.add_task("reading", total=100_000_000), 50_000_000)
        wait_for(stderr, "reading 50.0/100.0 MB")
    letters = tracked("a", "letters")
    assert next(letters) == "a"
    wait_for(stderr, "letters 0/1")
    assert [*letters] == [] and "\r" not in stderr.getvalue()
