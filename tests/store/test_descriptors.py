"""Descriptors that are kept open, and what happens when none is left."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from support.sets.log_records import batch, opened

import kts
from kts.store import descriptors

DATA = batch(*range(10))


class Keeper:
    def __init__(self) -> None:
        self.rests = 0

    def rest(self) -> None:
        self.rests += 1


def test_above_the_limit_the_oldest_holders_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "most_holders", lambda: 2)
    monkeypatch.setattr(descriptors, "_holders", descriptors._holders.__class__())
    holders = [Keeper() for _ in range(5)]
    for one in holders:
        descriptors.keep_open(one)
    assert [one.rests for one in holders] == [1, 1, 1, 0, 0]


def test_where_no_descriptor_is_left_those_that_are_kept_are_given_back_and_a_lack_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "_told", [])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    logs = [opened(tmp_path, name=f"t-{number}", segment_bytes="100000") for number in range(4)]
    for log in logs[:3]:
        log.append(DATA)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        logs[3].append(DATA)  # with those of the other three
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        monkeypatch.setattr(descriptors, "_holders", descriptors._holders.__class__())
        for _ in range(2):
            with pytest.raises(kts.LogStorageError, match=f"limit is {free} open files, `ulimit -n` raises it"):
                logs[0].append(DATA)
        for one in taken:
            os.close(one)
        logs[0].append(DATA)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "ulimit -n" in caplog.text
    for log in logs:
        log.close()
