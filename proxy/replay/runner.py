"""Runs a recorded session under several policies, each against a provider of its own, and adds up the bills.

Time is virtual. Structured context is assembled as in the proxy, with the memory of the requests before
(``ReplayedContexts``). ``Ours`` is the planner with its provider; if prefixes are kept alive, the refreshes are sent
between the recorded requests.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from proxy.core.caches.cache import Bill
from proxy.core.digest import digest
from proxy.core.layout.tiers import Tier
from proxy.core.modes import Mode
from proxy.core.planner.keep_alive import RefreshPlan
from proxy.core.planner.plan import Plan, PlannerOptions
from proxy.core.planner.planner import TierPlanner
from proxy.core.prompts.prompt import Inset
from proxy.core.providers import CacheProfile, Dialect
from proxy.core.providers.affinity_key import EMBEDDED
from proxy.core.reasons import Reason
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.parsed_body import head_of, parse_body
from proxy.core.request.reader import Route
from proxy.core.request.tokens import Encode, TokenCounter, quick
from proxy.core.response.usage import Usage
from proxy.core.structured.assembly import in_tiers
from proxy.core.structured.blocks import Assembly, AssemblyKind, file_block
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.context import section_of
from proxy.core.structured.panels.inlay import NAME, PANEL
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import Unreadable, members_of, text_json
from proxy.errors import InvalidRequest, MissingContent
from proxy.planning.context_assembler import ContextAssembler
from proxy.replay.fidelity import tools_of, violations
from proxy.replay.totals import AS_SENT, BASELINES, CLIENT, OURS, Account, Baseline, Result, as_sent, is_marked, sent_by
from proxy.replay.trace import Step, Trace, TraceError
from proxy.upstream.embedded import PromptReader


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
        route = replace(route, hint=chat.context.session, moving=arranged.moving)
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
