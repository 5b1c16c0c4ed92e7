"""Partitions that are reached by a link: one writer all the same."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from support.sets.log_records import NOW, batch, offsets, opened

import kts


def _locked_elsewhere(path: str) -> bool:
    try:
        kts.Log(path).close()
    except kts.LogLockedError:
        return True
    return False


@pytest.fixture
def links(tmp_path: Path) -> list[Path]:
    """Ways to the partition t-0 of ``here``."""
    opened(tmp_path / "here").close()
    (tmp_path / "there").mkdir()
    (tmp_path / "again").symlink_to(tmp_path / "here")
    for link in ("there/t-0", "there/u-3", "here/v-0"):
        (tmp_path / link).symlink_to(tmp_path / "here/t-0")
    return [tmp_path / link for link in ("here/t-0", "again/t-0", "there/t-0", "there/u-3", "here/v-0")]


def test_a_partition_has_one_writer_whatever_link_leads_to_it(links: list[Path]) -> None:
    for number, first in enumerate(links):
        with kts.Log(first, clock=lambda: NOW) as log:
            for second in links:
                with pytest.raises(kts.LogLockedError):
                    kts.Log(second)
            assert log.append(batch(NOW)).first_offset == number
    with kts.Log(links[0]) as log:
        assert (offsets(log), log.recovered) == ([0, 1, 2, 3, 4], [])


@pytest.mark.slow
def test_another_process_is_kept_out_through_a_link(links: list[Path]) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, kts.Log(links[2]):
        assert pool.map(_locked_elsewhere, map(str, links)) == [True] * len(links)
