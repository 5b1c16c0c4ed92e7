"""What is done to logs that nobody writes: verify, truncate, rebuild indexes, convert."""
