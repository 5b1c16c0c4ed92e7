"""Partitions and log directories, read-only: what is there, which bytes hold what was asked for, and their records."""
