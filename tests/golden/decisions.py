"""What the planner decides for the requests of a client, and what it learns from them, as rows of a table.

Each request goes the whole way: it is read, the state of the other process is adopted, it is planned, accepted or
refused, and its usage is reported. The rows tell the decisions in words and figures, and end with digests of all that
was sent, decided, learnt, and seen on the wire.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from hashlib import sha256
from random import Random
from textwrap import wrap

from msgspec import Struct

from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.planner.candidates import IncomingChat
from proxy.planner.diagnose import Conversations, Exchanged
from proxy.planner.plan import Plan, PlanResult, breakpoints, inventory_of
from proxy.planner.record import Break, Fingerprint, line_of, read_line, wire_record
from proxy.planner.sharing import COHORT, HEAD, SESSION, PackedCohort, PackedHead, PackedSession
from proxy.protocol.caches import Bill
from proxy.protocol.prices import Price
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from tests.golden.clients import Client, Sent
from tests.golden.reports import reported
from tests.talk import RECOGNISERS

_PRICE = Price.relative(0.1, 1.25, 2.0)
_WIDTH = 118
_LABEL = 10
_BEGIN = 1_800_000_000.0
_TALKS_BYTES = 200_000
_SURVIVALS = 12


class Decisions:
    """All that two processes decide for one client, request by request."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.plans: list[Plan] = []
        self.results: list[PlanResult] = []
        self.refreshes: list[str] = []
        self.wires: list[Break | None] = []
        # For each request: whether the process had its session by itself ("x"), from the store ("s"), or not at all.
        self.known = ""
        self._chance = Random(client.number)
        self._planners = [
            TierPlanner(bytes_over_four, RECOGNISERS, client.policy, client.options, client.memory_bytes, prefix)
            for prefix in "pq"
        ]
        self._talks = Conversations(_TALKS_BYTES)
        self._late: list[tuple[TierPlanner, Plan, Sent]] = []
        self._store: dict[str, bytes] = {}
        self._now = _BEGIN
        self._digests = {name: sha256() for name in ("sent", "decided", "learnt", "wire")}
        for one in client.requests:
            self._send(one)

    def _send(self, one: Sent) -> None:
        self._now += one.after_s
        planner = self._planners[one.process]
        plan = replace(self._planned(planner, one), price=_PRICE)
        assert plan.surprise is None, repr(plan.surprise)
        self.plans.append(plan)
        self._digests["sent"].update(plan.body)
        self._note("decided", *_decided(plan))
        waiting, self._late = self._late, []
        if one.fate == "late":
            self._late = [(planner, plan, one)]
        elif one.fate != "left":
            self._end(planner, plan, one)
        for ended in waiting:
            self._end(*ended)

    def _planned(self, planner: TierPlanner, one: Sent) -> Plan:
        body, client = json.dumps(one.body).encode(), self.client
        incoming = planner.read(planner.reader.parse(body), client.routes[one.route], client.mode, self._now)
        if not isinstance(incoming, IncomingChat):
            self.known += "-"
            return incoming
        lookup, asked = planner.state_lookup(incoming), set[str]()
        was_known = lookup.is_known()
        while names := [name for name in lookup.names() if name not in asked]:
            asked.update(names)
            lookup.adopt({name: self._store[name] for name in names if name in self._store})
        self.known += "x" if was_known else "s" if lookup.is_known() else "."
        self._note("learnt", len(asked))
        return planner.decide(incoming, lookup).written()

    def _end(self, planner: TierPlanner, plan: Plan, one: Sent) -> None:
        """The request meets its fate, and its usage is reported."""
        if one.fate in ("refused", "barred"):
            planner.refused(plan)
        scope, names = planner.on_accepted(plan, self._now + 1)
        if one.fate == "empty":
            planner.refused(plan)
            planner.on_accepted(plan, self._now + 2)
        elif one.fate == "barred":
            planner.barred(plan)
        self._store.update(planner.sent_front(names))
        usage = reported(plan, self.client.fault, one.after_s, self._chance)
        in_flight, is_planned = plan.in_flight, plan.mode > Mode.OBSERVE
        if in_flight is not None:
            stored = in_flight.stored(self._now, is_planned=is_planned)
            expected = in_flight.expected_break(plan.predicted)
            self._note("decided", stored, expected, breakpoints(in_flight, is_planned=is_planned))
        result = planner.on_completed(plan, usage, self._now + 3)
        self.results.append(result)
        self._note("decided", result, inventory_of(in_flight) if in_flight is not None else None)
        self._keep_alive(planner, plan)
        left_for, blobs = planner.export_state(plan)
        self._store.update(blobs)
        self._note("learnt", scope, len(names), left_for)
        self._see_wire(plan, usage)

    def _keep_alive(self, planner: TierPlanner, plan: Plan) -> None:
        refresh = planner.refresh_plan(plan, self._now + 3)
        if refresh is None:
            return
        self.refreshes.append(f"{refresh.times} x {refresh.period_s:g} s")
        self._note("decided", refresh.body, refresh.prompt.hashes, refresh.bill)
        planner.kept(refresh, self._now + refresh.period_s)

    def _see_wire(self, plan: Plan, usage: Usage | None) -> None:
        """The same request is diagnosed from its body alone, where no planner sees it."""
        record = wire_record(json.loads(plan.body), bytes_over_four, at=self._now)
        profile, found = self.client.provider, self._talks.find("team", record)
        broke = found.comparison.diagnosed(usage, profile, _PRICE) if found.comparison is not None else None
        self._talks.add("team", found, Exchanged(record.answered(usage, profile), str(len(self.plans)), "account"))
        self.wires.append(broke)
        told = Fingerprint(1, plan.session, "m", record, plan.client, profile.name)
        line = line_of(told, b"key")
        self._note(
            "wire", record, broke, broke and broke.expected_cause, found.previous("account"), read_line(line), line
        )

    def _note(self, name: str, *values: object) -> None:
        self._digests[name].update(repr(_plain(values)).encode())

    def rows(self) -> Iterator[str]:
        """The rows of the table."""
        client = self.client
        words = [client.kind, client.provider.name, client.mode.name.lower(), client.policy, *client.habits]
        yield f"client {client.number}: {', '.join(words)}; {client.fault}"
        for label, text in self._columns():
            lines = wrap(text, _WIDTH - _LABEL - 2, break_long_words=False, break_on_hyphens=False)
            yield from (f"  {label if at == 0 else '':{_LABEL}}{line}" for at, line in enumerate(lines))

    def _columns(self) -> Iterator[tuple[str, str]]:
        plans, results = self.plans, self.results
        yield "reasons", _counted(plan.reason for plan in plans)
        yield "markers", " | ".join(map(_marks, plans))
        yield "planned", _added(plan.predicted for plan in plans)
        yield "own", _added(plan.own for plan in plans)
        yield "marked", _added(result.marked for result in results)
        tiers = sum((Counter(plan.tier_tokens) for plan in plans), Counter[str]())
        yield "tiers", ", ".join(f"{tier} {tokens}" for tier, tokens in sorted(tiers.items()))
        yield "moves", _counted(f"{move.source}-{move.target} {move.reason}" for one in results for move in one.moves)
        yield "survival", _survival(plans[-1])
        yield "reports", _counted(result.deviation for result in results if result.deviation)
        yield "breaks", _breaks(one.broke for one in results)
        yield "on wire", _breaks(self.wires)
        yield "refreshes", _counted(self.refreshes)
        yield "known", self.known
        yield "learnt", "; ".join(self._learnt())
        yield "digests", ", ".join(f"{name} {found.hexdigest()[:8]}" for name, found in self._digests.items())

    def _learnt(self) -> Iterator[str]:
        """The facts that are left in the store at the end."""
        blobs = sorted(self._store.items())
        for kind, decoder in (("s", SESSION), ("l", COHORT), ("h", HEAD)):
            for name, blob in blobs:
                if name.startswith(kind):
                    found = decoder.decode(blob)
                    self._note("learnt", name, found)
                    yield _fact(found)


def _decided(plan: Plan) -> Iterator[object]:
    """The values of a plan that its bytes do not show."""
    yield from (plan.reason, plan.mode, plan.predicted, plan.own, plan.tier_tokens, plan.segment_tokens, plan.arm)
    yield from (plan.session, plan.headers, plan.client, plan.rewritten)
    if plan.in_flight is not None:
        analysis = plan.in_flight.analysis
        pricing = analysis.pricing()
        yield from (analysis.choice.score, pricing.regret_budget, pricing.own_now, analysis.observation)
        yield pricing.forecast.positions(analysis.choice.layout.elements)
        yield analysis.profile


def _plain(value: object) -> object:
    """The value as it is the same on every machine: floats are rounded, and sets are sorted."""
    match value:
        case float():
            return f"{value:.6g}"
        case Enum():
            return value.value
        case None | str() | int() | bytes():
            return value
        case Mapping():
            return [(_plain(key), _plain(one)) for key, one in value.items()]
        case set() | frozenset():
            return sorted(map(repr, map(_plain, value)))
        case Struct():
            return [_plain(getattr(value, name)) for name in value.__struct_fields__]
        case _ if is_dataclass(value):
            return [_plain(getattr(value, one.name)) for one in fields(value) if one.repr]
        case Iterable():
            return [_plain(one) for one in value]
        case _:
            return type(value).__name__


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(Counter(filter(None, words)).items()))


def _marks(plan: Plan) -> str:
    """The positions of the markers that were chosen; those that live for an hour have a star."""
    if plan.in_flight is None:
        return "-"
    marks = plan.in_flight.analysis.choice.marks
    return " ".join(f"{place}{'*' * (life == '1h')}" for place, life in sorted(marks.items())) or "-"


def _added(bills: Iterable[Bill | None]) -> str:
    """Tokens by rate, of all requests together."""
    found = [bill for bill in bills if bill is not None]
    sums = {name: sum(getattr(bill, name) for bill in found) for name in ("read", "write_5m", "write_1h", "plain")}
    return ", ".join(f"{name} {tokens}" for name, tokens in sums.items()) if found else ""


def _survival(plan: Plan) -> str:
    """The forecast for the last request: at most so many positions, from the front to the end."""
    if plan.in_flight is None:
        return ""
    analysis = plan.in_flight.analysis
    chances: Sequence[float] = analysis.pricing().forecast.positions(analysis.choice.layout.elements)
    step = len(chances) // _SURVIVALS + 1
    return " ".join(f"{chance:.3f}" for chance in chances[::step])


def _breaks(breaks: Iterable[Break | None]) -> str:
    found = [broke for broke in breaks if broke is not None]
    words = _counted(f"{one.kind} {one.culprit_kind}" for one in found)
    return f"{words}; lost {sum(one.lost for one in found)}" if found else ""


def _fact(found: object) -> str:
    match found:
        case PackedSession(memory=memory):
            counts = f"{memory.requests} requests, {len(memory.items)} pieces, {len(memory.documents)} documents"
            return f"session {found.id}: {counts}, {len(memory.layouts)} layouts{', barred' * memory.is_barred}"
        case PackedCohort(cohort=cohort):
            return f"cohort: {cohort.started} started, {cohort.continued} went on, {len(cohort.items)} pieces"
        case PackedHead(changes=changes):
            return (
                f"head: {[changes.of(place) for place in range(len(changes.places))]}, {len(changes.regions)} regions"
            )
        case _:
            raise TypeError(type(found))
