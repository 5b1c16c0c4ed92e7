"""Logs that nobody closes, copies or sends to another process."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from pathlib import Path

import pytest
from support.sets.log_records import NOW, batch, offsets, opened

import kts


@pytest.mark.slow
def test_a_forgotten_log_gives_its_lock_back_and_is_recovered(tmp_path: Path) -> None:
    gc.collect()  # what other tests left
    before = len(os.listdir("/proc/self/fd"))
    log = opened(tmp_path)
    log.append(batch(NOW))
    with pytest.warns(ResourceWarning, match="never closed: .*t-0"):
        del log
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    with opened(tmp_path) as again:
        assert (again.clean_start, offsets(again)) == (False, [0])


@pytest.mark.slow
def test_a_log_that_never_opened_is_no_forgotten_one(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(Exception, match="already open"):
        opened(tmp_path)
    for arguments in ((), (5,), (tmp_path / "nameless",)):
        with pytest.raises((TypeError, ValueError)):
            kts.Log(*arguments)
    gc.collect()


def test_a_log_is_neither_copied_nor_pickled(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="found the open log .*t-0"):
                attempt(log)
        log.append(batch(NOW))
        assert offsets(log) == [0]
