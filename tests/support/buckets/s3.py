"""A bucket for a test: what is put into it, how kts reaches it, and what was asked of its server."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow.fs as fs
from support.buckets.gateway import KEY, REGION, SECRET
from support.buckets.proxy import Proxy

from kts.remote import buckets

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}


class TestBucket:
    """A new bucket of a server, with ``address`` as ``s3://name``."""

    __test__ = False

    def __init__(self, proxy: Proxy, name: str) -> None:
        self.proxy = proxy
        self.name = name
        self.address = f"s3://{name}"
        self._files.create_dir(name)

    @property
    def options(self) -> dict[str, Any]:
        """Storage options, for who has not the environment."""
        return {"access_key": KEY, "secret_key": SECRET, "region": REGION, "endpoint_override": self.proxy.endpoint}

    @functools.cached_property
    def _files(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            endpoint_override=f"http://127.0.0.1:{self.proxy.behind}",
            allow_bucket_creation=True,
        )

    def put(self, key: str, data: bytes) -> str:
        """One object; its address."""
        with self._files.open_output_stream(f"{self.name}/{key}", compression=None) as out:
            out.write(data)
        return f"{self.address}/{key}"

    def put_folder(self, folder: Path, key: str) -> str:
        """All files below a folder; the address of the folder."""
        fs.copy_files(str(folder), f"{self.name}/{key}", source_filesystem=fs.LocalFileSystem(),
                      destination_filesystem=self._files)  # fmt: skip
        return f"{self.address}/{key}"

    def delete(self, key: str) -> None:
        self._files.delete_file(f"{self.name}/{key}")

    def forget(self) -> None:
        """As in a new process, and with new counts."""
        buckets._buckets.pop(self.address, None)
        self.proxy.forget()
