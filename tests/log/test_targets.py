"""kts.log.targets: negative targets of a search by time, as the recorded verdicts of each release have them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kts
from kts.log.targets import offset_of_target

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(("release", "least"), [("0.10.2", -2), ("3.9", -5), ("4.3", -6)])
def test_negative_targets_are_places_down_to_the_least_that_a_release_knows(
    tmp_path: Path, release: str, least: int
) -> None:
    with kts.Log(tmp_path / "t-0", release=release, shipped=True) as log:
        log.append(kts.encode({"timestamp": [NOW_MS, NOW_MS + 1]}, magic=log.config.magic))
        places = {-1: (-1, 2), -2: (-1, 0), -3: (NOW_MS + 1, 1), -4: (-1, 0), -5: (-1, -1), -6: (-1, -1)}
        expected = [places[target] if target >= least else (NOW_MS, 0) for target in range(-1, -9, -1)]
        assert [tuple(offset_of_target(log, target) or ()) for target in range(-1, -9, -1)] == expected


def test_a_format_without_timestamps_knows_the_ends_alone(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"message.format.version": "0.9.0"}) as log:
        assert [offset_of_target(log, target) for target in (-1, -2)] == [(-1, 0), (-1, 0)]
        for target in (-3, -5, 0):
            with pytest.raises(kts.UnsupportedForMessageFormatError):
                offset_of_target(log, target)
