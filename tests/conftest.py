"""Fixtures that all tests share."""

import gc
import os
import random
import signal
import socket
import sys
import zlib

import numpy as np
import pytest
from helpers import command_line, hub_server, properties, scripts
from hypothesis import settings

properties.register_profiles()
hub, run, run_here = hub_server.hub, command_line.run, scripts.run_here  # the fixtures
_getaddrinfo = socket.getaddrinfo


def _local_addresses(host, *args, **kwargs):
    """Fail at once for a name of the internet. Where packets are dropped, a lookup fails only after its time-outs."""
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name != socket.gethostname() and "." in name and name.rsplit(".", 1)[-1].isalpha():
        raise socket.gaierror(socket.EAI_NONAME, f"tests do not look up {name}")
    return _getaddrinfo(host, *args, **kwargs)


def _no_sync(file):
    """Skip `os.fsync`, which waits for the disk thousands of times in all: no test cuts the power."""


class Failures:
    """Prints each failure when it happens. pytest prints all of them again at the end."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.ensure_newline()
            terminal.line(f"{report.nodeid}, {report.when}:\n{report.longreprtext}")


@pytest.hookimpl(trylast=True)  # after Hypothesis has read --hypothesis-profile
def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the process that prints, not a worker of pytest-xdist
        config.pluginmanager.register(Failures(config))
    socket.getaddrinfo = _local_addresses
    os.fsync = _no_sync
    if settings.default.derandomize:
        properties.ignore_loaded_modules()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed every generator, so that a test without a seed of its own draws the same numbers in every run too."""
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.fixture(autouse=True, scope="module")
def quick_collection():
    """Freeze imported objects: Trainer collects garbage before each training, which would take longer than it does."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def same_environ(monkeypatch):
    """`Dataset.map` in several processes leaves a copy in the place of `os.environ`, which rich does not see."""
    monkeypatch.setattr(os, "environ", os.environ)


@pytest.fixture
def default_signals():
    """Handle signals as a program in a terminal does: background jobs of a shell and their children ignore Ctrl-C."""
    defaults = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ignored = [number for number in defaults if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, defaults[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
