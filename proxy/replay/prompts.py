"""A recorded request as a provider's cache sees it, and an account that bills by it."""

from dataclasses import replace

from proxy.core.caches import make_cache, validate
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.providers import CacheProfile, Family
from proxy.core.request.tokens import Encode
from proxy.errors import UpstreamRejected
from proxy.replay.totals import Total
from proxy.upstream.embedded.blocks import BlockMaker, refuse
from proxy.upstream.embedded.layout import lay_out
from proxy.upstream.embedded.marks import mark_style
from proxy.upstream.embedded.request import ChatRequest, read_chat
from proxy.upstream.embedded.turns import TurnReader

ACCOUNT = "replay"
# The provider's framing behind every prompt, never cached (observed: 2 with Anthropic, 3 with OpenAI).
TAIL_TOKENS = 3


class PromptReader:
    """Reads bodies for one provider, each distinct message once."""

    def __init__(self, profile: CacheProfile, encode: Encode) -> None:
        self.profile = profile
        self.maker = BlockMaker(encode, cuts=profile.family in (Family.GRID, Family.UNIT))
        self.turns = TurnReader(self.maker, mark_style(profile))

    def request(self, body: bytes) -> ChatRequest:
        """The body, taken apart. Raises UpstreamRejected for what the provider would refuse."""
        return read_chat(body, self.turns, mark_style(self.profile))

    def prompt(self, body: bytes) -> Prompt:
        """The body's positions and markers. Raises UpstreamRejected for what the provider would refuse."""
        prompt = lay_out(self.request(body), self.profile, ACCOUNT)
        complaint = validate(prompt, self.profile)
        if complaint is not None:
            raise refuse(complaint, "messages")
        return prompt


class Waste:
    """Tokens that were written, and those of them that no later request read while they lived."""

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
        """Of all that was written; None where nothing was."""
        return self.wasted / self.written if self.written else None

    def add(self, prompt: Prompt, bill: Bill) -> None:
        """One billed request: what stands up to its hit was of use, what it wrote is not yet."""
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
    """One account at a provider, in virtual time: its bills, and what it wrote for nothing."""

    def __init__(self, reader: PromptReader) -> None:
        self.total = Total()
        self.waste = Waste()
        self._reader = reader
        self._cache = make_cache(reader.profile)

    def send(self, body: bytes, at: float) -> None:
        """Bill and store one request; one that the provider refuses is counted."""
        try:
            prompt = self._reader.prompt(body)
        except UpstreamRejected:
            self.total.refused += 1
            return
        bill = self._cache.bill(prompt, at)
        self._cache.store(prompt, at, at)
        self.waste.add(prompt, bill)
        self.total.add(replace(bill, plain=bill.plain + TAIL_TOKENS))
