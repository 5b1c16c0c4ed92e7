"""A partition that is written as a broker writes it: append, roll, retention, truncation, recovery."""
