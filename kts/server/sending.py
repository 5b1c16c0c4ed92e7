"""Sends answers: small parts are joined, file ranges use sendfile, and little is buffered for a slow reader."""

from __future__ import annotations

import asyncio
import os

from kts.broker.wire import Chunk
from kts.errors import LogStorageError
from kts.store.local import FileRange

PIECE_BYTES = 1 << 18  # written at once, so buffered for a slow reader
SENDFILE_BYTES = 1 << 15  # for larger ranges sendfile is cheaper than reading
SENT_AT_ONCE_BYTES = 1 << 21
WAITING_BYTES = 1 << 14
HAS_SENDFILE = hasattr(os, "sendfile")


class Sender:
    """The writing end of a connection.

    Parameters
    ----------
    transport : asyncio.Transport
        Its protocol calls ``pause``, ``resume`` and ``lost``.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        transport.set_write_buffer_limits(0)  # wait until the system has taken everything
        self._socket = transport.get_extra_info("socket")
        self._full = False
        self._drained: asyncio.Future[None] | None = None
        self._file_left = 0
        self._seen = 0  # the bytes that waited at the last check, and since when
        self._seen_at = 0.0
        self.is_lost = False

    def pause(self) -> None:
        """The send buffer is full."""
        self._full = True

    def resume(self) -> None:
        """The send buffer has room."""
        self._full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def lost(self) -> None:
        """The connection is closed."""
        self.is_lost = True
        self.resume()

    def stalled_s(self, now: float) -> float:
        """Seconds without progress; 0 if nothing waits to be sent."""
        waiting = self._transport.get_write_buffer_size() + self._file_left
        if not waiting or waiting != self._seen:
            self._seen, self._seen_at = waiting, now
        return now - self._seen_at

    async def send(self, chunks: list[Chunk]) -> None:
        """Send chunks in order, waiting while the reader is slow.

        Raises
        ------
        ConnectionError
            The client disconnected.
        LogStorageError
            A file was truncated meanwhile, so the rest of the answer cannot be sent.
        """
        parts: list[bytes | memoryview] = []
        size = 0
        for chunk in chunks:
            count = len(chunk)
            if count >= SENDFILE_BYTES and HAS_SENDFILE and isinstance(chunk, FileRange):
                if parts:
                    await self._write(parts)
                    parts, size = [], 0
                await self._send_range(chunk)
                continue
            for start in range(0, count, PIECE_BYTES):
                if isinstance(chunk, FileRange):
                    parts.append(chunk.read(start, PIECE_BYTES))
                else:
                    parts.append(chunk if count <= PIECE_BYTES else memoryview(chunk)[start : start + PIECE_BYTES])
                size += min(count - start, PIECE_BYTES)
                if size >= PIECE_BYTES:
                    await self._write(parts)
                    parts, size = [], 0
        if parts:
            await self._write(parts)

    async def _write(self, parts: list[bytes | memoryview]) -> None:
        self._check()
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        while self._full and not self.is_lost:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    async def _send_range(self, range_: FileRange) -> None:
        start, count = 0, len(range_)
        try:
            while start < count:
                self._check()
                self._file_left = count - start
                try:
                    most = min(count - start, SENT_AT_ONCE_BYTES)
                    sent = os.sendfile(self._socket.fileno(), range_.fileno(), range_.position + start, most)
                    if not sent:
                        left = count - start
                        message = f"expected {left} more bytes to send, but the file was truncated meanwhile"
                        raise LogStorageError(message)
                except BlockingIOError:
                    piece = range_.read(start, WAITING_BYTES)  # the socket is full: the transport waits with this
                    sent = len(piece)
                    await self._write([piece])
                start += sent
                if start < count:
                    await asyncio.sleep(0)  # let other requests run
        finally:
            self._file_left = 0

    def _check(self) -> None:
        if self.is_lost or self._transport.is_closing():
            raise ConnectionResetError("the client disconnected")
