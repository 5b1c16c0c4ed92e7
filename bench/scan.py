"""What needs no record: a scan of the headers against the CRC alone, the greatest timestamp against decompression."""

from __future__ import annotations

import kts

from .corpora import CODECS, Corpus, corpora
from .floor import Floor
from .table import Report, cpu_seconds, medians, reached

SCAN_GOAL, MAX_GOAL = 0.80, 0.85
SCAN_HEADER = ["corpus", "CRC alone GiB/s", "scan_batches GiB/s", "share", "goal", "reached"]
MAX_HEADER = ["corpus", "decompress GiB/s", "library", "max_timestamp GiB/s", "share", "goal", "reached", "no CRCs"]


def scan_row(corpus: Corpus, goal: float | None, rounds: int) -> list[str]:
    floor = Floor(corpus)

    def scan() -> None:
        batches = kts.scan_batches(corpus.data)
        if batches.num_rows < len(corpus.entries):
            raise ValueError(f"{corpus.name}: {batches.num_rows} rows")

    taken = medians({"crc": cpu_seconds(floor.entry_crcs), "scan": cpu_seconds(scan)}, rounds)
    gib, share = len(corpus.data) / 2**30, taken["crc"] / taken["scan"]
    rates = [f"{gib / taken[name]:.2f}" for name in ("crc", "scan")]
    wanted = ["-", "-"] if goal is None else [f"{goal:.0%}", reached(share, goal)]
    return [corpus.name, *rates, f"{share:.0%}", *wanted]


def max_row(corpus: Corpus, rounds: int) -> list[str]:
    floor = Floor(corpus)
    last = kts.decode(corpus.front(1 << 20).data, columns=["offset"]).num_rows - 1
    found = kts.max_timestamp(corpus.front(1 << 20).data).offset
    if found != last:  # the corpora's timestamps rise
        raise ValueError(f"{corpus.name}: expected the greatest timestamp at offset {last}, found {found}")
    contenders = {
        "decompress": cpu_seconds(floor.decompression),
        "checked": cpu_seconds(lambda: kts.max_timestamp(corpus.data)),
        "unchecked": cpu_seconds(lambda: kts.max_timestamp(corpus.data, verify_crc=False)),
    }
    taken = medians(contenders, rounds)
    gib = sum(floor.sizes) / 2**30
    share, unchecked = (taken["decompress"] / taken[name] for name in ("checked", "unchecked"))
    return [
        corpus.name,
        f"{gib / taken['decompress']:.2f}",
        floor.decompressor,
        f"{gib / taken['checked']:.2f}",
        f"{share:.0%}",
        f"{MAX_GOAL:.0%}",
        reached(share, MAX_GOAL),
        f"{unchecked:.0%}",
    ]


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    scans, greatest = [], []
    for magic in (2, 1):
        for corpus in corpora(magic, "100 B", ["none", "lz4"], total_bytes, seed):
            scans.append(scan_row(corpus, SCAN_GOAL if corpus.name == "v2 none 100 B" else None, rounds))
            report.progress(" ".join(scans[-1]))
    report.table("Scan of headers and CRCs, against the CRC alone of the same ranges (C)", SCAN_HEADER, scans)
    for magic, codecs in ((1, list(CODECS[1:4])), (2, list(CODECS[1:]))):
        for size in ("100 B", "1 KB"):
            for corpus in corpora(magic, size, codecs, total_bytes, seed):
                greatest.append(max_row(corpus, rounds))
                report.progress(" ".join(greatest[-1]))
    report.table("Greatest timestamp of compressed sets, against decompression alone", MAX_HEADER, greatest)
