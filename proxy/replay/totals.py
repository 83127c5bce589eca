"""Bills of a replay.

The policies of today's gateways come first, for comparison. They keep the order and set markers by a fixed rule; only
the messages that gain or lose a marker are parsed and written anew. An ``Account`` at a provider, in virtual time, then
bills what a policy sends, and counts tokens that are written and never read (``Waste``). ``Result`` and ``Summary`` add
up the bills of a session and of several sessions.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from proxy.core.caches import make_cache
from proxy.core.caches.cache import Bill, BillSum, Parts, Prompt
from proxy.core.layout.render import render_tools
from proxy.core.providers import CacheProfile, Dialect
from proxy.core.request.message import MARK_KEYS
from proxy.core.shadow import cost_of
from proxy.core.structured.messages import marked, unmarked
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import Unreadable, elements, members_of, parse_members, splice, value
from proxy.errors import UpstreamRejected
from proxy.upstream.embedded import TAIL_TOKENS, PromptReader

Baseline = Callable[[bytes, Dialect], bytes]

_SYSTEM = ("system", "developer")

AS_SENT = "as sent"
CLIENT = "client's own"
SYSTEM_LAST = "system + last"
TOOLS_SYSTEM_LAST_TWO = "tools + system + last two"


def as_sent(body: bytes, dialect: Dialect) -> bytes:
    """The client's request without any marker. It gives the cost if nobody sets markers."""
    if not is_marked(body):
        return body
    members = parse_members(body)
    changes: dict[str, bytes | None] = {key: None for key in MARK_KEYS if key in members}
    changes["messages"] = _array([unmarked(bytes(raw)) for raw in elements(members["messages"])])
    if "tools" in members and bytes(members["tools"]).startswith(b"["):
        changes["tools"] = render_tools(bytes(members["tools"]), None, dialect)
    return splice(body, members, changes)


def client(body: bytes, dialect: Dialect) -> bytes:
    """The client's request with its own markers, as it came."""
    return body


def system_and_last(body: bytes, dialect: Dialect) -> bytes:
    """Markers on the system prompt and on the last message. Gateways inject these by default
    (litellm's ``cache_control_injection_points``; providers' own automatic caching marks the last block)."""

    def places(roles: Sequence[object]) -> set[int]:
        return {next((i for i, role in enumerate(roles) if role in _SYSTEM), -1), len(roles) - 1} - {-1}

    return _marked_at(body, dialect, places)


def tools_system_and_last_two(body: bytes, dialect: Dialect) -> bytes:
    """Markers on the last tool, the last system message of the head and the last two messages that can carry one.
    Agents that set their own markers do this."""

    def places(roles: Sequence[object]) -> set[int]:
        preamble = next((i for i, role in enumerate(roles) if role not in _SYSTEM), len(roles))
        ends = [i for i in range(preamble, len(roles)) if roles[i] != "assistant"]
        return {preamble - 1, *ends[-2:]} - {-1}

    marked = _marked_at(body, dialect, places)
    members = parse_members(marked)
    if dialect is not Dialect.CACHE_CONTROL or not bytes(members.get("tools", b"")).startswith(b"["):
        return marked
    return splice(marked, members, {"tools": render_tools(bytes(members["tools"]), "5m", dialect)})


def _marked_at(body: bytes, dialect: Dialect, places: Callable[[Sequence[object]], set[int]]) -> bytes:
    """The client's request with markers on the messages at these places, and on no other."""
    plain = as_sent(body, dialect)
    if dialect is Dialect.NONE:
        return plain
    members = parse_members(plain)
    messages = [bytes(raw) for raw in elements(members["messages"])]
    for index in places([value(one["role"]) if "role" in one else None for one in map(members_of, messages)]):
        # Assistant turns and empty texts carry no marker.
        messages[index] = marked(messages[index], dialect, is_head=True) or messages[index]
    return splice(plain, members, {"messages": _array(messages)})


BASELINES: Mapping[str, Baseline] = MappingProxyType({AS_SENT: as_sent, CLIENT: client, SYSTEM_LAST: system_and_last})

COMPARED: Mapping[str, Baseline] = MappingProxyType({**BASELINES, TOOLS_SYSTEM_LAST_TWO: tools_system_and_last_two})
"""The policies of ``stratiform replay --compare``."""


def sent_by(baseline: Baseline, body: bytes, dialect: Dialect) -> bytes:
    """The request as a policy sends it. Messages that are not objects go out as they came, and the provider refuses
    them."""
    try:
        return baseline(body, dialect)
    except Unreadable:
        return body


def is_marked(body: bytes) -> bool:
    """Whether a marker may stand somewhere in the body."""
    return any(key.encode() in body for key in MARK_KEYS)


def _array(raws: list[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


OURS = "stratiform"


class Waste:
    """Counts the written tokens, and how many of them no later request read while they lived."""

    def __init__(self) -> None:
        self.written = 0
        self._dropped = 0
        self._unread: dict[tuple[bytes, bytes], int] = {}

    @property
    def share(self) -> float | None:
        """The share of the written tokens that was never read. None if nothing was written."""
        return (self._dropped + sum(self._unread.values())) / self.written if self.written else None

    def add(self, prompt: Prompt, bill: Bill) -> None:
        """Count one billed request. Everything up to its hit was useful; the tokens it wrote are not useful yet."""
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
                # It is written again before it was ever read: the first write was in vain.
                self._dropped += self._unread.get(key, 0)
                self._unread[key] = end - start
                self.written += end - start
            start = end


@dataclass(slots=True)
class Total(BillSum):
    """The bills of one policy over one trace.

    ``refused`` counts requests that the provider answered with an error. ``refreshes`` counts requests that only kept a
    prefix alive. Their ``refresh_bills`` count in the cost, but in no hit rate. ``waste`` is what an account has
    written in vain.
    """

    refused: int = 0
    refreshes: int = 0
    refresh_bills: BillSum = field(default_factory=BillSum)
    waste: Waste = field(default_factory=Waste, compare=False)

    def refreshed(self, bill: Parts) -> None:
        """Count a request that only kept a prefix alive."""
        self.refreshes += 1
        self.refresh_bills.add(bill)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were read from the cache."""
        return self.read / self.prompt if self.prompt else 0.0

    def cost(self, profile: CacheProfile) -> float:
        """Input cost in tokens at the plain price."""
        return cost_of(profile, self) + cost_of(profile, self.refresh_bills)


@dataclass(slots=True)
class Result:
    """One trace under every policy. ``ours`` are the bills of what the planner sent. ``plain`` is the cost without any
    caching: the client's prompts at the plain price. ``violations`` of fidelity and ``surprises`` of the planner name
    the request, counted from 1."""

    trace: str
    profile: CacheProfile
    requests: int
    plain: float = 0.0
    totals: dict[str, Total] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    @property
    def ours(self) -> Total:
        """The bills of what the planner sent."""
        return self.totals[OURS]

    def share(self, policy: str) -> float:
        """Input cost as a share of no caching."""
        return self.totals[policy].cost(self.profile) / self.plain if self.plain else 1.0

    def against_cheapest(self) -> float:
        """Our cost as a share of the cheapest other policy's."""
        cheapest = min((self.share(name) for name in self.totals if name != OURS), default=1.0)
        return self.share(OURS) / cheapest if cheapest else 1.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Several traces, summed up in one line. Shares are geometric means over traces, so that a long trace counts no
    more than a short one."""

    traces: int
    requests: int
    shares: dict[str, float]
    against_cheapest: float
    violations: int


def summary(results: Sequence[Result]) -> Summary:
    """The means of at least one result."""
    names = [name for name in results[0].totals if all(name in r.totals for r in results)]
    return Summary(
        traces=len(results),
        requests=sum(r.requests for r in results),
        shares={name: geometric_mean(r.share(name) for r in results) for name in names},
        against_cheapest=geometric_mean(r.against_cheapest() for r in results),
        violations=sum(len(r.violations) for r in results),
    )


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive values. It is 0 if a value is not positive."""
    given = list(values)
    return math.exp(math.fsum(map(math.log, given)) / len(given)) if min(given, default=0.0) > 0 else 0.0


class Account:
    """One account at a provider, in virtual time."""

    def __init__(self, reader: PromptReader) -> None:
        self.total = Total()
        self._reader = reader
        self._cache = make_cache(reader.profile)

    def send(self, body: bytes, at: float, *, is_refresh: bool = False) -> Bill | None:
        """The bill of a request; None if the provider refuses it. ``is_refresh``: it only keeps a prefix alive."""
        try:
            prompt = self._reader.prompt(body)
        except UpstreamRejected:
            self.total.refused += 1
            return None
        cached = self._cache.bill(prompt, at)
        self._cache.store(prompt, at, at)
        self.total.waste.add(prompt, cached)
        bill = replace(cached, plain=cached.plain + TAIL_TOKENS)
        (self.total.refreshed if is_refresh else self.total.add)(bill)
        return bill
