"""A topic as a table: its records in Iceberg or in a Parquet folder, each once, a bit more with each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kts.tables.local import sync
    from kts.tables.run import Added, Synced, avro_schemas
else:

    def __getattr__(name: str) -> Any:
        """``run`` needs Arrow, which the help of ``kts sync`` does not."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kts.tables import local, run

        return getattr(local if name == "sync" else run, name)


__all__ = ["Added", "Synced", "avro_schemas", "sync"]
