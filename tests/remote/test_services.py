"""Buckets of Google and Azure, through real servers of their protocols."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from support.buckets.checks import CHECKS
from support.buckets.doors import files, reach
from support.buckets.emulators import Emulator, azure, google
from support.buckets.proxy import Answer, Proxy
from support.golden import PATIENCE_S

import kts
from kts.remote import buckets
from kts.remote.threads import Limit

pytestmark = pytest.mark.slow  # real servers


@pytest.fixture(scope="module", params=[google, azure], ids=["gs", "abfss"])
def store(request: Any) -> Iterator[Emulator]:
    made: AbstractContextManager[Emulator] = request.param()
    with made as emulator:
        yield emulator


@pytest.mark.parametrize("check", CHECKS)
def test_a_bucket_keeps_what_stores_promise(store: Emulator, check: Callable[[Emulator], None]) -> None:
    check(store)


def test_a_service_that_is_too_slow_is_an_error_after_the_limit(
    store: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option of the libraries ends such an answer. Arrow opens an object of Google's with the interpreter's lock."""
    path, end = store.put("slow.bin", b"data" * 1000), threading.Event()
    found = re.search(r"127\.0\.0\.1:(\d+)", str(store.options))
    assert found is not None
    with Proxy(int(found[1])) as proxy:
        options = {name: f"127.0.0.1:{proxy.port}" if value == found[0] else value
                   for name, value in store.options.items()}  # fmt: skip
        reach(path, options)
        with files.open_file(path) if store.address.startswith("abfss") else nullcontext() as file:
            monkeypatch.setattr(buckets.bucket_of(path), "_limit", Limit(0.5))  # a busy machine opens it later
            proxy.change = lambda asked, answer: Answer(answer.status, answer.headers, answer.body, pause_s=0.1)
            with pytest.raises(kts.LogStorageError, match=r"no answer within 0\.5 s"):
                files.names_in(store.address) if file is None else file.read(0, 4000)
        proxy.forget()
        proxy.before = lambda asked: end.wait(PATIENCE_S)
        try:
            for ask in (files.exists, files.modified_ms, files.names_in):
                with pytest.raises(kts.LogStorageError, match=r"no answer within 0\.5 s"):
                    ask(path)
        finally:
            end.set()


def test_a_directory_of_a_hierarchical_namespace_is_listed_once(store: Emulator) -> None:
    """There a directory is an object, too, which says so: Azurite has none, but keeps what such an object says."""
    if store.address.startswith("abfss"):
        for name in ("hns", "hns/orders-0"):
            with store.files.open_output_stream(f"bkt/{name}", metadata={"hdi_isfolder": "true"}) as out:
                out.write(b"")
    store.put("hns/orders-0/00000000000000000000.log", b"")
    reach(store.address, store.options)
    found = files.list_directory(f"{store.address}/hns")
    assert [(one.name, one.is_dir()) for one in found] == [("orders-0", True)]
    assert files.directory_exists(f"{store.address}/hns")
    log = kts.open_log_dirs(f"{store.address}/hns")["orders", 0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
