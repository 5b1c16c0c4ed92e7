"""Wrong arguments of a log: an error that names the argument, and nothing is touched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sets.log_records import NOW, Clock, batch, offsets, opened

import kts

NO_NUMBERS = [1.5, float("nan"), "5", b"5", [], True]
NO_OFFSETS = [*NO_NUMBERS, -1, 2**63]
CONSTRUCTOR = {
    "shipped": ["3.9", 1, None, []],
    "create": ["no", 0, None],
    "clock": [5, "now", [], NOW],
    "generation": ["4.0", 3.9, [], ""],
    "topic_id": ["short", "A" * 22, "x" * 23, "é" * 22, 5, b"x" * 22],
    "high_watermark": NO_OFFSETS,
    "log_start_offset": NO_OFFSETS,
    "recovery_point": NO_OFFSETS,
    "proposals": [None, 5, "wall-clock", b"x"],
}
METHODS: dict[tuple[str, str], tuple[dict[str, Any], list[Any]]] = {  # the other arguments, wrong values
    ("append", "leader_epoch"): ({"buf": batch(NOW)}, [*NO_NUMBERS, -2, 2**31]),
    ("append", "origin"): ({"buf": batch(NOW)}, [None, "broker", 5]),
    ("append_rows", "rows"): ({}, [None, 5, "x", b"x", {}, [], [5], {"vaule": [b"x"]}]),
    ("append_rows", "compression"): ({"rows": {"value": [b"v"]}}, ["brotli", 5, b"lz4"]),
    ("append_rows", "unit"): ({"rows": {"value": [b"v"]}}, ["m", "", 5]),
    ("scan", "unit"): ({}, ["m", "", 5]),
    ("scan", "starting_timestamp"): ({}, [True, 1.5, b"x", "soon", 2**63, NOW // 1000]),
    ("read", "offset"): ({"max_bytes": 10}, [*NO_NUMBERS, None, 2**63]),
    ("read", "max_bytes"): ({"offset": 0}, [*NO_OFFSETS, None]),
    ("read", "up_to"): ({"offset": 0, "max_bytes": 10}, [None, "end", 5]),
    ("offset_for_timestamp", "t_ms"): ({}, [*(one for one in NO_NUMBERS if one != "5"), "soon", None, 2**63]),
    ("truncate_to", "offset"): ({}, [*NO_OFFSETS, None]),
    ("truncate_fully_and_start_at", "offset"): ({}, [*NO_OFFSETS, None]),
    ("advance_high_watermark", "offset"): ({}, [*NO_NUMBERS, None, 2**63]),
    ("advance_log_start_offset", "offset"): ({}, [*NO_NUMBERS, None, 2**63]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CONSTRUCTOR.items() for value in values])
def test_a_wrong_argument_is_named_before_anything_is_made(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
        kts.Log(tmp_path / "t-0", **{name: value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("method", "name"), METHODS)
def test_a_wrong_argument_of_a_method_is_named_and_changes_nothing(method: str, name: str, tmp_path: Path) -> None:
    others, values = METHODS[method, name]
    with opened(tmp_path) as log:
        log.append(batch(NOW, NOW, NOW))
        for value in values:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
                getattr(log, method)(**others, **{name: value})
        assert (offsets(log), log.log_start_offset, log.high_watermark) == ([0, 1, 2], 0, 3)


@pytest.mark.parametrize(
    "path", [None, 5, "", "/", "a", "-0", "a-", "a-00", "a-2147483648", ".-0", "..-0", "é-0", "a-0\0"]
)
def test_a_path_that_is_no_partitions_is_refused(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match="^path: expected "):
        kts.Log(path)
    assert not list(tmp_path.iterdir())


def test_paths_of_every_kind_lead_to_the_same_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(["t-0", b"t-0", "./t-0//", tmp_path / "t-0", f"{tmp_path}/x/../t-0"]):
        with kts.Log(path, clock=Clock()) as log:  # type: ignore[arg-type]
            assert (log.path, log.clean_start) == (str(tmp_path / "t-0"), number > 0)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with opened(tmp_path, clock=lambda: np.int64(NOW), recovery_point=np.int32(0)) as log:  # type: ignore[arg-type]
        log.append(batch(NOW, NOW), leader_epoch=np.int16(3))  # type: ignore[arg-type]
        log.truncate_to(np.uint8(0))  # type: ignore[arg-type]
        assert type(log.log_end_offset) is int


def test_seconds_as_a_float_are_no_clock(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="^clock: expected an int, found 1"):
        kts.Log(tmp_path / "t-0", clock=time.time)  # type: ignore[arg-type]


def test_another_topic_id_is_refused_and_the_log_stays_clean(tmp_path: Path) -> None:
    opened(tmp_path, topic_id="x" * 22).close()
    with pytest.raises(kts.InvalidRequestError, match=f"topic_id: expected {'x' * 22}"):
        opened(tmp_path, topic_id="y" * 22)
    with opened(tmp_path) as log:
        assert (log.topic_id, log.clean_start) == ("x" * 22, True)


@pytest.mark.parametrize("start", [2**63 - 1, 2**63 - 2, 2**63 - 4])
def test_offsets_end_before_they_overflow(start: int, tmp_path: Path) -> None:
    with opened(tmp_path, file_delete_delay_ms=0) as log:
        log.truncate_fully_and_start_at(start)
        with pytest.raises(kts.InvalidOffsetError, match=r"expected offsets below 2\^63-1"):
            log.append(batch(*[NOW] * 4))
        room = 2**63 - 1 - start
        if room:
            log.append(batch(*[NOW] * room))
        assert log.log_end_offset == 2**63 - 1
    with opened(tmp_path) as log:
        assert (log.recovered, log.log_end_offset, len(offsets(log))) == ([], 2**63 - 1, room)


def test_a_link_in_circles_beside_the_partition_is_no_partition(tmp_path: Path) -> None:
    (tmp_path / "u-0").symlink_to(tmp_path / "u-0")
    opened(tmp_path).close()
    with opened(tmp_path) as log:
        assert log.clean_start
