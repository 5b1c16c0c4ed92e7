"""What kts compresses anew on append, beside the bytes that Kafka 3.9.2 made of the same records on a JVM 17."""

from __future__ import annotations

import base64
import zlib
from collections import Counter

from support.golden import oracle_cases
from support.oracle.oracle_validator import validate

from kts.compression import GZIP, LZ4, SNAPPY, ZSTD

# Arrow's and zstandard's libraries give what lz4-java and zstd-jni give; snappy-java chooses some matches otherwise.
SAME = {GZIP, LZ4, ZSTD}


def test_gzip_lz4_and_zstd_have_the_bytes_that_java_writes() -> None:
    counts: Counter[tuple[int, bool]] = Counter()
    for case in oracle_cases("validator-3.9"):
        out = case["out"]
        if "bytes" not in out or out["byte_exact"]:
            continue
        codec = case["in"].get("target_codec", out.get("analysis", {}).get("target_codec"))
        answer = validate(case["in"] | {"id": case["id"], "gen": case["gen"]})
        same = base64.b64decode(answer["bytes"]) == base64.b64decode(out["bytes"])
        if codec == GZIP and "ng" in zlib.ZLIB_RUNTIME_VERSION:  # another library by name
            continue
        assert same or codec not in SAME, f"{case['id']}: codec {codec}"
        counts[codec, same] += 1
    print(dict(counts))
    assert all(counts[codec, True] > 50 for codec in SAME - ({GZIP} if "ng" in zlib.ZLIB_RUNTIME_VERSION else set()))
    assert counts[SNAPPY, True] > counts[SNAPPY, False]
