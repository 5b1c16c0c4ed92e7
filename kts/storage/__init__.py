"""A partition on disk, read-only: files, indexes, segments, directories, search, scan, verify."""
