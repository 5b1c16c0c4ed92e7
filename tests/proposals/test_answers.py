"""An answer tells what was read for it, and a lookup how large its indexes are."""

from __future__ import annotations

from support.golden import golden
from support.reference import reference

import kts
from kts.proposals.answers import ENTRY_BYTES
from kts.proposals.comparing import lookups

ORDERS = golden("demo", "orders")


def test_an_answer_says_what_was_read_for_it() -> None:
    log = kts.open(ORDERS.partition_dir("orders-0"))
    bases = [segment.base_offset for segment in log.segments]
    shipped, continuing, buckets, minutes = lookups(log)
    top = log.max_timestamp()
    number = max(i for i, base in enumerate(bases) if base <= top.offset)
    for way in (shipped, continuing, buckets, minutes):
        answer = way.search(log, top.timestamp_ms)
        assert answer.found == top
        assert (answer.segments_skipped, answer.segments_read) == (number, 1)
        assert answer.start.base_offset == bases[number]
        assert 0 < answer.bytes_read <= log.segments[number].size_bytes
        assert answer.batches_read >= 1 and answer.records_read >= 1
    first = continuing.search(log, 0)
    assert first.found.offset == 0 and first.segments_read == 1 and first.batches_read == 1
    # Nothing is that young: two of them know without reading a byte.
    nothing = [way.search(log, top.timestamp_ms + 60_001) for way in (continuing, buckets, minutes)]
    assert [answer.found for answer in nothing] == [None] * 3
    assert nothing[0].bytes_read > 0 and nothing[1].bytes_read == nothing[2].bytes_read == 0


def test_the_cost_is_that_of_the_entries() -> None:
    path = ORDERS.partition_dir("orders-0")
    log = kts.open(path)
    ways = {way.name: way.index_size(log) for way in lookups(log)}
    sizes = sum(file.stat().st_size for file in path.glob("*.timeindex"))
    assert ways["shipped-search"] == ways["continuing-search"]
    assert ways["shipped-search"].file_bytes == sizes
    scanned = {one: reference.scan_batches(one.read_bytes()) for one in path.glob("*.log")}
    minutes = {(one, batch["maxTimestamp"] // 60_000) for one, batches in scanned.items() for batch in batches}
    assert ways["minute-map"].entries == len(minutes)
    for name in ("bucket-index", "minute-map"):
        size = ways[name]
        assert size.file_bytes == size.memory_bytes == size.entries * ENTRY_BYTES
    coarse = {way.name: way.index_size(log) for way in lookups(log, interval_ms=86_400_000)}
    assert coarse["bucket-index"].entries < ways["bucket-index"].entries
    assert coarse["minute-map"] == ways["minute-map"]
