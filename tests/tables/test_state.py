"""What a table knows of its logs: where it is found, and that nothing malformed is believed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kts.errors import LogStorageError
from kts.model import TopicPartition
from kts.tables.state import (
    OFFSETS,
    SNAPSHOT,
    TOPIC_IDS,
    LostOffsetsError,
    Snapshot,
    TableState,
    find_state,
    snapshot_properties,
    table_properties,
)

NAME = TopicPartition("t", 0)
BAD_OFFSETS = [
    "", "{", "[]", "null", "5", '"t"', '{"t": 5}', '{"t": {"0": -1}}', '{"t": {"0": "5"}}', '{"t": {"0": 5.0}}',
    '{"t": {"0": true}}', '{"t": {"0": 9223372036854775808}}', '{"t": {"-1": 5}}', '{"t": {"x": 5}}',
    '{"t": {"2147483648": 5}}', '{"../t": {"0": 5}}', '{"": {"0": 5}}', '{"t": {"0": 5}, "t": {"0": 6}}',
    '{"version": 2, "t": {"0": 5}}', '{"t": {"0": NaN}}', '{"t": {"0": ' + "9" * 5000 + "}}", "[" * 100_000,
    '{"t": {"00": 5}}', '{"t": {"\u0663": 5}}', " " * (65 << 20) + "{}",
]  # fmt: skip
BAD_TOPIC_IDS = ["{", "[]", '{"t": 5}', '{"t": "short"}', '{"t": null}', '{"a/b": "AAAAAAAAAAAAAAAAAAAAAE"}']
BAD = [{OFFSETS: text} for text in BAD_OFFSETS] + [{TOPIC_IDS: text} for text in BAD_TOPIC_IDS]


def state(offset: int) -> TableState:
    return TableState({NAME: offset}, {"t": "A" * 21 + "E"})


def found(
    properties: Mapping[str, str],
    snapshots: Mapping[int, Snapshot],
    current: int | None,
    *older: Mapping[int, Snapshot],
) -> tuple[int | None, bool]:
    known, kept = find_state("lake.db.t", properties, snapshots, current, lambda: older)
    assert known == TableState() or known.topic_ids == {"t": "A" * 21 + "E"}
    return known.offsets.get(NAME), kept


def ours(parent: int | None, offset: int) -> Snapshot:
    return Snapshot(parent, snapshot_properties(state(offset)))


def other(parent: int | None) -> Snapshot:
    return Snapshot(parent, {"total-records": "0"})


def test_the_newest_snapshot_of_the_current_ones_ancestors_goes_first() -> None:
    chain = {1: ours(None, 5), 2: ours(1, 9), 3: other(2), 4: other(3)}
    assert found(table_properties(state(9), 2), chain, 4) == (9, True)
    assert found({}, chain, 4) == (9, False), "as earlier releases left it"
    assert found(table_properties(state(9), 2), chain, 1) == (5, False), "rolled back"
    assert found(table_properties(state(9), 2), {**chain, 5: other(1)}, 5) == (5, False), "and changed"


def test_the_tables_properties_stand_in_where_the_current_snapshot_descends_from_theirs() -> None:
    own = table_properties(state(9), 2)
    assert found(own, {3: other(2)}, 3) == (9, True)
    whole = {1: ours(None, 5), 2: ours(1, 9), 3: other(2), 4: other(3)}
    for last in (other(3), other(None)):  # pyiceberg forgets the parent when it expires
        assert found(own, {4: last}, 4, {4: last}, whole) == (9, True)
        assert found(own, {4: last}, 4, {3: other(None), 4: last}, {3: other(2), 4: other(3)}) == (9, True)
        with pytest.raises(LostOffsetsError, match="lake.db.t: its property kts.offsets belongs to snapshot 2"):
            found(own, {4: last}, 4, {3: other(1), 4: other(3)}, whole)
        with pytest.raises(LostOffsetsError, match="cannot be shown that snapshot 4"):
            found(own, {4: last}, 4)
    rolled_back = {**whole, 5: other(1)}
    with pytest.raises(LostOffsetsError, match="the table was rolled back or replaced"):
        found(own, {5: other(1)}, 5, rolled_back)
    with pytest.raises(LostOffsetsError, match="rolled back or replaced"):
        found(own, {6: other(None)}, 6, {**whole, 6: other(None)})
    with pytest.raises(LostOffsetsError, match="rolled back or replaced"):
        found(own, {}, None)


def test_offsets_between_that_the_properties_lack_are_not_passed_over() -> None:
    """A release that does not keep properties has added rows after one that does."""
    whole = {2: ours(None, 9), 3: ours(2, 12), 4: other(3)}
    with pytest.raises(LostOffsetsError, match="cannot be shown"):
        found(table_properties(state(9), 2), {4: other(3)}, 4, whole)


def test_a_new_table_knows_that_nothing_was_added() -> None:
    assert found({}, {}, None) == (None, True)
    new = table_properties(TableState(), None)
    assert found(new, {}, None) == (None, True)
    assert found(new, {7: other(None)}, 7) == (None, True)
    for snapshots in ({7: other(None)}, {7: other(6)}):
        with pytest.raises(LostOffsetsError, match="lake.db.t: the offsets .* are lost: .* from_offsets"):
            found({}, snapshots, 7)


@pytest.mark.parametrize("wrong", BAD, ids=range(len(BAD)))
def test_malformed_offsets_are_an_error_that_names_the_table(wrong: dict[str, str]) -> None:
    sound, whole = table_properties(state(9), 2), {2: ours(None, 9)}
    assert found(sound, whole, 2) == (9, True)
    with pytest.raises(LogStorageError, match=r"^lake.db.t: the properties .* malformed: .*from_offsets"):
        found(sound | wrong, whole, 2)
    with pytest.raises(LogStorageError, match=r"^lake.db.t, snapshot 2: the properties .* malformed: .*from_offsets"):
        found(sound, {2: Snapshot(None, sound | wrong)}, 2)


@pytest.mark.parametrize("text", ["x", "-5", "1.5", "", "9" * 30, "-", "None"])
def test_a_malformed_snapshot_of_the_properties_names_the_table(text: str) -> None:
    with pytest.raises(LogStorageError, match="^lake.db.t: the property kts.snapshot is malformed"):
        found(table_properties(state(9), 2) | {SNAPSHOT: text}, {2: ours(None, 9)}, 2)
