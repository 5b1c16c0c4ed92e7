"""Kafka's binary protocol: structs of fields in tables, with a reader and a writer for each version."""
