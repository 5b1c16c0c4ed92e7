"""A broker behind sockets: frames, limits, one request at a time, files sent as they lie, and chores."""
