"""Fill a disk with a log and free it again, many times; run in a process of its own, see storage/test_full_disk.py.

    full_disk.py DIRECTORY [BYTES]

BYTES: no file may become longer (a limit of the process, where no disk can be mounted); else the disk itself is small.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import sys

import kts
from kts.offline.verify import verify

CYCLES = 20
SEGMENT_BYTES = 100_000
SETTINGS = {
    "segment.bytes": SEGMENT_BYTES,
    "segment.index.bytes": 4096,
    "retention.bytes": 2 * SEGMENT_BYTES,
    "file.delete.delay.ms": 0,
}


class Filler:
    """Appends numbered records and knows which were acknowledged."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "t-0")
        self.ballast = os.path.join(directory, "ballast")
        self.random = random.Random(int(os.environ.get("KTS_SEED", "0")))
        self.next = 0
        self.full = self.closed = self.ballast_used = 0
        self.log = self.start()

    def start(self) -> kts.Log:
        return kts.Log(self.path, SETTINGS)

    def append(self) -> None:
        count = self.random.randrange(1, 5)
        values = [b"%d " % (self.next + n) + self.random.randbytes(self.random.randrange(9000)) for n in range(count)]
        codec = self.random.choice(["none", "lz4"])
        self.log.append(kts.encode({"value": values}, compression=codec, batch_bytes=2**20))
        self.next += count

    def fill(self, errors: tuple[int, ...]) -> None:
        """Append until the disk is full."""
        try:
            for _ in range(10_000):
                self.append()
        except kts.LogStorageError as error:
            if error.errno not in errors:
                raise
            self.full += 1
        else:
            raise AssertionError("the disk is never full")

    def look(self) -> None:
        """A reader sees each acknowledged record once, in order, and nothing else."""
        with kts.open(self.path) as log:
            assert isinstance(log, kts.PartitionLog)
            start = log.log_start_offset
            values = log.scan(columns=["value"]).read_all().column(0).to_pylist()
        numbers = [int(value.split(b" ", 1)[0]) for value in values]
        assert numbers == list(range(start, self.next)), f"{numbers[:3]}..{numbers[-3:]}, expected {start}..{self.next}"

    def free(self) -> None:
        """Let retention make room, with the ballast's help where it needs some itself."""
        try:
            self.delete()
        except kts.LogStorageError as error:
            if error.errno != errno.ENOSPC:
                raise
            os.unlink(self.ballast)
            self.ballast_used += 1
            self.delete()
        if not os.path.exists(self.ballast):
            self.load()

    def delete(self) -> None:
        if self.log.closed:
            self.closed += 1
            self.log = self.start()
        self.log.delete_old_segments()

    def load(self) -> None:
        with open(self.ballast, "wb") as file:
            file.write(bytes(65536))


def main(directory: str, limit: str = "") -> None:
    filler = Filler(directory)
    filler.load()
    if limit:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
    for _ in range(CYCLES):
        filler.fill((errno.EFBIG,) if limit else (errno.ENOSPC,))
        filler.look()
        if limit:
            if filler.log.closed:
                filler.closed += 1
                filler.log = filler.start()
            filler.log.roll()  # a new file has room
        filler.free()
        filler.look()
        filler.append()
        filler.look()
    filler.log.close()
    findings = [str(finding) for finding in verify(directory, deep=True)]
    assert not findings, findings
    with filler.start() as log:
        assert log.log_end_offset == filler.next
    filler.look()
    print(f"full {filler.full} times, closed {filler.closed}, ballast {filler.ballast_used}, records {filler.next}")


if __name__ == "__main__":
    main(*sys.argv[1:])
