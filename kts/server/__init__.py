"""A broker behind sockets: framing, limits, dispatch, sending, and background tasks."""
