"""Kafka's bytes and columns: layout, compression, encoding, conversion between formats, validation."""
