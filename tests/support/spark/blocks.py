"""A program that runs blocks of Python one after the other in one Spark session, because to start one takes seconds.

stdin has the blocks by name, as JSON. It prints as JSON what each has printed, and the error with which it ended.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback


def run(name: str, code: str) -> tuple[str, str]:
    """What a block prints, and its error."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        except Exception:
            return said.getvalue(), traceback.format_exc()
    return said.getvalue(), ""


if __name__ == "__main__":
    print(json.dumps({name: run(name, code) for name, code in json.load(sys.stdin).items()}))
