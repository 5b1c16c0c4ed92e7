"""Work on logs that no broker writes: verify, truncate, rebuild indexes, convert."""
