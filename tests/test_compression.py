"""Kafka's codecs: what kts compresses, beside the bytes that Kafka 3.9.2 made of the same records on a JVM 17."""

from __future__ import annotations

import base64
import importlib.metadata
import subprocess
import sys
import zlib
from collections import Counter
from typing import NoReturn

import pytest
from support.golden import oracle_cases
from support.oracle.oracle_validator import validate
from support.reference import reference_codecs

import kts
from kts import _codec, compression
from kts.compression import GZIP, LZ4, SNAPPY, ZSTD

# Arrow's and zstandard's libraries give what lz4-java and zstd-jni give; snappy-java chooses some matches otherwise.
SAME = {GZIP, LZ4, ZSTD}


@pytest.mark.slow
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


def test_the_codecs_of_the_compiled_core_are_those_that_have_libraries() -> None:
    rows = [(codec.name.upper(), codec.magic < 2) for codec in compression.CODECS]
    assert list(_codec.CODECS) == rows
    assert [codec.number for codec in compression.CODECS] == list(range(len(rows)))


@pytest.mark.parametrize(("name", "number"), [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_codec_has_kafkas_number_and_zstd_needs_magic_2(name: str, number: int) -> None:
    assert compression.codec_id(name) == number
    for magic in (0, 1):
        if name == "zstd":
            with pytest.raises(kts.UnsupportedCompressionTypeError, match="zstd needs magic 2, found magic"):
                compression.codec_id(name, magic)
        else:
            assert compression.codec_id(name, magic) == number


def test_the_name_of_no_codec_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        ValueError, match="^compression: expected one of none, gzip, snappy, lz4, zstd, found 'brotli'$"
    ):
        compression.codec_id("brotli")


LEVELS = {GZIP: (1, 9), LZ4: (0, 16), ZSTD: (-131072, 22)}


@pytest.mark.slow
@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_up_to_the_last_gives_the_same_data_back(codec: int) -> None:
    lowest, highest = LEVELS[codec]
    data = b"a payload, " * 20_000
    for level in (None, lowest, 1, highest):
        payload = compression.compressor(codec, 2, level)(data)
        assert len(payload) < len(data) or level == lowest
        assert reference_codecs.decompress(codec, 2, payload) == data
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"level: .* takes {lowest} to {highest}, found {level}"):
            compression.compressor(codec, 2, level)


def test_snappy_has_no_levels() -> None:
    with pytest.raises(ValueError, match="level: snappy has no levels, found 1"):
        compression.compressor(SNAPPY, 2, 1)


CALLS = """
import collections, concurrent.futures, random, sys, zlib
import kts, kts.compression as compression
codec, how = sys.argv[1:]
data = kts.encode({"timestamp": list(range(3000)), "value": [b"%d" % i * 9 for i in range(3000)]}, compression=codec)
found = compression.addresses(compression.codec_id(codec))
if how == "without":
    found = ()
if how == "others":  # as of a library whose structures changed
    found = found[:1] * 2
compression.addresses = lambda codec: found
if how == "with" and codec == "snappy":
    sys.modules["cramjam"] = None  # which one thread would use
table = kts.decode(data)
random.seed(7)
outcomes = collections.Counter()
other = concurrent.futures.ThreadPoolExecutor(1)
decode = lambda *given: kts.decode(*given, verify_crc=False)
for number in range(400):
    broken = bytearray(data)
    for _ in range(random.choice([1, 1, 40])):
        broken[random.randrange(61, len(data))] = random.randrange(256)
    try:
        read = decode(bytes(broken)) if number % 2 else other.submit(decode, bytes(broken)).result()
        print(number, read.num_rows, zlib.crc32(b",".join(map(bytes, read["value"].to_pylist()))))
        outcomes["read"] += 1
    except kts.CorruptRecordError as error:
        print(number, error.reason, error.position, error.offset, error.record_index)
        outcomes[error.reason] += 1
assert outcomes["PAYLOAD"] > 50, outcomes
print(bool(found), table.num_rows, table["value"][2999].as_py())
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_codec_decompresses_with_and_without_its_librarys_functions(codec: str) -> None:
    """Two processes, because they are sought once in each: where a module hides them, Python's calls stand in."""
    if codec == "snappy" and not compression.addresses(SNAPPY):
        pytest.skip("needs libsnappy; get it by: sudo apt install libsnappy1v5")
    found = {}
    for how in ("with", "without", *["others"] * (codec == "gzip" and sys.platform == "linux")):
        done = subprocess.run([sys.executable, "-c", CALLS, codec, how], capture_output=True, text=True, check=True)
        found[how] = done.stdout.splitlines()
    rows = "3000 b'299929992999299929992999299929992999'"
    assert found["without"][-1] == f"False {rows}"
    assert found["with"][-1] in (f"True {rows}", f"False {rows}")
    if sys.platform == "linux":
        assert found["with"][-1] == f"True {rows}"
    for lines in found.values():
        assert lines[:-1] == found["without"][:-1]  # what damage is found, and where


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' wheels hide their libraries' functions")
@pytest.mark.parametrize(("codec", "package"), [(GZIP, "isal"), (LZ4, "lz4"), (ZSTD, "zstandard")])
def test_the_installed_package_has_the_functions_that_the_core_calls(
    codec: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them the answers stay, but gzip is slower by a third, and two threads wait for each other."""
    release = f"{package} {importlib.metadata.version(package)}"
    rows = list(compression.CODECS)
    functions = ", ".join(rows[codec].functions)
    assert compression.addresses(codec), f"{release} no longer shows {functions}"

    def called() -> NoReturn:
        raise ImportError(f"{release} shows {functions}, but the core found that they do not do what it expects")

    rows[codec] = rows[codec]._replace(decompressor=called)
    monkeypatch.setattr(compression, "CODECS", tuple(rows))
    data = kts.encode({"timestamp": [1], "value": [b"a value, " * 100]}, compression=rows[codec].name)
    assert kts.decode(data)["value"].to_pylist() == [b"a value, " * 100]
