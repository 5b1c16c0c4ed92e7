"""The arguments of a scan have the same names, types and defaults wherever one begins."""

from __future__ import annotations

import inspect

import kts
from kts.dataset.options import ScanOptions

OF_A_PATH = {"path", "topics", "partitions", "log_start_offset", "storage_options", "remote", "remote_options"}


def test_every_scan_takes_the_same_arguments_with_the_same_defaults() -> None:
    checked = inspect.signature(ScanOptions).parameters
    of_a_partition = inspect.signature(kts.PartitionLog.scan).parameters
    assert dict(checked) == {name: one for name, one in of_a_partition.items() if name != "self"}
    of_a_path = inspect.signature(kts.scan).parameters
    assert set(of_a_path) == OF_A_PATH | set(checked)
    assert {name: of_a_path[name].default for name in checked} == {name: one.default for name, one in checked.items()}
    of_a_log = inspect.signature(kts.Log.scan).parameters
    assert dict(of_a_log) == dict(of_a_partition)
