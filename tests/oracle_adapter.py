"""kts for the adapter that `oracle/check.py` takes: one function a family, each in a file of its own."""

from oracle_convert import convert
from oracle_decode import decode
from oracle_log import log
from oracle_segment import segment
from oracle_validator import validate

__all__ = ["convert", "decode", "log", "segment", "validate"]
