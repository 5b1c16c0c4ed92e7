"""Every byte string that once was read wrong: one file each, a sentence and the bytes in hexadecimal."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import TESTS
from support.reference.agreement import check

FILES = sorted((TESTS / "regressions").glob("*.txt"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_what_was_once_read_wrong_is_read_as_the_reference_says(path: Path) -> None:
    sentence, *lines = path.read_text(encoding="utf-8").splitlines()
    assert sentence.startswith("# ") and sentence.endswith(".")
    check(bytes.fromhex("".join(lines)), sentence)
