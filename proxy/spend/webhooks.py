"""Sends notices to webhooks. Notices are signed and retried, and no request waits for them.

A notice is a POST of JSON. The header ``x-stratiform-signature: t=SECONDS,v1=HEX`` is the HMAC-SHA256 of
``SECONDS.BODY`` with the configured secret (the form that Stripe's receivers know:
https://docs.stripe.com/webhooks#verify-manually). The header ``x-stratiform-notice`` is the same for every attempt, so
that a receiver recognises a repetition. An attempt that is not answered with a 2xx is repeated with growing pauses. The
queue is bounded: notices beyond the bound are counted and dropped.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import aiohttp
import orjson

from proxy.core.value import dataclass, field
from proxy.ports import Clock
from proxy.tasks import Tasks, cancel, spawn
from proxy.telemetry.metrics import Metrics

SIGNATURE_HEADER = "x-stratiform-signature"
ID_HEADER = "x-stratiform-notice"

_MOST_WAITING = 1000
_AT_ONCE = 4
_TIMEOUT_S = 10.0
_PAUSES_S = (1.0, 5.0, 30.0, 120.0, 600.0)

_log = logging.getLogger("stratiform.notices")


@dataclass(frozen=True, slots=True)
class Notice:
    """``event`` is "budget.soft_limit" or "budget.hard_limit"."""

    url: str = field(repr=False)
    event: str
    content: Mapping[str, object]


class WebhookSender:
    """Delivers notices in the background, between ``start`` and ``aclose``."""

    def __init__(
        self, secret: bytes, clock: Clock, metrics: Metrics, *, pauses_s: tuple[float, ...] = _PAUSES_S
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._metrics = metrics
        self._pauses_s = pauses_s
        self._queue: asyncio.Queue[tuple[Notice, str]] = asyncio.Queue(_MOST_WAITING)
        self._session: aiohttp.ClientSession | None = None
        self._tasks: Tasks = set()

    def start(self) -> None:
        for _ in range(_AT_ONCE):
            spawn(self._deliver(), self._tasks)

    def send(self, notice: Notice) -> None:
        """Queue a notice; never waits."""
        try:
            self._queue.put_nowait((notice, "sn-" + secrets.token_hex(8)))
        except asyncio.QueueFull:
            self._metrics.notified("dropped")
            _log.error("%d notices wait for their webhooks: one more is dropped", _MOST_WAITING)

    async def aclose(self) -> None:
        """Stop. Notices that wait get the time of one attempt first."""
        if self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TIMEOUT_S if not self._queue.empty() else 0):
                    await self._queue.join()
            await cancel(self._tasks)
        if self._session is not None:
            await self._session.close()

    async def _deliver(self) -> None:
        while True:
            notice, notice_id = await self._queue.get()
            try:
                self._metrics.notified("delivered" if await self._attempts(notice, notice_id) else "failed")
            finally:
                self._queue.task_done()

    async def _attempts(self, notice: Notice, notice_id: str) -> bool:
        at = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = orjson.dumps({"id": notice_id, "event": notice.event, "at": at, **notice.content})
        for pause_s in (*self._pauses_s, None):
            if not (problem := await self._post(notice.url, body, notice_id)):
                return True
            _log.warning("a webhook did not take notice %s (%s): %s", notice_id, notice.event, problem)
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        return False

    async def _post(self, url: str, body: bytes, notice_id: str) -> str:
        """Make one attempt. Returns what went wrong, or an empty text."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        headers = {
            "content-type": "application/json",
            "user-agent": "stratiform",
            ID_HEADER: notice_id,
            SIGNATURE_HEADER: signature(self._secret, int(self._clock.now()), body),
        }
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return "" if 200 <= answer.status < 300 else f"status {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__


def signature(secret: bytes, seconds: int, body: bytes) -> str:
    """The signature header for a body that is sent now."""
    digest = hmac.new(secret, b"%d." % seconds + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"
