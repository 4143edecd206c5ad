"""Time that passes only where somebody sleeps, for tests of what is tried again.

`fake_time = fake_time.fake_time` in a test module makes the fixture; `fake_time.slept` lists the waits.
"""

from types import SimpleNamespace

import pytest
from huggingface_hub import file_download

from modeling_roformer.hub import retries as hub_retries

NOON = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


class FakeTime:
    def __init__(self):
        self.passed, self.slept, self.meanwhile = 0.0, [], lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed += seconds
        self.meanwhile()


@pytest.fixture
def fake_time(monkeypatch):
    time = FakeTime()
    monkeypatch.setattr(hub_retries, "sleep", time.sleep)
    monkeypatch.setattr(hub_retries, "clock", lambda: time.passed)
    monkeypatch.setattr(hub_retries, "now", lambda: NOON + time.passed)
    # huggingface_hub waits a second by itself before it takes up a download that was cut.
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))
    return time
