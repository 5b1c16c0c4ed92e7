"""The log directories that `kts demo` writes, and the program that packs them: `python -m support.demo` in tests/."""

from __future__ import annotations

import gzip
import json
import tarfile

from support import TESTS

SOURCE = TESTS / "data/golden/demo"
PACKED = TESTS.parent / "kts/cli/demo.tar.gz"


def content() -> dict[str, tuple[bytes, int]]:
    """Each file by its name in the archive: its bytes, and its modification time in seconds, as the brokers left it.

    What says what a consumer read lies beside the partitions, and stays out.
    """
    times = {}
    for meta in SOURCE.glob("*/meta.json"):
        for name, partition in json.loads(meta.read_text(encoding="utf-8"))["partitions"].items():
            times |= {f"{meta.parent.name}/{name}/{log}": ms for log, ms in partition["logModifiedMs"].items()}
    found = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in sorted(SOURCE.glob("*/*/*"))}
    newest = {name.rpartition("/")[0]: ms for name, ms in sorted(times.items())}
    last = max(times.values())
    return {
        name: (data, times.get(name, newest.get(name.rpartition("/")[0], last)) // 1000) for name, data in found.items()
    }


def pack() -> None:
    with gzip.GzipFile(PACKED, "wb", mtime=0) as out, tarfile.open(fileobj=out, mode="w") as packed:
        for name in content():
            member = packed.gettarinfo(SOURCE / name, name)
            member.mode, member.uid, member.gid, member.uname, member.gname = 0o644, 0, 0, "", ""
            member.mtime = content()[name][1]
            with (SOURCE / name).open("rb") as file:
                packed.addfile(member, file)


if __name__ == "__main__":
    pack()
