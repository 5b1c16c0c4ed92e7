"""Servers of other protocols: fake-gcs-server of the registry of Go, Azurite of that of npm, Hadoop of Maven's."""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, NamedTuple

import pyarrow.fs as fs
from fsspec.implementations.webhdfs import WebHDFS
from support.buckets.gateway import free_port, listening
from support.kafka.jvm import JAVA, JavaProcess, Jvm, require_java
from support.processes.toolchains import go_program, npm_packages

AZURITE = "3.37.0"
# Azurite's own account, which its documentation names.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Emulator(NamedTuple):
    """A bucket called `bkt` on a server."""

    address: str
    options: dict[str, Any]  # storage options
    files: fs.FileSystem
    root: str = "bkt"
    data_port: int = 0  # of HDFS's data node

    def put(self, key: str, data: bytes) -> str:
        with self.files.open_output_stream(f"{self.root}/{key}", compression=None) as out:
            out.write(data)
        return f"{self.address}/{key}"

    def put_folder(self, folder: Path, key: str) -> str:
        """Its files alone, as the services' own tools put them: no object marks a folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.address}/{key}"

    def delete(self, key: str) -> None:
        self.files.delete_file(f"{self.root}/{key}")


@contextmanager
def google() -> Iterator[Emulator]:
    program = go_program("github.com/fsouza/fake-gcs-server@v1.56.1")
    port = free_port()
    here = f"127.0.0.1:{port}"
    command = [str(program), "-backend", "memory", "-scheme", "http", "-port", str(port), "-host", "127.0.0.1"]
    options = {"anonymous": True, "scheme": "http", "endpoint_override": here}
    with (
        tempfile.TemporaryDirectory() as folder,
        listening([*command, "-public-host", here], port, Path(folder, "log")),
    ):
        files = fs.GcsFileSystem(**options, project_id="tests")
        files.create_dir("bkt")
        yield Emulator("gs://bkt", options, files)


@contextmanager
def azure() -> Iterator[Emulator]:
    port = free_port()
    here = f"127.0.0.1:{port}"
    options = {"account_key": AZURE_KEY, "blob_storage_authority": here, "dfs_storage_authority": here,
               "blob_storage_scheme": "http", "dfs_storage_scheme": "http"}  # fmt: skip
    command = [str(azurite()), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with tempfile.TemporaryDirectory() as folder, listening(command, port, Path(folder, "log")):
        files = fs.AzureFileSystem("devstoreaccount1", **options)
        files.create_dir("bkt")
        yield Emulator("abfss://bkt@devstoreaccount1.dfs.core.windows.net", options, files)


def azurite() -> Path:
    """The program."""
    return npm_packages(f"azurite-{AZURITE}", f"azurite@{AZURITE}") / "node_modules/.bin/azurite-blob"


@contextmanager
def hadoop() -> Iterator[Emulator]:
    """HDFS in one process, three seconds and five of the processors; the bucket is a folder of its owner `kafka`."""
    require_java()
    java = Jvm(JAVA / "hadoop/minicluster-3.5.0.xml", JAVA / "hadoop/Hdfs.java")
    with tempfile.TemporaryDirectory(dir=java.folder) as folder:
        process = JavaProcess(java, "Hdfs", folder, options=["-Xmx256m"], stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        try:
            assert process.stdout is not None
            port, data_port = map(int, process.stdout.readline().split())
            owner = WebHDFS("127.0.0.1", port, user=getpass.getuser())
            owner.mkdir("/bkt")
            owner.chown("/bkt", "kafka", "kafka")
            files = fs.PyFileSystem(fs.FSSpecHandler(WebHDFS("127.0.0.1", port, user="kafka")))
            yield Emulator(f"webhdfs://127.0.0.1:{port}/bkt", {"user": "kafka"}, files, "/bkt", data_port)
        finally:
            process.close()
