"""The release that a log follows: what Kafka 4.3 refuses and stores, beside what a log does where none is named."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path

import pytest

import kts
from kts.testing import KtsBroker

NOW_MS, HOUR_MS, TEN_YEARS_MS = 1_700_000_000_000, 3_600_000, 315_360_000_000
GZIP = 1


def opened(path: Path, release: str | None = None, *, shipped: bool = False) -> kts.Log:
    return kts.Log(path / "t-0", release=release, shipped=shipped, clock=lambda: NOW_MS)


def records(*times: int, magic: int = 2, compression: str = "none", base: int = 0) -> bytes:
    columns = {"timestamp": list(times), "value": [b"v"] * len(times)}
    return kts.encode(columns, magic=magic, compression=compression, base_offset=base)


def test_a_create_time_more_than_an_hour_ahead_is_refused_by_4_3(tmp_path: Path) -> None:
    with opened(tmp_path, "4.3") as log:
        for time in (NOW_MS + HOUR_MS, NOW_MS - TEN_YEARS_MS, -1):
            log.append(records(time))
        with pytest.raises(kts.InvalidTimestampError) as caught:
            log.append(records(NOW_MS, NOW_MS + HOUR_MS + 1))
        assert [index for index, _ in caught.value.record_errors] == [1]
        assert log.log_end_offset == 3


def test_a_limit_that_is_given_is_kept_by_4_3(tmp_path: Path) -> None:
    config = {"message.timestamp.after.max.ms": 2 * HOUR_MS}
    with kts.Log(tmp_path / "t-0", config, release="4.3", clock=lambda: NOW_MS) as log:
        log.append(records(NOW_MS + 2 * HOUR_MS))
        log.reconfigure({})
        with pytest.raises(kts.InvalidTimestampError):
            log.append(records(NOW_MS + 2 * HOUR_MS))


@pytest.mark.parametrize("release", [None, "3.9", "0.10.2"])
def test_no_other_release_has_a_limit_by_default(tmp_path: Path, release: str | None) -> None:
    with opened(tmp_path, release) as log:
        log.append(records(NOW_MS + TEN_YEARS_MS, magic=log.config.magic))
        assert log.release == (release or "3.9")


def test_a_leader_of_4_3_stores_older_messages_as_batches_and_a_follower_as_they_are(tmp_path: Path) -> None:
    old = records(NOW_MS, magic=1, base=1)
    with opened(tmp_path, "4.3") as log:
        log.append(records(NOW_MS, magic=1))
        log.append_as_follower(old)
        assert kts.scan_batches(log.read(0, 10_000).records)["magic"].to_pylist() == [2, 1]
        assert log.read(1, 10_000).records == old


def test_4_3_exactly_fails_reads_that_walk_over_a_broken_wrapper(tmp_path: Path) -> None:
    broken = bytearray(records(NOW_MS, NOW_MS, NOW_MS, magic=1, compression="gzip"))
    broken[-12:-8] = bytes(4)  # in the payload, so that the CRC must be made anew
    broken = bytearray(kts.encode({"timestamp": [NOW_MS], "value": [bytes(broken[34:])]}, magic=1, base_offset=2))
    broken[17] |= GZIP
    broken[12:16] = zlib.crc32(broken[16:]).to_bytes(4, "big")
    sets = (records(NOW_MS, magic=1, compression="gzip"), bytes(broken), records(NOW_MS, magic=1, base=3))
    for shipped, served in ((False, [0, 1, 2, 3]), (True, [0])):
        with opened(tmp_path / str(shipped), "4.3", shipped=shipped) as log:
            for each in sets:
                log.append_as_follower(each)
            answered = []
            for offset in range(4):
                try:
                    log.read(offset, 10_000)
                    answered.append(offset)
                except kts.KtsError as error:
                    assert error.code == -1
            assert answered == served


NO_LIMIT = {"message.timestamp.after.max.ms": 2**63 - 1, "retention.ms": HOUR_MS}


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_a_segment_from_the_future_that_retention_keeps_is_told_of_once_by_4_3(tmp_path: Path, release: str) -> None:
    now = [NOW_MS]
    with kts.Log(tmp_path / "t-0", NO_LIMIT, release=release, clock=lambda: now[0]) as log:
        for time in (NOW_MS, NOW_MS + TEN_YEARS_MS, NOW_MS):
            log.append(records(time))
            log.roll()
        now[0] += HOUR_MS + 1
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert [one.base_offset for one in log.delete_old_segments()] == [0]
            assert log.delete_old_segments() == []
        texts = [str(one.message) for one in found]
        assert len(texts) == (release == "4.3")
        assert all("segment 1 has a timestamp from the future, 2033-11-1" in text for text in texts), texts
        now[0] += TEN_YEARS_MS
        assert [one.base_offset for one in log.delete_old_segments()] == [1, 2]


def test_a_broker_of_4_3_has_a_line_for_each_segment_from_the_future(caplog: pytest.LogCaptureFixture) -> None:
    with KtsBroker(release="4.3", time=NOW_MS) as broker:
        broker.create_topic("t", 2, NO_LIMIT)
        for partition in (0, 1):
            broker.produce("t", b"v", partition=partition, timestamp_ms=NOW_MS + TEN_YEARS_MS)
        for _ in range(2):
            assert broker.run_retention() == []
    told = [text for one in caplog.records if "from the future" in (text := one.getMessage())]
    assert [line[:22] for line in told] == ["topic t: partition 0: ", "topic t: partition 1: "]
