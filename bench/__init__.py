"""kts against its peers and against the machine's own limits; see __main__."""
