"""Spark imports ``pyspark_kts`` for every Python data source of any kind: it must be cheap and must not fail."""

from __future__ import annotations

import subprocess
import sys

IMPORT = "import sys; sys.modules.update(dict.fromkeys({missing}))\nimport pyspark_kts\nprint(sorted({asked}))"


def run(missing: list[str], asked: str) -> str:
    code = IMPORT.format(missing=missing, asked=asked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_pyspark_it_offers_nothing_and_does_not_fail() -> None:
    assert run(["pyspark"], "n for n in dir(pyspark_kts) if n == 'DefaultSource'") == "[]"


def test_without_pyarrow_it_does_not_fail_and_loads_no_kts() -> None:
    assert run(["pyarrow"], "n for n in sys.modules if n.split('.')[0] == 'kts'") == "[]"


def test_importing_it_brings_in_neither_kts_nor_pyarrow() -> None:
    heavy = "n for n in sys.modules if n.split('.')[0] in ('kts', 'pyarrow', 'numpy', 'pandas') and n.count('.') == 0"
    code = f"import sys\ntry:\n import pyspark.sql.datasource\nexcept ImportError: pass\nbefore = {{{heavy}}}\n"
    code += f"import pyspark_kts\nprint(sorted({{{heavy}}} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
