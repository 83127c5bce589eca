"""Replays a recorded session under several policies, each against a provider of its own, and adds up the bills.

The planner is the product's own, the provider really caches, time is virtual, and the network is never used. Structured
context is assembled as in the proxy, with the memory of the requests before (``ReplayedContexts``). ``Ours`` is the
planner with its provider; if prefixes are kept alive, the refreshes are sent between the recorded requests.

For comparison there are the policies of today's gateways. They keep the order and set markers by a fixed rule; only
the messages that gain or lose a marker are parsed and written anew. An ``Account`` at a provider, in virtual time, then
bills what a policy sends, and counts tokens that are written and never read (``Waste``). ``Result`` and ``Summary`` add
up the bills of a session and of several sessions.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from proxy.context import marked, section_of, unmarked
from proxy.context.assembly import in_tiers
from proxy.context.blocks import Assembly, AssemblyKind, file_block
from proxy.context.panels.board import NAME, PANEL
from proxy.context.session import AssembledChat
from proxy.kit.errors import InvalidRequest, MissingContent, UpstreamRejected
from proxy.kit.modes import Mode, Reason
from proxy.kit.value import dataclass, digest, field, replace
from proxy.lab import Step, Trace, TraceError
from proxy.lab.replay.fidelity import tools_of, violations
from proxy.planner import TierPlanner
from proxy.planner.keep_alive import RefreshPlan
from proxy.planner.plan import Plan, PlannerOptions
from proxy.planner.render import render_tools
from proxy.planner.shadow import cost_of
from proxy.planner.tiers import Tier
from proxy.protocol.caches import Bill, PromptPositions, make_cache
from proxy.protocol.providers import EMBEDDED, CacheProfile, Dialect
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request import Inset, head_of, parse_body
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import MARK_KEYS
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import Encode, TokenCounter, quick
from proxy.protocol.response.usage import BillSum, Usage
from proxy.protocol.wire.json_body import Unreadable, elements, members_of, parse_members, splice, text_json, value
from proxy.services.context_assembler import ContextAssembler
from proxy.upstream.embedded.provider import TAIL_TOKENS, PromptReader

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


def system_and_last(body: bytes, dialect: Dialect) -> bytes:
    """Markers on the system prompt and on the last message. Gateways inject these by default
    (litellm's ``cache_control_injection_points``; providers' own automatic caching marks the last block)."""

    return _marked_at(
        body,
        dialect,
        lambda roles: {next((i for i, role in enumerate(roles) if role in _SYSTEM), -1), len(roles) - 1} - {-1},
    )


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


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {AS_SENT: as_sent, CLIENT: lambda body, dialect: body, SYSTEM_LAST: system_and_last}
)

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

    def add(self, prompt: PromptPositions, bill: Bill) -> None:
        """Count one billed request. Everything up to its hit was useful; the tokens it wrote are not useful yet."""
        if not bill.read and not bill.write:
            return
        start = 0
        written_end = bill.read + bill.write
        for position, (name, end) in enumerate(zip(prompt.hashes, prompt.ends, strict=True)):
            if start >= written_end and position > bill.hit:
                break
            key = (prompt.scope, name)
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
        self.total.refreshes += is_refresh
        (self.total.refresh_bills if is_refresh else self.total).add(bill)
        return bill


class ReplayedContexts:
    """Assembles the requests of one session, in their order."""

    def __init__(self, assembler: ContextAssembler) -> None:
        self._assembler = assembler
        self._items: dict[str, Tier] = {}
        self._messages: list[Tier] = []
        self.panels: dict[int, str] = {}
        """The panel that each message of the last request belongs to, and since when its content is unchanged."""

    def assembled(self, step: Step, scope: str) -> AssembledChat | None:
        """The request with its context as messages; None for a request without structured context. Raises TraceError if
        the proxy would refuse the request."""
        try:
            sent = parse_body(step.body)
        except (InvalidRequest, Unreadable):
            return None
        if section_of(sent.members) is None:
            return None
        try:
            return self._assembler.chat_of(sent, scope, now=step.at)
        except (InvalidRequest, MissingContent, Unreadable) as error:
            at = f"the request at t = {step.at} of session '{step.session}'"
            raise TraceError(f"{at} has structured context that cannot be assembled: {error}") from error

    def plan(self, planner: TierPlanner, chat: AssembledChat, route: Route, mode: Mode, now: float) -> Plan:
        """The plan of an assembled request."""
        assembler = self._assembler
        placement = assembler.place(chat, route.profile)
        arranged = assembler.arrange(chat, placement, route.profile, mode, None)
        shown = arranged.assembly
        if placement is not None:
            self._items = placement.tier_of()
            shown = in_tiers(shown, placement) if arranged.kind is AssemblyKind.ECONOMIC else shown
        self._messages = [block.tier for block in shown.blocks for _ in block.messages]
        self.panels = dict(_panels(chat, arranged.assembly))
        route = replace(route, hint=chat.hint, is_told=False, moving=arranged.moving)
        return arranged.concluded(planner.plan(arranged.body, route, arranged.mode, now), mode)

    def tier_of(self, element: Element) -> str | None:
        """The tier of an element of the last request, by the conversation's own tracker: the tier of its file, or else
        of its message. It is empty for an element without a tier, and None if nothing was assembled."""
        if not self._messages:
            return None
        name = element.item.key.partition("/")[2].partition("#")[0] if element.item is not None else ""
        if name in self._items:
            return self._items[name].label
        tier = self._messages[element.message] if 0 <= element.message < len(self._messages) else Tier.ACTIVE
        return tier.label if tier is not Tier.ACTIVE or element.kind is not ElementKind.MESSAGE else ""


def _panels(chat: AssembledChat, assembly: Assembly) -> Iterator[tuple[int, str]]:
    """The panel of each message that shows one, by the message's index."""
    board = chat.dialogue.board
    if board is None:
        return
    since = {PANEL + panel.id: board.memory(panel).stamp_s for panel in chat.dialogue.panels}
    for index, item in assembly.shown(NAME):
        if item.key in since:
            at = datetime.fromtimestamp(since[item.key], UTC)
            yield index, f"{item.key.replace(':', ' ')}, the same since {at:%Y-%m-%d %H:%M:%S}"


def lost_items(chat: AssembledChat, body: bytes) -> list[str]:
    """The faults of a body by the fidelity rule of structured context: the body must hold each selected file, each
    symbol block and each message of the history."""
    context = chat.context
    items = [
        (f"file:{file.path}", text_json(file_block(file.path, file.text or ""))[1:-1]) for file in context.selected()
    ]
    items += [(f"symbol:{path}", text_json(context.symbols[path])[1:-1]) for path in context.mapped()]
    items += [(f"history:{index}", _said(turn.raw)) for index, turn in enumerate(chat.dialogue.conversation.history)]
    return [f"{key} is not in the request" for key, written in items if written not in body]


def _said(raw: bytes) -> bytes:
    """The content of a message. A marker may have turned the content into a list; its text has the same bytes."""
    try:
        return bytes(members_of(raw).get("content", raw))
    except Unreadable:
        return raw


_ACCOUNT = "replay"
_OUTPUT_TOKENS = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """How to replay: provider rules, mode, policy. Each provider and planner counts by ``encode``, which should count a
    text once (``counted_once``). ``on_sent`` sees each plan whose body the provider accepted (``--out``, checks).
    ``assembler`` makes the object that assembles structured context; without it, such requests go as they came.
    ``keep_alive``: prefixes are kept alive if that pays. ``served``: the rules that the upstream really follows, if
    they differ from the planner's rules and the planner has to learn them from the reports. ``inset`` are the
    operator's texts around the newest user message; ``options`` are the planner's."""

    profile: CacheProfile
    encode: Encode
    recognisers: Sequence[Recogniser]
    mode: Mode = Mode.TIER
    policy: str = "economic"
    baselines: Mapping[str, Baseline] = field(default_factory=lambda: BASELINES)
    on_sent: Callable[[Step, Plan], None] | None = None
    keep_alive: bool = False
    assembler: Callable[[], ContextAssembler] | None = None
    served: CacheProfile | None = None
    inset: Inset = Inset()
    options: PlannerOptions = PlannerOptions()

    @property
    def rules(self) -> CacheProfile:
        """The rules that the upstream bills by."""
        return self.profile if self.served is None else self.served

    def account(self) -> Account:
        """A new account at the upstream."""
        return Account(PromptReader(self.rules, self.encode))


def replay(trace: Trace, setting: Setting, on_step: Callable[[], None] = lambda: None) -> Result:
    """Run one trace; ``on_step`` is called once a request, for progress."""
    result = Result(trace.name, setting.profile, len(trace.steps))
    steps = [acceptable(step, setting.profile) for step in trace.steps]
    baselines = {AS_SENT: as_sent, **setting.baselines}
    # If no request has a marker, the client's own policy is the same as "as sent".
    has_marks = any(is_marked(step.body) for step in steps)
    accounts = {name: setting.account() for name in baselines if has_marks or name != CLIENT}
    ours = Ours(setting)
    tools: list[bytes] = []
    for number, recorded in enumerate(steps, 1):
        chat = ours.assembled(recorded)
        step = recorded if chat is None else replace(recorded, body=chat.body)
        for name, account in accounts.items():
            bill = account.send(sent_by(baselines[name], step.body, setting.profile.dialect), step.at)
            if name == AS_SENT and bill is not None:
                result.plain += bill.total
        plan = ours.send(step, chat)
        if plan.surprise is not None:
            result.surprises.append(f"request {number}: {type(plan.surprise).__name__} while planning")
        result.reasons[plan.reason] = result.reasons.get(plan.reason, 0) + 1
        result.violations += [f"request {number}: {text}" for text in _violations(step, plan, chat, setting, tools)]
        if (form := tools_of(step.body)) and form not in tools:
            tools.append(form)
        on_step()
    # No client returns any more: the refreshes that are still planned are in vain, and they cost.
    ours.refresh(math.inf)
    result.totals = {name: (accounts.get(name) or accounts[AS_SENT]).total for name in setting.baselines}
    result.totals[OURS] = ours.total
    return result


def counted_once(encode: Encode) -> Encode:
    """A counter that counts every text once, however many providers and planners see it."""
    counter = TokenCounter(encode)

    def count(text: str) -> int:
        return counter.count(digest(text.encode("utf-8", "surrogatepass")), text)

    return count


class Ours:
    """The planner and the provider that it talks to, with the sessions whose prefixes are kept alive. The planner
    counts tokens quickly, as the proxy does; the provider counts all of them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._account = setting.account()
        self.total = self._account.total
        self._planner = TierPlanner(quick(setting.encode), setting.recognisers, setting.policy, setting.options)
        self.contexts = ReplayedContexts(setting.assembler()) if setting.assembler is not None else None
        self._refreshes: dict[str, tuple[float, int, RefreshPlan]] = {}
        """The refreshes that are still to come, by session: when the next one is due, how many there are, and their
        plan."""

    def assembled(self, step: Step) -> AssembledChat | None:
        """The request with its structured context as messages; None if it has no structured context."""
        return self.contexts.assembled(step, _ACCOUNT) if self.contexts is not None else None

    def plan(self, step: Step, chat: AssembledChat | None = None) -> Plan:
        """Plan a request. ``chat`` is the same request in assembled form, if it was assembled."""
        setting, planner = self._setting, self._planner
        self.refresh(step.at)
        route = _route(step, setting)
        if chat is not None and self.contexts is not None:
            return self.contexts.plan(planner, chat, route, setting.mode, step.at)
        return planner.plan(step.body, route, setting.mode, step.at)

    def send(self, step: Step, chat: AssembledChat | None = None) -> Plan:
        """Plan a request and send it. The body of the returned plan is the one that the provider accepted."""
        setting, planner, plan = self._setting, self._planner, self.plan(step, chat)
        bill = self._account.send(plan.body, step.at)
        if bill is None and plan.rewritten:
            planner.refused(plan)
            plan = replace(plan, body=plan.original)
            bill = self._account.send(plan.body, step.at)
            if bill is not None:
                planner.barred(plan)
        if bill is not None:
            planner.on_accepted(plan, step.at)
            planner.on_completed(plan, _reported(bill), step.at)
            if plan.counted is not None:
                plan.counted(_reported(bill))
        self._refreshes.pop(plan.session, None)
        if bill is not None and setting.keep_alive and (work := planner.refresh_plan(plan, step.at)) is not None:
            self._refreshes[plan.session] = (step.at + work.period_s, work.times, work)
        if setting.on_sent is not None:
            setting.on_sent(step, plan)
        return plan

    def refresh(self, until: float) -> None:
        """Send the refreshes that are due before a time, in the order in which they are due."""
        while self._refreshes:
            session, (at, left, work) = min(self._refreshes.items(), key=lambda pair: pair[1][0])
            if at >= until:
                return
            bill = self._account.send(work.body, at, is_refresh=True)
            # Else the entry is gone already: the refresh has written it anew, and the client may not come.
            is_kept = bill is not None and bill.read >= bill.total / 2
            if is_kept:
                self._planner.kept(work, at)
            if is_kept and left > 1:
                self._refreshes[session] = (at + work.period_s, left - 1, work)
            else:
                del self._refreshes[session]


def _violations(
    step: Step, plan: Plan, chat: AssembledChat | None, setting: Setting, tools: Sequence[bytes]
) -> list[str]:
    """The faults that the fidelity rules find in a body that was sent. If tiers have decided the layout of structured
    context, its own rule replaces the rules for unmodified clients."""
    marks = setting.profile.max_marks
    if chat is None:
        # The original holds the operator's texts, too.
        came = plan.original if setting.inset else step.body
        return violations(came, plan.body, setting.recognisers, marks, tools)
    is_tiered = plan.reason == Reason.ASSEMBLED_TIERS
    found = [] if is_tiered else violations(plan.original, plan.body, setting.recognisers, marks, tools)
    return lost_items(chat, plan.body) + found


def _reported(bill: Bill) -> Usage:
    """The usage that the provider reports for a bill."""
    return Usage(
        prompt=bill.total,
        output=_OUTPUT_TOKENS,
        read=bill.read,
        write_5m=bill.write_5m,
        write_1h=bill.write_1h,
        writes_told=True,
        lives_told=True,
    )


def _route(step: Step, setting: Setting) -> Route:
    """The route of a wildcard entry of a model list: each model name that a client sends is a model of its own."""
    try:
        model = head_of(step.body).model
    except InvalidRequest:
        model = ""
    profile, inset = setting.profile, setting.inset
    return Route(scope="replay", name=model, model=model, profile=profile, server=EMBEDDED, inset=inset)


def acceptable(step: Step, profile: CacheProfile) -> Step:
    """The step without the client's markers if the provider refuses markers: its users would not send any."""
    is_refused = profile.refuses_unknown and profile.dialect.key != Dialect.CACHE_CONTROL.key
    return replace(step, body=sent_by(as_sent, step.body, profile.dialect)) if is_refused else step
