"""Cases of the recorded verdicts' families that nobody recorded, from a seed."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from support.golden import oracle_cases
from support.sets import fresh_sets

Case = dict[str, Any]
NEVER = 2**63 - 1
LIMITS = (NEVER, NEVER, NEVER, 0, 1000, 3_600_000, 10**9, NEVER - 1, 2**62)
OFFSETS = (0, 0, 1, 100, 10**6, 2**31 - 1, 2**31, 2**40, 2**62)
CODECS = {"0.10.2": ("uncompressed", "gzip", "snappy", "lz4"), "3.9": ("uncompressed", "gzip", "snappy", "lz4", "zstd")}


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pool_of(name: str) -> list[bytes]:
    """The sets of a recorded file."""
    return [base64.b64decode(case["in"]["bytes"]) for case in oracle_cases(name)]


# What earlier runs found: keys and values are passed over in place only where they are compressed.
FOUND: dict[str, list[Case]] = {
    "0.10.2": [],
    "3.9": [
        {
            "bytes": (
                "gAAAAAAAAAAAAAA7AAAABQLiqanYAAAAAAAAf/////////9/////////////////////////////AAAAARIAAAAGGeH6AAAAAAAAAAAA"
                "AAAAAFX/////AuJ20Q0AAwAAAAEAAAFdPveX/AAAAV0+95vp//////////////////8AAAACBA=="
            ),
            "now": 1500000000001,
            "start_offset": 2**31 - 1,
            "ts_type": "LogAppendTime",
            "magic": 2,
            "compacted": False,
            "before_max_ms": NEVER,
            "after_max_ms": 3_600_000,
            "leader_epoch": 77,
            "source_codec": 2,
            "target_codec": 2,
        }
    ],
}


def validators(rng: random.Random, gen: str) -> Iterator[Case]:
    """Appends of leaders."""
    yield from FOUND[gen]
    recorded = [case["in"] for case in oracle_cases(f"validator-{gen}")]
    pool = pool_of(f"validator-{gen}")
    codecs = CODECS[gen]
    magics = (0, 1, 1) if gen == "0.10.2" else (0, 1, 2, 2, 2, 2)
    while True:
        now = rng.choice(recorded)["now"]
        data = fresh_sets.fresh(rng, pool, now, magics)
        case: Case = {
            "bytes": text(data),
            "now": rng.choice((0, 1, 10, NEVER, NEVER - 1, -1)) if rng.random() < 0.03 else now,
            "start_offset": rng.choice(OFFSETS),
            "ts_type": rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            "magic": rng.choice(magics),
            "compacted": rng.random() < 0.25,
        }
        if gen == "0.10.2":
            case["diff_max_ms"] = rng.choice(LIMITS)
        else:
            case |= {"before_max_ms": rng.choice(LIMITS), "after_max_ms": rng.choice(LIMITS)}
            case["leader_epoch"] = rng.choice((0, 0, 3, 77, 2**31 - 1))
            if rng.random() < 0.15:
                case["origin"] = rng.choice(("COORDINATOR", "REPLICATION"))
        if rng.random() < 0.15:
            case |= {"source_codec": rng.randrange(len(codecs)), "target_codec": rng.randrange(len(codecs))}
        else:
            case["compression_type"] = rng.choice(("producer", "producer", *codecs))
            entries, _ = fresh_sets.entries_of(data)
            if entries and rng.random() < 0.05:
                case["max_message_bytes"] = max(len(rng.choice(entries)) + rng.choice((-1, 0, 1)), 0)
        yield case


# What a topic of a log case is set to.
SETTINGS: dict[str, tuple[object, ...]] = {
    "segment.bytes": (150, 300, 500, 1000, 2000, 10000),
    "segment.ms": (1, 100, 1000, 10000, 604_800_000),
    "segment.jitter.ms": (0,),
    "retention.ms": (-1, -1, 0, 500, 5000, 604_800_000),
    "retention.bytes": (-1, -1, 0, 1, 300, 700, 5000),
    "index.interval.bytes": (0, 0, 1, 50, 200, 4096),
    "segment.index.bytes": (12, 24, 36, 100, 1000, 8192),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "producer", "producer", "uncompressed", "gzip"),
    "file.delete.delay.ms": (0, 1000, 60000),
    "cleanup.policy": ("delete", "delete", "delete", "compact", "compact,delete"),
    "max.message.bytes": (120, 400, 1_000_000, 1_000_000, 1_000_000),
}
LIMIT_SETTINGS = {
    "0.10.2": ("message.timestamp.difference.max.ms",),
    "3.9": ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
}
FORMATS = {"0.10.2": ("0.10.0", "0.10.0", "0.10.0", "0.9.0"), "3.9": ("3.0", "3.0", "3.0", "3.0", "0.10.0", "0.9.0")}
MAGIC = {"0.9.0": 0, "0.10.0": 1, "3.0": 2}
EVERYTHING = (
    ("append", 40), ("append_follower", 7), ("clock", 25), ("retention", 6), ("fetch_ts", 10), ("roll", 3),
    ("truncate", 4), ("truncate_fully", 1), ("read", 4), ("reopen", 8), ("start_offset", 3),
)  # fmt: skip


class Partition:
    """What a case has done to its log so far, as far as one can tell from outside."""

    def __init__(self, rng: random.Random, gen: str, pool: fresh_sets.Pool, tame: bool) -> None:
        self.rng, self.gen, self.pool = rng, gen, pool
        self.now = rng.choice((1_500_000_000_000, 1_500_000_000_001, 1_520_131_200_000, 1_700_000_000_000))
        self.end = 0
        version = rng.choice(FORMATS[gen])
        self.magic = MAGIC[version]
        self.config = {name: str(rng.choice(values)) for name, values in SETTINGS.items()}
        self.config["message.format.version"] = version
        for name in LIMIT_SETTINGS[gen]:
            self.config[name] = str(rng.choice((NEVER, NEVER, NEVER, NEVER, 1000, 100_000)))
        self.tame = tame

    def times(self) -> list[int]:
        rng, near = self.rng, (0, 0, 1, -1, 50, -50, 900, -999, 1000, -5000, 100_000)
        most = (0, 1, -1, -2, -3, -4, -5, -6, NEVER, -NEVER, 10**12)
        return [
            rng.choice(most) if rng.random() < 0.15 else self.now + rng.choice(near)
            for _ in range(rng.randrange(1, 10))
        ]

    def set(self, follower: bool = False) -> bytes:
        """What a producer sends; a tame leader has only sound offsets to give to its followers."""
        rng = self.rng
        magic = self.magic if rng.random() < 0.85 else rng.choice((0, 1, 2) if self.gen == "3.9" else (0, 1))
        client = "java" if follower and self.tame else ""
        style = fresh_sets.Style(magic, rng.choice((0, 0, 1, 2, 3)), self.now, client)
        data = fresh_sets.sent(rng, style, 0) if self.tame or rng.random() < 0.9 else rng.choice(self.pool)
        if not self.tame and rng.random() < 0.3:
            data = fresh_sets.changed(rng, data, self.pool)
        if not self.tame and rng.random() < 0.05:
            data = b"".join(data for _ in range(rng.randrange(1, 4)))
        self.end += max(fresh_sets.how_many(data), 1)
        return data

    def offset(self) -> int:
        rng = self.rng
        return rng.choice((0, 1, self.end, max(self.end - 1, 0), self.end + 1, rng.randrange(self.end + 2)))

    def step(self) -> Case:
        rng = self.rng
        do = rng.choices([one for one, _ in EVERYTHING], [weight for _, weight in EVERYTHING])[0]
        if do == "start_offset" and self.gen != "3.9":
            do = "append"
        step: Case = {"do": do}
        if do == "append":
            step["bytes"] = text(self.set())
        elif do == "append_follower":
            start = self.end + rng.choice((0, 0, 0, 1, 5, -1, 100, 2**31))
            self.end = max(start, 0)
            step["bytes"] = text(fresh_sets.moved(self.set(follower=True), max(start, 0)))
        elif do == "clock":
            self.now += rng.choice((0, 1, 10, 50, 100, 101, 300, 600, 1000, 1001, 5000, 60_000, 10**7))
            step["now"] = self.now
        elif do == "fetch_ts":
            step["ts"] = self.times()
        elif do in ("truncate", "truncate_fully", "start_offset"):
            step["offset"] = self.offset()
            if do != "start_offset":
                self.end = min(self.end, step["offset"]) if do == "truncate" else step["offset"]
        elif do == "read":
            step |= {"offset": self.offset(), "max": rng.choice((0, 1, 50, 120, 1000)), "min_one": rng.random() < 0.5}
        elif do == "reopen":
            step |= self.reopen()
        return step

    def reopen(self) -> Case:
        rng = self.rng
        clean = rng.random() < 0.5
        step: Case = {"clean": clean} if clean else {"clean": False, "recovery_point": 0}
        if not clean and rng.random() < 0.3:
            step["recovery_point"] = rng.randrange(self.end + 1)
        if rng.random() < 0.4:
            kinds = ("delete", "delete", "cut", "append", "zeros", "flip")
            kinds = kinds[:2] if clean else kinds[:5] if self.tame else kinds
            how: Case = {"op": rng.choice(kinds), "file": "log"}
            if how["op"] == "delete":
                how["file"] = rng.choice(("index", "timeindex"))
            elif how["op"] == "append":
                how["data"] = text(rng.randbytes(rng.randrange(1, 60)))
            elif how["op"] == "flip":
                how |= {"at": rng.randrange(2000), "mask": 1 << rng.randrange(8)}
            else:
                how["n"] = rng.choice((1, 5, 12, 17, 40, 100))
            step["damage"] = [how]
        return step


def logs(rng: random.Random, gen: str, tame: float = 0.6) -> Iterator[Case]:
    """Steps on whole logs; ``tame`` is the share of those that only see what producers send, and no flipped bits."""
    pool = pool_of(f"validator-{gen}")
    while True:
        one = Partition(rng, gen, pool, rng.random() < tame)
        first = {"now": one.now, "config": one.config}
        yield first | {"steps": [one.step() for _ in range(rng.randrange(4, 45))]}


FAMILIES: dict[str, Callable[[random.Random, str], Iterator[Case]]] = {
    "validator": validators,
    "log": logs,
    "tame log": partial(logs, tame=1),
}
