"""Which store has a path."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from kts.errors import LogStorageError
from kts.store import addresses
from kts.store.source import files, source_of


@pytest.mark.slow
def test_buckets_are_loaded_for_an_address_and_not_for_a_path_of_this_machine(tmp_path: Path) -> None:
    program = f"""
import sys, kts
from kts.store import addresses
from kts.store.source import files, source_of
with kts.Log({str(tmp_path / "t-0")!r}) as log:
    log.append(kts.encode({{"timestamp": [5], "value": [b"x"]}}))
assert kts.scan({str(tmp_path)!r}, starting_timestamp=0).read_all().num_rows == 1
assert not [name for name in sys.modules if name.startswith("kts.remote")]
assert addresses.is_served("s3://logs/t-0") and not addresses.is_served("ftp://logs/t-0")
assert "kts.remote.tiers" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("/a/b", None),
        ("a:b", None),
        ("S3://b/key", "s3"),
        ("tier+file:///a", "tier+file"),
        ("1://x", None),
        ("a/b://c", None),
    ],
)
def test_a_scheme_is_what_stands_before_the_first_colon_and_two_slashes(path: str, scheme: str | None) -> None:
    assert addresses.scheme_of(path) == scheme


def test_an_address_of_a_file_is_a_path_of_this_machine_and_of_no_other() -> None:
    assert addresses.plain("file:///a%20b/c") == addresses.plain("file://localhost/a%20b/c") == "/a b/c"
    assert addresses.plain("/a%20b") == "/a%20b"
    with pytest.raises(LogStorageError, match="found the host other"):
        addresses.plain("file://other/a")


def test_what_no_store_serves_and_what_needs_this_machine_is_refused() -> None:
    assert source_of("a/b") is files
    with pytest.raises(LogStorageError, match="nosuch:// is not supported; expected a path or one of "):
        source_of("nosuch://b/key")
    with pytest.raises(LogStorageError, match="writing needs a path of this machine, found a s3:// address") as error:
        addresses.require_local("s3://b/key", "writing")
    assert error.value.errno == errno.EROFS
