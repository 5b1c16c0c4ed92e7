"""What stands between kts and a server of objects: it counts requests, and answers otherwise if told."""

from __future__ import annotations

import http.client
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass
class Answer:
    """What a client gets."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    sent: int | None = None  # bytes of the body that are sent before the connection is cut; None is all
    length: int | None = None  # what Content-Length says; None is the truth
    pause_s: float = 0.0  # before each byte of the body, until the test forgets


@dataclass(frozen=True)
class Asked:
    """What a client asked for."""

    method: str
    path: str  # with what follows the question mark
    range: str | None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return urlsplit(self.path).path.rpartition("/")[2]

    @property
    def lists(self) -> bool:
        return self.method == "GET" and "list-type" in self.path


Change = Callable[[Asked, Answer], Answer | None]  # None is the server's own answer


class Server(ThreadingHTTPServer):
    """Takes all connections that a client makes at once, and prints nothing into what a command prints here."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may be gone before its answer; other errors are told, past what stands in for stderr."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc(file=sys.__stderr__)


class Proxy:
    """Serves on ``port`` until the block ends.

    Attributes
    ----------
    asked : list of Asked
        All requests since ``forget``.
    before : callable, optional
        Called with a request before the server gets it.
    change : callable, optional
        Changes an answer.
    """

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.before: Callable[[Asked], object] | None = None
        self.change: Change | None = None
        self.forget()
        self._server = Server(("127.0.0.1", 0), self._handler())
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Count from 0, and answer as the server does."""
        self.asked: list[Asked] = []
        self._body_bytes: list[int] = []
        self.before = self.change = None

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies of answers to GET since ``forget``."""
        return sum(self._body_bytes)

    def counted(self) -> Counter[str]:
        """Requests by kind: HEAD, GET, LIST and others."""
        return Counter("LIST" if one.lists else one.method for one in self.asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def body(self) -> bytes:
                """What the client sends, as it comes: with its chunks, if it says no length."""
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = [b""]
                while True:
                    parts.append(head := self.rfile.readline())
                    if not (size := int(head.partition(b";")[0], 16)):
                        break
                    parts.append(self.rfile.read(size + 2))
                while parts[-1] not in (b"\r\n", b""):  # what follows the last chunk
                    parts.append(self.rfile.readline())
                return b"".join(parts)

            def serve(self) -> None:
                asked = Asked(self.command, self.path, self.headers.get("Range"))
                counted, sizes = proxy.asked, proxy._body_bytes  # what began before ``forget`` does not count after it
                body = self.body()
                if proxy.before is not None:
                    proxy.before(asked)
                server = http.client.HTTPConnection("127.0.0.1", proxy.behind, timeout=120)
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "expect":  # it has been told to go on
                        server.putheader(name, value)
                server.endheaders(body)
                found = server.getresponse()
                answer = Answer(found.status, found.getheaders(), found.read())
                server.close()
                if proxy.change is not None:
                    answer = proxy.change(asked, answer) or answer
                counted.append(asked)
                sizes.append(len(answer.body) if asked.method == "GET" else 0)
                self.send_response_only(answer.status)
                for name, value in answer.headers:
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                lengths = [value for name, value in answer.headers if name.lower() == "content-length"]
                length = lengths[0] if lengths and self.command == "HEAD" else str(len(answer.body))
                self.send_header("Content-Length", length if answer.length is None else str(answer.length))
                self.end_headers()
                self.close_connection |= answer.sent is not None or answer.length is not None
                if self.command == "HEAD":
                    return
                if answer.pause_s:
                    self.trickle(answer)
                self.wfile.write(answer.body[: answer.sent])
                self.wfile.flush()

            def trickle(self, answer: Answer) -> None:
                while answer.body and proxy.change is not None:
                    self.wfile.write(answer.body[:1])
                    self.wfile.flush()
                    answer.body = answer.body[1:]
                    time.sleep(answer.pause_s)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        return Handler
