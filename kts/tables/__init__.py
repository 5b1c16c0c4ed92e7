"""A topic as a table: its records in Iceberg or in a Parquet folder, each once, a bit more with each run."""

from __future__ import annotations

from kts.tables.options import LocalSyncOptions, SyncOptions
from kts.tables.run import Added, Synced, sync

__all__ = ["Added", "LocalSyncOptions", "SyncOptions", "Synced", "sync"]
