"""Kafka's bytes and Arrow columns: layout, decoding, encoding, conversion, validation."""
