"""What a server of files cannot answer, through moto's server: objects with names of folders, pages, archives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
import requests
from moto.backends import get_backend
from moto.server import ThreadedMotoServer
from support import TESTS
from support.buckets.doors import files, reach, refresh
from support.buckets.gateway import KEY, REGION, SECRET, free_port
from support.buckets.proxy import Answer, Asked, Proxy

import kts
from kts.remote import buckets

pytestmark = pytest.mark.slow  # a real server
CLICKS = TESTS / "data/golden/demo/clicks"


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    port = free_port()
    made = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    made.start()
    try:
        with Proxy(port) as proxy:
            yield proxy
    finally:
        made.stop()


@pytest.fixture
def client(server: Proxy) -> Iterator[object]:
    access = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    made = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{server.behind}", **access)
    requests.post(f"http://127.0.0.1:{server.behind}/moto-api/reset", timeout=60)
    made.create_bucket(Bucket="odd")
    options = {"access_key": KEY, "secret_key": SECRET, "region": REGION, "endpoint_override": server.endpoint}
    reach("s3://odd", options | {"max_attempts": 2})
    yield made
    server.forget()
    buckets._buckets.pop("s3://odd", None)


def put_clicks(client: object, **given: str) -> None:
    for path in CLICKS.rglob("*"):
        if path.is_file():
            key = f"clicks/{path.relative_to(CLICKS).as_posix()}"
            client.put_object(Bucket="odd", Key=key, Body=path.read_bytes(), **given)  # type: ignore[attr-defined]


def test_markers_of_folders_and_objects_of_their_names_change_nothing(client: object) -> None:
    put_clicks(client)
    for key in ("clicks/", "clicks/clicks-0/", "clicks", "clicks/clicks-0"):
        client.put_object(Bucket="odd", Key=key, Body=b"")  # type: ignore[attr-defined]
    refresh("s3://odd/clicks")
    assert kts.scan("s3://odd/clicks").read_all() == kts.scan(CLICKS).read_all()


def test_a_listing_of_several_pages_is_whole(client: object) -> None:
    there = get_backend("s3")["123456789012"]["aws"]
    for number in range(1_005):
        there.put_object("odd", f"many/{number:04}", b"")
    assert files.names_in("s3://odd/many") == [f"{number:04}" for number in range(1_005)]


PAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda body: b"",
    "of a portal": lambda body: b"<html></html>",
    "cut": lambda body: body[: len(body) // 2],
    "of other names": lambda body: body.replace(b"many/", b"less/"),
    "without the next token": lambda body: re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", body),
}


def test_a_wrong_page_is_no_end_of_a_list(client: object, server: Proxy) -> None:
    there = get_backend("s3")["123456789012"]["aws"]
    for number in range(2_005):
        there.put_object("odd", f"many/{number:04}", b"")
    for page in PAGES.values():
        once = count()

        def change(
            asked: Asked, answer: Answer, page: Callable[[bytes], bytes] = page, once: Iterator[int] = once
        ) -> Answer | None:
            changed = asked.lists and "continuation-token" in asked.path and not next(once)
            return Answer(200, [("Content-Type", "application/xml")], page(answer.body)) if changed else None

        server.change = change
        with pytest.raises(kts.LogStorageError, match="listing failed: .*"):
            files.names_in("s3://odd/many")


def test_a_list_without_end_is_an_error_after_the_limit(client: object, server: Proxy) -> None:
    """It repeats its token."""
    for number in range(3):
        client.put_object(Bucket="odd", Key=f"many/{number}", Body=b"")  # type: ignore[attr-defined]
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    pages: list[bytes] = []

    def change(asked: Asked, answer: Answer) -> Answer | None:
        pages.append(re.sub(rb"<IsTruncated>.*?</IsTruncated>", more, answer.body))
        return Answer(200, [("Content-Type", "application/xml")], pages[0]) if asked.lists else None

    reach("s3://odd", buckets.bucket_of("s3://odd").options | {"time_limit": 0.3})
    server.change = change
    with pytest.raises(kts.LogStorageError, match=r"no answer within 0\.3 s"):
        files.names_in("s3://odd/many")
    server.change = lambda asked, answer: Answer(500, [], b"")  # which ends it


def test_an_archived_object_is_told(client: object) -> None:
    put_clicks(client, StorageClass="GLACIER")
    with pytest.raises(kts.LogStorageError, match=r"reading .* failed: .*GLACIER.* is refused until it is restored"):
        kts.scan("s3://odd/clicks").read_all()


def test_a_range_that_is_ignored_is_no_wrong_answer(client: object, server: Proxy) -> None:
    """A cache in between that answers with the whole object gives other bytes, which no length tells."""
    put_clicks(client)
    whole = {path.name: path.read_bytes() for path in (CLICKS / "clicks-0").iterdir()}
    ignored: list[Asked] = []

    def ignore(asked: Asked, answer: Answer) -> Answer | None:
        if asked.range is None or asked.name not in whole:
            return None
        ignored.append(asked)
        return Answer(200, [each for each in answer.headers if each[0] != "Content-Range"], whole[asked.name])

    expected = kts.open_partition(CLICKS / "clicks-0").scan(columns=["offset"]).read_all()
    first, middle = expected["offset"][0].as_py(), expected["offset"][len(expected) // 2].as_py()
    server.change = ignore
    log = kts.open_partition("s3://odd/clicks/clicks-0")
    for start in (first, middle):
        try:
            found = log.scan(columns=["offset"], starting_offsets=start).read_all()["offset"].to_pylist()
        except kts.KtsError:
            continue
        assert found == [each for each in expected["offset"].to_pylist() if each >= start]
    assert ignored


@pytest.mark.parametrize("key", ["//u-0/x", "/t-0//x", "//", "/../t-1/x", "/t-0/./x", "/t-0/../../x"])
def test_a_key_that_no_path_can_have_is_told_and_the_rest_is_read(client: Any, key: str) -> None:
    for file in (CLICKS / "clicks-0").iterdir():
        client.upload_file(str(file), "odd", f"logs/t-0/{file.name}")
    whole = kts.scan("s3://odd/logs").read_all()
    client.put_object(Bucket="odd", Key=f"logs{key}", Body=b"x")
    with pytest.warns(kts.KtsWarning, match=r"left out: no path leads to an object with (an empty name|\.\.?) in its"):
        found = kts.scan("s3://odd/logs").read_all()
    assert found == whole and whole.num_rows > 0


def test_a_folder_that_a_console_made_is_no_odd_key(client: Any, recwarn: pytest.WarningsRecorder) -> None:
    client.put_object(Bucket="odd", Key="logs/", Body=b"")
    client.put_object(Bucket="odd", Key="logs/t-0/", Body=b"")
    client.put_object(Bucket="odd", Key="logs/t-0/00000000000000000000.log", Body=b"")
    assert kts.scan("s3://odd/logs").read_all().num_rows == 0
    assert [str(one.message) for one in recwarn] == []
