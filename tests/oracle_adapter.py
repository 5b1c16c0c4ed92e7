"""kts for the adapter that `oracle/check.py` takes: one function a family, each in a file of its own."""

from support.oracle.oracle_clean import clean, view
from support.oracle.oracle_config import config
from support.oracle.oracle_convert import convert
from support.oracle.oracle_decode import decode
from support.oracle.oracle_log import log
from support.oracle.oracle_segment import segment
from support.oracle.oracle_validator import validate

__all__ = ["clean", "config", "convert", "decode", "log", "segment", "validate", "view"]
