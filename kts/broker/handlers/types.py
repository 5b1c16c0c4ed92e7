"""What a handler is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kts.broker.request import Request

Handler = Callable[[Any, Request], Coroutine[Any, Any, dict[str, Any] | None]]  # of a Broker, and what it is asked
