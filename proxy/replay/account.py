"""An account at a provider in virtual time, and what it writes in vain."""

from collections.abc import Callable
from dataclasses import replace

from proxy.core.caches import make_cache
from proxy.core.caches.prompt import Bill, Prompt
from proxy.errors import UpstreamRejected
from proxy.replay.totals import Total
from proxy.upstream.embedded import TAIL_TOKENS, PromptReader

_NAME = "replay"


class Waste:
    """Counts tokens that were written, and those of them that no later request read while they lived."""

    def __init__(self) -> None:
        self.written = 0
        self._dropped = 0
        self._unread: dict[tuple[bytes, bytes], int] = {}

    @property
    def wasted(self) -> int:
        """Tokens written and not read so far."""
        return self._dropped + sum(self._unread.values())

    @property
    def share(self) -> float | None:
        """The share of the written tokens that was never read. None where nothing was written."""
        return self.wasted / self.written if self.written else None

    def add(self, prompt: Prompt, bill: Bill) -> None:
        """Count one billed request. Everything up to its hit was of use; what it wrote is of no use yet."""
        if not bill.read and not bill.write:
            return
        start = 0
        written_end = bill.read + bill.write
        for position, (digest, end) in enumerate(zip(prompt.hashes, prompt.ends, strict=True)):
            if start >= written_end and position > bill.hit:
                break
            key = (prompt.scope, digest)
            if position <= bill.hit:
                self._unread.pop(key, None)
            elif end <= written_end:
                # Written again before it was ever read: the first writing was for nothing.
                self._dropped += self._unread.get(key, 0)
                self._unread[key] = end - start
                self.written += end - start
            start = end


class Account:
    """One account at a provider, in virtual time: its bills, and what it wrote in vain."""

    def __init__(self, reader: PromptReader) -> None:
        self.total = Total()
        self.waste = Waste()
        self._reader = reader
        self._cache = make_cache(reader.profile)

    def send(self, body: bytes, at: float) -> Bill | None:
        """The bill of a request; None where the provider refuses it."""
        return self._answered(body, at, self.total.add)

    def refresh(self, body: bytes, at: float) -> Bill | None:
        """The bill of a request that only keeps a prefix alive; None where the provider refuses it."""
        return self._answered(body, at, self.total.refreshed)

    def _answered(self, body: bytes, at: float, count: Callable[[Bill], None]) -> Bill | None:
        try:
            prompt = self._reader.laid_out(self._reader.request(body), _NAME)
        except UpstreamRejected:
            self.total.refused += 1
            return None
        cached = self._cache.bill(prompt, at)
        self._cache.store(prompt, at, at)
        self.waste.add(prompt, cached)
        bill = replace(cached, plain=cached.plain + TAIL_TOKENS)
        count(bill)
        return bill
