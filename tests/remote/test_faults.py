"""Servers that answer wrongly or slowly: what kts says is right, or a clear error in time."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from support import TESTS
from support.buckets.doors import files, reach, refresh
from support.buckets.proxy import Answer, Asked, Change, Proxy
from support.buckets.s3 import TestBucket
from support.golden import PATIENCE_S

import kts
from kts.offline.verify import verify
from kts.remote import buckets
from kts.remote.threads import Limit

pytestmark = pytest.mark.slow  # a real server
CLICKS = TESTS / "data/golden/demo/clicks"
XML = [("Content-Type", "application/xml")]


@pytest.fixture
def clicks(bucket: TestBucket) -> Iterator[str]:
    """A log directory in a bucket that gives up soon."""
    there = bucket.put_folder(CLICKS, "clicks")
    options = {"endpoint_override": bucket.proxy.endpoint, "max_attempts": 1, "time_limit": 20}
    reach(there, options)
    yield there
    bucket.forget()


def error(status: int, code: str) -> Answer:
    return Answer(status, XML, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def from_the(number: int, change: Change) -> Change:
    """The change, for all answers from one on."""
    seen = count()
    return lambda asked, answer: change(asked, answer) if next(seen) >= number else None


def of_objects(change: Change) -> Change:
    return lambda asked, answer: change(asked, answer) if asked.method == "GET" and asked.range else None


def of_lists(change: Change) -> Change:
    return lambda asked, answer: change(asked, answer) if asked.lists else None


def other_range(asked: Asked, answer: Answer) -> Answer:
    moved = answer.body[1:] + answer.body[:1]
    return Answer(206, answer.headers, moved)


FAULTS: dict[str, Change] = {
    "length too large": of_objects(
        lambda asked, answer: Answer(answer.status, answer.headers, answer.body, length=len(answer.body) + 10)
    ),
    "length too small": of_objects(
        lambda asked, answer: Answer(answer.status, answer.headers, answer.body, length=len(answer.body) // 2)
    ),
    "another range": of_objects(other_range),
    "an empty range": of_objects(lambda asked, answer: Answer(206, answer.headers, b"")),
    "a longer range": of_objects(lambda asked, answer: Answer(206, answer.headers, answer.body + answer.body)),
    "forbidden": of_objects(lambda asked, answer: error(403, "AccessDenied")),
    "forbidden in the middle": of_objects(from_the(3, lambda asked, answer: error(403, "AccessDenied"))),
    "slow down": from_the(2, lambda asked, answer: error(503, "SlowDown")),
    "too many requests": from_the(2, lambda asked, answer: error(429, "TooManyRequests")),
    "gone": of_objects(lambda asked, answer: error(404, "NoSuchKey")),
    "redirect": of_objects(lambda asked, answer: Answer(307, [("Location", "http://127.0.0.1:9/elsewhere")], b"")),
    "no size": lambda asked, answer: Answer(200, [], b"", length=0) if asked.method == "HEAD" else None,
    "another size": lambda asked, answer: (
        Answer(200, answer.headers, b"", length=7) if asked.method == "HEAD" else None
    ),
    "a list cut off": of_lists(lambda asked, answer: Answer(200, XML, answer.body[: len(answer.body) // 2])),
    "a list cut off in its headers": of_lists(lambda asked, answer: Answer(200, XML, answer.body, sent=50)),
    "an empty list": of_lists(lambda asked, answer: Answer(200, XML, b"")),
    "a page of a portal": of_lists(lambda asked, answer: Answer(200, XML, b"<html><body>log in</body></html>")),
    "no XML": of_lists(lambda asked, answer: Answer(200, XML, b'{"Contents": []}')),
    "names without end": of_lists(lambda asked, answer: Answer(200, XML, answer.body.replace(b"</Key>", b""))),
    "no sizes": of_lists(lambda asked, answer: Answer(200, XML, answer.body.replace(b"<Size>", b"<Size>x"))),
    "negative sizes": of_lists(lambda asked, answer: Answer(200, XML, answer.body.replace(b"<Size>", b"<Size>-"))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_faulty_server_gives_is_right_or_an_error(bucket: TestBucket, clicks: str, fault: str) -> None:
    expected, sound = kts.scan(CLICKS).read_all(), [one.kind for one in verify(CLICKS)]
    changed: list[Asked] = []

    def change(asked: Asked, answer: Answer) -> Answer | None:
        found = FAULTS[fault](asked, answer)
        changed.extend([asked] if found is not None else [])
        return found

    bucket.proxy.change = change
    right = False
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kts.remote.objects.ATTEMPTS", 1)
        try:
            right = kts.scan(clicks).read_all() == expected
            assert right
        except (kts.KtsError, FileNotFoundError) as problem:
            assert clicks in f"{problem} {getattr(problem, 'path', '')}"
        try:
            found = [one.kind for one in verify(clicks)]
        except (kts.KtsError, FileNotFoundError) as problem:
            assert clicks in f"{problem} {getattr(problem, 'path', '')}"
        else:
            assert len(found) > len(sound) or (right and found == sound)
    assert changed


def test_a_directory_that_is_there_but_lists_nothing_is_an_error(bucket: TestBucket, clicks: str) -> None:
    """What stands between may answer with a page of its own."""
    bucket.proxy.change = lambda asked, answer: (
        Answer(200, XML, b"<html></html>") if asked.lists and "clicks-0" in asked.path else None
    )
    with pytest.raises(kts.LogStorageError, match="expected names in it, as the directory above shows it, found none"):
        kts.open(clicks)


def test_an_object_that_changes_between_its_listing_and_its_opening_gives_no_mix(
    bucket: TestBucket, clicks: str
) -> None:
    log = max((CLICKS / "clicks-0").glob("*.log"))
    changes: list[Callable[[], object]] = [
        lambda: bucket.put(f"clicks/clicks-0/{log.name}", log.read_bytes()[: log.stat().st_size // 2]),
        lambda: bucket.delete(f"clicks/clicks-0/{log.name}"),
    ]
    for change in changes:
        bucket.put(f"clicks/clicks-0/{log.name}", log.read_bytes())
        refresh(clicks)
        done: list[object] = []
        bucket.proxy.before = lambda asked, change=change, done=done: (  # type: ignore[misc]
            done.append(change()) if asked.name == log.name and not done else None
        )
        found = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kts.KtsWarning)
            try:
                found = kts.scan(clicks).read_all()
            except kts.KtsError as problem:
                assert log.name in f"{problem} {problem.path}"
        assert done
        bucket.proxy.before = None
        assert found in (None, kts.scan(clicks).read_all())


SLOW: dict[str, Callable[[Proxy, threading.Event], None]] = {
    "headers": lambda proxy, end: setattr(proxy, "before", lambda asked: end.wait(PATIENCE_S)),
    "a body": lambda proxy, end: setattr(
        proxy, "change", of_objects(lambda asked, answer: Answer(206, answer.headers, answer.body, pause_s=0.1))
    ),
}


@pytest.mark.parametrize("slow", SLOW)
def test_a_server_that_is_too_slow_is_an_error_after_the_limit(
    bucket: TestBucket, clicks: str, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while single bytes come, which no limit of the library ends."""
    end = threading.Event()
    path = f"{clicks}/{next(CLICKS.glob('*/*.log')).relative_to(CLICKS).as_posix()}"
    with files.open_file(path) as file:  # a busy machine may take longer
        monkeypatch.setattr(buckets.bucket_of(path), "_limit", Limit(0.3))
        SLOW[slow](bucket.proxy, end)
        try:
            for ask in (lambda: file.read(0, 10_000), lambda: kts.scan(path).read_all()):
                with pytest.raises(kts.LogStorageError, match=r"no answer within 0\.3 s .*time_limit") as raised:
                    ask()
                assert raised.value.errno == errno.ETIMEDOUT and raised.value.path
        finally:
            end.set()


def test_a_program_ends_though_an_answer_does_not(bucket: TestBucket, clicks: str) -> None:
    """Costs a start of Python; buys that neither our threads nor Arrow's wait at the end."""
    SLOW["a body"](bucket.proxy, threading.Event())
    program = "import kts.cli, kts.remote.threads as threads; threads.END_S = 0.1; kts.cli.main()"
    command = [sys.executable, "-c", program, "dump", clicks, "--storage-options", '{"time_limit": 0.3}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bucket.proxy.change is not None and done.returncode not in (0, -6, -11)
    assert "no answer within 0.3 s" in done.stderr
