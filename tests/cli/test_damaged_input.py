"""Commands over damaged partitions: an exit code and a reason, never a traceback."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.golden import golden_partitions

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
