"""Read-only access to partitions and log directories: find them, plan the bytes to read, and read the records."""
