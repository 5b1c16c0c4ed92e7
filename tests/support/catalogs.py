"""Iceberg catalogs for tests: Iceberg's own REST server, and AWS Glue as moto serves it."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.buckets.gateway import free_port
from support.kafka.jvm import JAVA, java_tool, maven_class_path
from support.processes.dying import DIES_TOO
from support.waiting import wait_until


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """The URI of a server whose tables lie in a folder."""
    port, jars = free_port(), maven_class_path(JAVA / "iceberg" / "rest.xml")
    folder.mkdir(parents=True, exist_ok=True)
    environ = os.environ | {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": f"file://{folder / 'warehouse'}",
        "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'rest.sqlite'}",
    }
    command = [*DIES_TOO, java_tool("java"), "-cp", jars, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "rest.log").open("wb") as said:
        server = subprocess.Popen(command, env=environ, stdout=said, stderr=subprocess.STDOUT)
    uri = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        if server.poll() is not None:
            raise RuntimeError((folder / "rest.log").read_text()[-3000:])
        with suppress(OSError), urllib.request.urlopen(f"{uri}/v1/config", timeout=60) as answer:
            return bool(answer.status == 200)
        return False

    try:
        wait_until("Iceberg's REST server answers", answers)
        yield uri
    finally:
        server.kill()
        server.wait()


@contextmanager
def glue_catalog() -> Iterator[dict[str, str]]:
    """The properties of a catalog in Glue, with a warehouse in S3, both of moto."""
    from moto.server import ThreadedMotoServer

    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    here = f"http://127.0.0.1:{port}"
    keys = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}
    found = {"type": "glue", "warehouse": "s3://lake/warehouse", "glue.endpoint": here, "s3.endpoint": here}
    for name, value in keys.items():
        found |= {f"glue.{name}": value, f"s3.{name}": value}
    try:
        request = urllib.request.Request(f"{here}/lake", method="PUT", headers={"Host": f"127.0.0.1:{port}"})
        urllib.request.urlopen(request, timeout=60).close()
        yield found
    finally:
        server.stop()
