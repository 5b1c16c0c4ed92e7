"""What it costs to refuse the payloads of ``bombs``: a table on standard output.

Usage: measure_bombs.py [words of the names]. Columns, with tabs between: name, magic, call, error, its message, seconds
of CPU, MiB of memory above the start at the peak (the process's own high-water mark, set back before each call).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.damage import bombs

import kts
from kts.compression import CODEC_NAMES

CALLS = {
    "decode": lambda data: kts.decode(data, max_decompressed_bytes=bombs.BOUND),
    "views": lambda data: kts.decode(data, views=True, max_decompressed_bytes=bombs.BOUND),
    "iter_decode": lambda data: list(kts.iter_decode(data, max_decompressed_bytes=bombs.BOUND)),
    "max_timestamp": lambda data: kts.max_timestamp(data, max_decompressed_bytes=bombs.BOUND),
}


def memory(field: str) -> float:
    """MiB of /proc/self/status."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def main() -> None:
    for codec in range(1, 5):
        for magic in bombs.magics(codec):
            kts.decode(kts.encode({"value": [b"warm"]}, compression=CODEC_NAMES[codec], magic=magic))
    for bomb in bombs.bombs():
        if not all(word in bomb.name for word in sys.argv[1:]):
            continue
        payload = bomb.payload()
        for magic in bombs.magics(bomb.codec):
            data = bombs.entry(bomb.codec, magic, payload)
            for name, call in CALLS.items():
                Path("/proc/self/clear_refs").write_text("5")
                before, start = memory("VmRSS"), time.process_time()
                try:
                    call(data)
                    error = text = "none"
                except kts.KtsError as raised:
                    error, text = type(raised).__name__, str(raised)
                seconds = time.process_time() - start
                grown = memory("VmHWM") - before
                print(bomb.name, magic, name, error, text, f"{seconds:.3f}", f"{grown:.1f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
