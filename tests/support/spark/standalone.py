"""A standalone cluster of Spark, a master and workers as processes, and an environment packed for its executors."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from isal import igzip
from support import ROOT
from support.kafka.jvm import spark_environ
from support.processes.dying import DIES_TOO
from support.waiting import wait_until

WORKERS = 2
# What kts imports on an executor, and pyspark without its jars, which each worker has.
PACKED = "numpy pyarrow lz4 zstandard cramjam isal click pyspark py4j".split()
LEFT_OUT = ("/tests/", "/include/", "/jars/", "/examples/", "/data/", "/python/lib/", "_flight")


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The master URL of a cluster with two workers, each with one core, which know no Python of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    given = spark_environ()
    environ = kept | {name: given[name] for name in ("SPARK_HOME", "SPARK_LOCAL_IP", "JAVA_TOOL_OPTIONS")}
    environ["SPARK_DAEMON_MEMORY"] = "256m"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            program = f"org.apache.spark.deploy.{name.split('-')[0]}.{name.split('-')[0].title()}"
            command = [*DIES_TOO, f"{given['SPARK_HOME']}/bin/spark-class", program, *here, *arguments]
            said = folder / f"{name}.log"
            with said.open("wb") as file:
                process = subprocess.Popen(command, env=environ, cwd=folder, stdout=file, stderr=file)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return said

        def url() -> re.Match[str] | None:
            return re.search(r"Starting Spark master at (spark://[\d.:]+)", master.read_text())

        master = start("master", "--port", "0")
        wait_until("a master", lambda: url() is not None)
        found = url()
        assert found is not None
        sizes = ["--cores", "1", "--memory", "1g"]
        logs = [
            start(f"worker-{number}", *sizes, "--work-dir", str(folder / f"worker-{number}"), found[1])
            for number in range(WORKERS)
        ]
        for log in logs:
            wait_until("a worker", lambda log=log: "Successfully registered" in log.read_text())  # type: ignore[misc]
        yield found[1]


def packed_environment(archive: Path) -> None:
    """Pack kts and what it needs as venv-pack does: links to the system's Python, and everything else as it is."""
    site = Path("lib", f"python{sysconfig.get_python_version()}", "site-packages")
    with igzip.open(archive, "wb", compresslevel=0) as file, tarfile.open(fileobj=file, mode="w|") as tar:
        python = Path(os.path.realpath(sys.executable))
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, str(python)
        tar.addfile(link)
        settings = f"home = {python.parent}\n".encode()
        file_of_settings = tarfile.TarInfo("pyvenv.cfg")
        file_of_settings.size = len(settings)
        tar.addfile(file_of_settings, io.BytesIO(settings))
        for name in PACKED:
            found = distribution(name)
            for each in found.files or ():
                source = Path(str(found.locate_file(each)))
                if ".." not in each.parts and source.exists() and not any(out in f"/{each}" for out in LEFT_OUT):
                    tar.add(source, str(site / each))
        for name in ("kts", "pyspark_kts"):
            tar.add(ROOT / name, str(site / name))
