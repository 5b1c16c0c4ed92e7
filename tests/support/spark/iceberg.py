"""Spark with Iceberg: the newest release that Iceberg's runtime is for, and a catalog in an SQLite file.

A test runs a script of its own, as Iceberg's Spark is not this environment's: ``[sys.executable, script]`` with
``os.environ | iceberg_environ()``; the script makes its session with ``iceberg_settings``, which the test passes to it.
"""

from __future__ import annotations

from pathlib import Path

from support.kafka.jvm import JAVA, maven_class_path
from support.spark.releases import release_environ

SPARK = "4.1.4"  # with the runtime in tests/java/spark/iceberg.xml
CATALOG = "lake"


def iceberg_environ() -> dict[str, str]:
    """What is set for a process that starts a session of that Spark."""
    return release_environ(SPARK)


def iceberg_settings(folder: Path) -> dict[str, str]:
    """Settings of a session whose catalog `lake` lies in ``catalog.sqlite`` and ``warehouse`` of a folder."""
    jars = maven_class_path(JAVA / "spark" / "iceberg.xml").replace(":", ",")
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.jars": jars,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder / 'catalog.sqlite'}",
        f"{catalog}.warehouse": str(folder / "warehouse"),
        f"{catalog}.jdbc.schema-version": "V1",  # as pyiceberg's catalog writes it
    }
