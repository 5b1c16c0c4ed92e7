"""Avro values of a column into Arrow, in compiled code."""

from kts.avro.decoding import AvroDecoder, AvroSchema, AvroValues, decode

__all__ = ["AvroDecoder", "AvroSchema", "AvroValues", "decode"]
