"""Files that are not on this machine: objects in buckets, read through the protocol of ``kts.store``."""
