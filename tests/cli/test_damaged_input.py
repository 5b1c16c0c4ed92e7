"""Commands over damaged partitions: an exit code and a reason, never a traceback."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.golden import golden_partitions

import kts
from kts.cli import main


def spoil(path: Path, rng: random.Random) -> None:
    """Change a file: a bit, its end, or a field at an extreme."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data = data[:place]
    elif kind == 2:
        data += rng.randbytes(rng.randrange(1, 60))
    else:
        data[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7])
    path.write_bytes(data)


READING = (
    ["ls"],
    ["ls", "--segments"],
    ["dump", "--format", "csv"],
    ["dump", "--isolation", "read_committed", "--format", "csv"],
    ["dump", "--tail", "2", "--format", "csv"],
    ["batches"],
    ["stats"],
    ["stats", "--timestamps"],
    ["offset-for", "--time", "2100-01-01"],
    ["offset-for", "--time", "2100-01-01", "--shipped-search"],
    ["retention"],
    ["study"],
    ["plot", "-o", "OUT.svg"],
)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
@pytest.mark.parametrize("kind", ["an incomplete entry", "another system's file", "less than a header"])
def test_every_reading_command_tells_what_it_leaves_out_at_the_end(
    tmp_path: Path, arguments: list[str], kind: str
) -> None:
    whole = kts.encode({"value": [b"v"], "timestamp": [1_700_000_000_000]})
    cut, other = (
        kts.encode({"value": [b"w"]}, base_offset=1)[:-5],
        bytes(8) + b"\x45\0\0\0" + bytes(4) + b"\1" + b"7" * 3000,
    )
    data, left = {
        "an incomplete entry": (whole + cut, len(cut)),
        "another system's file": (other, len(other)),
        "less than a header": (whole[:9], 9),
    }[kind]
    path = tmp_path / ("x.log" if kind == "another system's file" else f"{0:020}.log")
    path.write_bytes(data)
    given = [str(tmp_path / "out.svg") if one == "OUT.svg" else one for one in arguments]
    result = CliRunner().invoke(main, [*given, str(path)])
    assert result.exit_code == 0, result.output
    told = f"{path}: {left} bytes at position {len(data) - left} are left out: "
    assert result.stderr.count(told) == 1, result.stderr


@pytest.mark.parametrize("arguments", [["batches"], ["stats"], ["plot", "-o", "OUT.svg"], ["study"]], ids=" ".join)
def test_headers_end_at_damage_where_records_do(tmp_path: Path, arguments: list[str]) -> None:
    """A size that reaches past the end, with sound batches behind it or a segment: an error, as in a dump."""
    folder, batches = tmp_path / "t-0", [kts.encode({"value": [b"v"]}, base_offset=offset) for offset in range(4)]
    folder.mkdir()
    log, behind = folder / f"{0:020}.log", folder / f"{4:020}.log"
    given = [str(tmp_path / "out.svg") if one == "OUT.svg" else one for one in arguments]
    large = batches[1][:8] + (10**6).to_bytes(4, "big") + batches[1][12:]
    for data, following in ((batches[0] + large + batches[2], b""), (b"".join(batches)[:-3], b"x")):
        log.write_bytes(data)
        if following:
            behind.write_bytes(kts.encode({"value": [b"v"]}, base_offset=4))
        dumped = CliRunner().invoke(main, ["dump", "--format", "csv", str(folder)])
        result = CliRunner().invoke(main, [*given, str(folder)])
        assert (result.exit_code, result.stderr.splitlines()[-1:]) == (3, dumped.stderr.splitlines()[-1:])


@pytest.mark.slow
def test_damage_of_any_kind_gives_an_exit_code_and_never_a_traceback(tmp_path: Path, rng: random.Random) -> None:
    everything = [
        (scenario, name)
        for scenario, name in golden_partitions()
        if scenario.version != "demo" and any(log.stat().st_size for log in scenario.logs(name))
    ]
    output = tmp_path / "x.parquet"
    for number in range(40):
        scenario, name = rng.choice(everything)
        folder = tmp_path / str(number) / name
        shutil.copytree(scenario.partition_dir(name), folder)
        spoil(rng.choice(sorted(path for path in folder.iterdir() if path.stat().st_size)), rng)
        for arguments in (
            ["ls", "--segments"],
            ["dump", "--on-error", rng.choice(["raise", "skip"]), "-o", output],
            ["dump", "--from", "2020-01-01", "--strict"],
            ["batches", "--json"],
            ["stats"],
            ["offset-for", "--time", "2020-01-01", "--explain"],
        ):
            result = CliRunner().invoke(main, [*map(str, arguments), str(folder)])
            assert result.exception is None or isinstance(result.exception, SystemExit), (scenario, arguments)
            assert result.exit_code in ((0, 1, 3) if "skip" in arguments else (0, 3)), (
                scenario,
                arguments,
                result.stderr,
            )
            assert bool(result.exit_code) <= bool(result.stderr)
        assert CliRunner().invoke(main, ["verify", "--deep", str(folder)]).exit_code in (0, 1)
