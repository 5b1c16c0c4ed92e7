"""Any catalog: SQLite, Iceberg's REST server, Glue. The same table comes to be in each, whoever is beside it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from support.catalogs import glue_catalog, rest_catalog
from support.golden import scaled
from support.sets.keyed import random_log

import kts
from kts.errors import InvalidRequestError, LogLockedError, LogStorageError
from kts.tables import sync

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:records without a key:kts.KtsWarning")]
NAMES = ["topic", "partition", "offset", "key", "value"]


@pytest.fixture(scope="module", params=["sqlite", "rest", "glue"])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder = tmp_path_factory.mktemp("catalog")
    if request.param == "sqlite":
        yield load_catalog("lake", uri=f"sqlite:///{folder}/c.sqlite", warehouse=f"file://{folder}/warehouse")
    elif request.param == "rest":
        with rest_catalog(folder) as uri:
            yield load_catalog("lake", uri=uri)
    else:
        with glue_catalog() as properties:
            yield load_catalog("lake", **properties)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test."""
    return f"lake.db.t{abs(hash(request.node.name)):x}"


def rows(catalog: Catalog, table: str) -> list[dict[str, Any]]:
    found = catalog.load_table(tuple(table.split(".")[1:])).scan().to_arrow().select(NAMES).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def skip_if_commits_race(catalog: Catalog) -> None:
    """AWS refuses the second of two commits by its VersionId, and moto does not look at that."""
    if type(catalog).__name__ == "GlueCatalog":
        pytest.skip("moto's Glue lets a commit replace another")


@pytest.mark.parametrize("mode", ["append", "latest"])
def test_a_table_grows_with_its_log(
    catalog: Catalog, table: str, mode: str, tmp_path: Path, rng: random.Random
) -> None:
    random_log(tmp_path / "t-0", rng)
    for turn in range(3):
        done = sync(tmp_path, table, catalog=catalog, mode=mode, to_end=True)
        assert (done.tables[0].created is not None) == (turn == 0)
        read = kts.latest if mode == "latest" else kts.scan
        assert rows(catalog, table) == read(tmp_path, columns=NAMES).read_all().to_pylist()
        with kts.Log(tmp_path / "t-0") as log:
            log.append_rows({"key": [b"k1", b"new"], "value": [None, b"%d" % turn]})


@pytest.mark.parametrize("mode", ["append", "latest"])
def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    catalog: Catalog, table: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = type(catalog).commit_table, [0]

    def commit_table(self: Catalog, *given: Any) -> Any:
        """Every second answer is lost: the commit is there, or it is not."""
        lost[0] += 1
        if lost[0] % 4 == 3:
            raise CommitStateUnknownException("502 from a gateway, before the commit")
        answer = real(self, *given)
        if lost[0] % 2:
            raise CommitStateUnknownException("502 from a gateway, behind the commit")
        return answer

    with kts.Log(tmp_path / "t-0") as log:
        log.append_rows({"key": [b"%d" % key for key in range(5)], "value": [b"v"] * 5})
    sync(tmp_path, table, catalog=catalog, mode=mode, to_end=True)
    failed = 0
    with monkeypatch.context() as losing:
        losing.setattr(type(catalog), "commit_table", commit_table)
        for turn in range(8):
            with kts.Log(tmp_path / "t-0") as log:
                log.append_rows({"key": [b"1", b"k%d" % turn], "value": [b"v%d" % turn] * 2})
            try:
                sync(tmp_path, table, catalog=catalog, mode=mode, to_end=True)
            except LogStorageError:
                failed += 1
    sync(tmp_path, table, catalog=catalog, mode=mode, to_end=True)
    read = kts.latest if mode == "latest" else kts.scan
    assert rows(catalog, table) == read(tmp_path, columns=NAMES).read_all().to_pylist()
    assert 0 < failed < 8


def test_commits_beside_those_of_another_program_are_neither_lost_nor_doubled(
    catalog: Catalog, table: str, tmp_path: Path
) -> None:
    """Some seconds: what a race does can only be seen in races."""
    skip_if_commits_race(catalog)
    commits = scaled(8, 40)
    with kts.Log(tmp_path / "t-0") as log:
        log.append_rows({"value": [b"0"]})
    sync(tmp_path, table, catalog=catalog, to_end=True)
    name, done, errors = tuple(table.split(".")[1:]), threading.Event(), []

    def annotate() -> None:
        """What an owner does: properties, and rewrites of the rows that are there."""
        turn = 0
        while not done.is_set():
            turn += 1
            try:
                there = catalog.load_table(name)
                if turn % 2:
                    there.overwrite(there.scan().to_arrow())
                else:
                    with there.transaction() as change:
                        change.set_properties(turn=str(turn))
            except Exception as error:  # noqa: BLE001 - a commit of its own that lost the race
                errors.append(error)

    other = threading.Thread(target=annotate)
    other.start()
    try:
        for turn in range(1, commits + 1):
            with kts.Log(tmp_path / "t-0") as log:
                log.append_rows({"value": [b"%d" % turn]})
            sync(tmp_path, table, catalog=catalog, to_end=True)
    finally:
        done.set()
        other.join()
    found = [int(row["value"]) for row in rows(catalog, table)]
    assert found == [*range(commits + 1)]


def test_of_two_programs_that_sync_at_once_each_record_comes_once(catalog: Catalog, table: str, tmp_path: Path) -> None:
    skip_if_commits_race(catalog)
    with kts.Log(tmp_path / "t-0") as log:
        log.append_rows({"value": [b"0"]})
    sync(tmp_path, table, catalog=catalog, to_end=True)
    for turn in range(1, 4):
        with kts.Log(tmp_path / "t-0") as log:
            log.append_rows({"value": [b"%d" % turn]})
        refused = []

        def run() -> None:
            try:
                sync(tmp_path, table, catalog=catalog, to_end=True)
            except LogLockedError as error:
                refused.append(error)  # noqa: B023

        threads = [threading.Thread(target=run) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert [int(row["value"]) for row in rows(catalog, table)] == [*range(turn + 1)]


def test_a_new_table_is_partitioned_as_asked_and_keeps_it(catalog: Catalog, table: str, tmp_path: Path) -> None:
    asked = {"partition_by": ["topic", "hour(timestamp)", "bucket(4, key)", "truncate(2, value)"]}
    for _ in range(2):
        with kts.Log(tmp_path / "t-0") as log:
            log.append_rows({"key": [b"a"], "value": [b"v"]})
        assert sync(tmp_path, table, catalog=catalog, to_end=True, **asked).tables[0].records == 1  # type: ignore[arg-type]
        asked = {}
    spec = catalog.load_table(tuple(table.split(".")[1:])).spec()
    assert [(one.name, str(one.transform)) for one in spec.fields] == [
        ("topic", "identity"), ("timestamp_hour", "hour"), ("key_bucket", "bucket[4]"), ("value_trunc", "truncate[2]"),
    ]  # fmt: skip
    assert len(rows(catalog, table)) == 2


@pytest.mark.parametrize("wrong", ["days", "hours(timestamp)", "bucket(0, key)", "bucket(4, nothing)", "",
                                   "bucket(key)", "hour(4, timestamp)"])  # fmt: skip
def test_a_partition_field_is_a_column_or_a_transform_of_one(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="partition_by: expected a column, or year"):
        sync(logs(tmp_path), "lake.db.t", catalog=tmp_path / "c.sqlite", partition_by=[wrong])
    with pytest.raises(ValueError, match="partition_by: it is for Iceberg tables of all records"):
        sync(logs(tmp_path), tmp_path / "t", partition_by=["topic"])
    with pytest.raises(ValueError, match="partition_by: expected each column once, found topic twice"):
        sync(logs(tmp_path), "lake.db.t", catalog=tmp_path / "c.sqlite", partition_by=["topic", "truncate(2, topic)"])


@pytest.mark.parametrize("wrong", [["hour(topic)"], ["day", "bucket(3, headers)"], ["headers"]])
def test_a_partition_field_that_iceberg_refuses_is_named(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="partition_by: Iceberg makes no table with "):
        sync(logs(tmp_path), "lake.db.t", catalog=tmp_path / "c.sqlite", partition_by=wrong)


def test_a_configured_catalog_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import catalog as module
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.sqlite")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/w")
    monkeypatch.setattr(module, "_ENV_CONFIG", Config())
    done = sync(logs(tmp_path), "lake.db.t", catalog="lake", to_end=True)
    assert done.tables[0].created == f"file://{tmp_path}/w/db/t"
    with pytest.raises(ValueError, match="table: expected one of the catalog lake, found other"):
        sync(tmp_path / "logs", "other.db.t", catalog="lake")
    with pytest.raises(ValueError, match=r"expected an SQLite file \(./prod makes one\), a URI, or a catalog of"):
        sync(logs(tmp_path), "prod.db.t", catalog="prod")


def test_a_catalog_has_the_name_that_the_table_says(tmp_path: Path) -> None:
    other = load_catalog("other", uri=f"sqlite:///{tmp_path}/c.sqlite", warehouse=f"file://{tmp_path}/w")
    with pytest.raises(ValueError, match="table: expected one of the catalog other, found lake"):
        sync(logs(tmp_path), "lake.db.t", catalog=other)


def test_a_uri_that_nobody_answers_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(LogStorageError, match="http://127.0.0.1:9: pyiceberg could not read or write"):
        sync(logs(tmp_path), "lake.db.t", catalog="http://127.0.0.1:9")


def logs(folder: Path) -> Path:
    with kts.Log(folder / "logs" / "t-0") as log:
        log.append_rows({"value": [b"0"]})
    return folder / "logs"
