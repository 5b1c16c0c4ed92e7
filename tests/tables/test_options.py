"""The arguments of a synchronisation: told once, and named by what both engines take."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kts.tables import sync

BOTH = """path table topics partitions storage_options remote remote_options isolation to_end fail_on_data_loss on_error
    from_offsets value_format value_schema registry plausible_from plausible_to unit max_days""".split()
LOCAL = "catalog warehouse threads partition_by mode buckets commit_bytes progress".split()


def test_sync_takes_these_arguments_by_name() -> None:
    parameters = inspect.signature(sync).parameters
    assert [*parameters] == BOTH + LOCAL
    assert {name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD} == {"path", "table"}
    assert {name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY} == {*(BOTH + LOCAL)[2:]}


def test_every_argument_is_described() -> None:
    assert [name for name in BOTH + LOCAL if f"\n{name} : " not in str(inspect.getdoc(sync))] == []


def test_a_wrong_name_is_an_error_of_sync(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^sync\(\) got an unexpected keyword argument 'topic'"):
        sync(tmp_path, tmp_path / "t", topic="orders")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^sync\(\) missing a required argument: 'table'"):
        sync(path=tmp_path)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plausible_from": 10**15, "unit": "ms"}, "plausible_from: 1000000000000000 is after plausible_to"),
        ({"plausible_to": 10**15, "unit": "ms"}, "plausible_to: expected a time in the years 1 to 9999"),
        ({"plausible_from": -(10**15), "unit": "ms"}, "plausible_from: expected a time in the years 1 to 9999"),
        ({"isolation": "none"}, "isolation: expected one of read_uncommitted"),
        ({"on_error": "none"}, "on_error: expected one of raise"),
        ({"value_format": "xml"}, "value_format: expected one of text, json, avro"),
        ({"registry": True}, "registry: give value_format as well"),
        ({"value_schema": "s"}, "value_schema: give value_format as well"),
        ({"registry": True, "value_format": "text"}, "registry: text has no schema"),
        ({"warehouse": "w"}, "warehouse: give catalog as well"),
        ({"commit_bytes": 0}, "commit_bytes: "),
        ({"threads": 0}, "threads: "),
        ({"max_days": 0}, "max_days: "),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sync("tests/data/golden/demo/orders", tmp_path / "t", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists()
