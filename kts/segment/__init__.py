"""One segment: its files, both indexes, producers and transactions, rebuilding, and search by time."""
