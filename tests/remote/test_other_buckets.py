"""Buckets of Google and Azure, and HDFS, through real servers of their protocols."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from support import TESTS
from support.buckets.emulators import Emulator, azure, google, hadoop

import kts
from kts.offline.verify import verify
from kts.segment import files

pytestmark = pytest.mark.slow  # real servers
ORDERS = TESTS / "data/golden/demo/orders"


@pytest.fixture(scope="module", params=[google, azure, hadoop], ids=["gs", "abfss", "webhdfs"])
def store(request: Any) -> Iterator[Emulator]:
    made: AbstractContextManager[Emulator] = request.param()
    with made as emulator:
        yield emulator


def test_a_bucket_gives_what_the_disk_gives(store: Emulator) -> None:
    there = store.put_folder(ORDERS, "logs/orders")
    found = kts.scan(there, storage_options=store.options).read_all()
    assert found == kts.scan(ORDERS).read_all() and len(found) == 9_000
    here = kts.open_log_dirs(ORDERS)
    for key, log in kts.open_log_dirs(f"{store.address}/logs/*/orders-*").items():
        assert log.max_timestamp() == here[key].max_timestamp()
        assert log.offset_for_timestamp(1_788_300_000_000) == here[key].offset_for_timestamp(1_788_300_000_000)
    assert [one.kind for one in verify(there)] == [one.kind for one in verify(ORDERS)]


def test_what_is_missing_replaced_or_deleted_is_told(store: Emulator) -> None:
    with pytest.raises(FileNotFoundError, match="nothing lies at this address"):
        kts.open(f"{store.address}/none", storage_options=store.options)
    with pytest.raises(kts.LogStorageError) as raised:
        files.names_in(f"{store.address}/none")
    assert raised.value.errno == errno.ENOENT
    data = bytes(range(250)) * 4_000
    path = store.put("x.bin", data)
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[:10]
        store.put("x.bin", data[::-1])
        with pytest.raises(kts.LogStorageError, match="was replaced while it was read") as raised:
            file.read(700_000, 10)
    assert raised.value.errno == errno.ESTALE
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[::-1][:10]
        store.delete("x.bin")
        with pytest.raises(kts.LogStorageError) as raised:
            file.read(700_000, 10)
    assert raised.value.errno == errno.ENOENT
