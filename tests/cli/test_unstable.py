"""Open transactions in what commands print, and what a read that ends at one says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import golden
from support.processes.cli_runs import lines, run

import kts

ORDERS = golden("demo", "orders")
SINCE = 1_700_000_000_000


def hanging(folder: Path) -> Path:
    """Producers 4711 and 7 have open transactions from offsets 1 and 3 on; that of 9 was committed."""
    path = folder / "t-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    parts = []
    for offset, producer in enumerate((-1, 4711, 9, 7, 4711)):
        whose = {"producer_id": producer, "producer_epoch": 0, "base_sequence": offset, "transactional": True}
        rows = {"timestamp": [SINCE + 1000 * offset], "value": [b"v"]}
        parts.append(kts.encode(rows, base_offset=offset, **(whose if producer >= 0 else {})))  # type: ignore[arg-type]
    marker = {"timestamp": [SINCE + 9000], "key": [b"\0\0\0\1"], "value": [bytes(6)]}
    parts.append(kts.encode(marker, base_offset=5, producer_id=9, producer_epoch=0, transactional=True, control=True))
    path.write_bytes(b"".join(parts))
    return folder


OPEN = [
    "t-0                  1      4711          1  2023-11-14T22:13:21.000Z",
    "t-0                  1         7          3  2023-11-14T22:13:23.000Z",
]


@pytest.mark.parametrize("command", ["ls", "stats"])
def test_a_hanging_transaction_shows_with_its_producer_and_since_when(tmp_path: Path, command: str) -> None:
    shown = run(command, hanging(tmp_path))
    assert [line for line in shown.stdout.splitlines() if line in OPEN] == OPEN
    assert "a read_committed consumer reads up to the last stable offset" in shown.stderr
    assert max(map(len, shown.stdout[shown.stdout.index("partition  last stable") :].splitlines())) < 80
    real = run(command, golden("3.9.2", "txn-open").partition_dir("txn-open-0"))
    [line] = [line for line in real.stdout.splitlines() if line.startswith("txn-open-0 ")][-1:]
    assert line.split()[1:4] == ["18", "3", "18"]
    whole = run(command, ORDERS.log_dir)
    assert "last stable" not in whole.stdout and whole.stderr == ""


def test_the_json_of_ls_has_the_last_stable_offset_and_the_open_transactions(tmp_path: Path) -> None:
    [row] = lines("ls", hanging(tmp_path), "--json")
    assert (row["lastStableOffset"], row["logEndOffset"]) == (1, 6)
    assert row["openTransactions"] == [
        {"producerId": 4711, "firstOffset": 1, "firstTimestamp": SINCE + 1000},
        {"producerId": 7, "firstOffset": 3, "firstTimestamp": SINCE + 3000},
    ]


def test_ls_reads_no_large_log_for_its_open_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without snapshots of producers all headers would be read; stats does that once more, up to its own bound."""
    folder = hanging(tmp_path)
    monkeypatch.setattr("kts.cli.ls.MOST_BYTES", 400)
    [row] = lines("ls", folder, "--json")
    assert (row["lastStableOffset"], row["openTransactions"]) == (None, None)
    assert "last stable" not in run("ls", folder).stdout and "last stable" in run("stats", folder).stdout
    monkeypatch.setattr("kts.cli.stats.MOST_UNSTABLE_BYTES", 400)
    assert "t-0: whether transactions are open is not known" in run("stats", folder).stderr


@pytest.mark.parametrize("options", [[], ["--tail", "2"], ["--jobs", "2"], ["--from", "2023-01-01"]], ids=" ".join)
def test_read_committed_says_once_what_it_leaves_out(tmp_path: Path, options: list[str]) -> None:
    folder = hanging(tmp_path)
    given = ["dump", folder, "--isolation", "read_committed", "--format", "csv", "--columns", "offset", *options]
    shown = run(*given)
    assert shown.stdout.split() == ['"offset"', "0"]
    assert shown.stderr == (
        f"kts: warning: {folder / 't-0'}: read_committed ends at the last stable offset 1, and the log at 6: the"
        " transaction of producer 4711 is open since offset 1, 2023-11-14T22:13:21.000Z; 1 more are open\n"
    )
    assert run(*given, "--offsets", "0:1").stderr == "" if not options else True
    assert "read_committed" not in run(*given[:2], "--format", "csv").stderr
