"""Two planners that share what they know through named blobs, as workers do through a store."""

import json
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.planner import sharing as snapshot
from proxy.planner.candidates import IncomingChat
from proxy.planner.plan import Plan
from proxy.planner.session import Session, SessionCohort, SessionMemory
from proxy.planner.shadow import Costs
from proxy.planner.sharing import StateLookup
from proxy.planner.tiers import Classic
from proxy.protocol.providers import PROFILES, CacheProfile
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.wire.json_body import Unreadable
from tests.examples import sampled
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING
from tests.talk import RECOGNISERS, Body, assistant, system, user

PROFILE = replace(PROFILES["anthropic"], min_tokens=1)
RULES = "\n".join(f"Rule {n}: answer question {n} briefly." for n in range(60))


class Workers:
    """Planners that take turns. ``blobs`` is the store between them; None: there is none."""

    def __init__(self, count: int, profile: CacheProfile = PROFILE, blobs: dict[str, bytes] | None = None) -> None:
        self.planners = [TierPlanner(bytes_over_four, RECOGNISERS, prefix=f"w{number}-") for number in range(count)]
        self.blobs = blobs
        self.route = Route("red", "m", "m", profile)
        self.number = 0
        self.now = 1_700_000_000.0
        self.rounds: list[int] = []

    def send(self, *messages: Body, scope: str = "red", gap_s: float = 20.0) -> Plan:
        """One request, planned by whose turn it is, and settled."""
        planner = self.planners[self.number % len(self.planners)]
        self.number += 1
        self.now += gap_s
        body = json.dumps({"model": "m", "messages": messages}).encode()
        route = replace(self.route, scope=scope)
        incoming = planner.read(planner.reader.parse(body), route, Mode.TIER, self.now)
        assert isinstance(incoming, IncomingChat)
        lookup = self._recall(planner, incoming) if self.blobs is not None else None
        plan = planner.decide(incoming, lookup).written()
        assert plan.surprise is None
        planner.on_accepted(plan, self.now)
        planner.on_completed(plan, None, self.now)
        if self.blobs is not None:
            left_for, blobs = planner.export_state(plan)
            assert left_for == scope
            self.blobs.update(blobs)
        return plan

    def _recall(self, planner: TierPlanner, incoming: IncomingChat) -> StateLookup:
        assert self.blobs is not None
        state_lookup, asked = planner.state_lookup(incoming), set[str]()
        self.rounds.append(0)
        while names := [name for name in state_lookup.names() if name not in asked]:
            asked.update(names)
            self.rounds[-1] += 1
            state_lookup.adopt({name: self.blobs[name] for name in names if name in self.blobs})
        assert self.rounds[-1] <= 3
        return state_lookup


def conversation(turns: int, name: str = "Ann") -> list[list[Body]]:
    """An editor's: one file changes with every request, and so does a line of the instructions."""
    history: list[Body] = []
    found = []
    for turn in range(turns):
        files = "".join(
            f"\n{path}\n```\n{'x = 1' * 200}\nVERSION = {version}\n```\n"
            for path, version in (("stable.py", 0), ("hot.py", turn))
        )
        question = user(f"{name}'s question {turn}?")
        shown = [user(EDITABLE_OPENING + files), assistant(EDITABLE_ACK)]
        found.append([system(f"{RULES}\nTickets: {turn}\nBe brief."), *history, *shown, question])
        history += [question, assistant(f"Answer {turn}. " * 30)]
    return found


def restarted(workers: Workers) -> Workers:
    """One that remembers nothing itself."""
    again = Workers(2, blobs=workers.blobs)
    del again.planners[0]  # its sessions would have the same ids
    again.now = workers.now
    return again


def outcome(workers: Workers, requests: list[list[Body]]) -> list[tuple[bytes, object]]:
    return [(plan.body, plan.predicted) for plan in (workers.send(*messages) for messages in requests)]


@pytest.mark.parametrize("name", sampled(["anthropic", "openai", "deepseek"], 3))
def test_two_that_share_plan_as_one_does(name: str) -> None:
    profile = replace(PROFILES[name], min_tokens=1)
    requests = conversation(14)
    alone = outcome(Workers(1, profile), requests)
    assert outcome(Workers(2, profile, {}), requests) == alone
    assert outcome(Workers(3, profile, {}), requests) == alone
    assert outcome(Workers(2, profile), requests) != alone


def test_one_round_trip_is_enough_once_a_session_is_known() -> None:
    workers = Workers(2, blobs={})
    outcome(workers, conversation(10))
    assert max(workers.rounds[2:]) <= 2
    assert sum(count == 1 for count in workers.rounds[4:]) >= 4, workers.rounds


def test_what_a_session_taught_is_known_to_the_next_one_elsewhere() -> None:
    def first_of_bob(workers: Workers) -> Plan:
        workers.send(system(RULES), user("Ann asks."))
        return workers.send(system(RULES), user("Bob asks."))

    plan, apart = first_of_bob(Workers(2, blobs={})), first_of_bob(Workers(2))
    assert plan.predicted.read > 0, "the instructions are in the cache, through another worker"
    assert apart.predicted.read == 0


def test_documents_stand_behind_the_instructions_whoever_is_asked() -> None:
    def moved(workers: Workers) -> list[bool]:
        found, turns = [], list[Body]()
        for number in range(4):
            documents = "".join(f'<document id="{n}">\n{RULES} {n}\n</document>\n' for n in (number, number + 1))
            turns.append(user(f"question {number}"))
            plan = workers.send(system(f"{RULES}\n{documents}Be terse."), *turns)
            turns.append(assistant("answer"))
            found.append(b"terse" in plan.body[: plan.body.index(b"<document")])
        return found

    assert moved(Workers(1)) == moved(Workers(3, blobs={})) == [True] * 4


def test_what_a_head_has_taught_leads_to_the_cohort_of_another_conversation() -> None:
    workers = Workers(1, blobs={})
    outcome(workers, [*conversation(6), *conversation(1, "Bob")])
    planner, blobs = restarted(workers).planners[0], workers.blobs or {}
    body = {"model": "m", "messages": [system(f"{RULES}\nTickets: 77\nBe brief."), user("Cid asks.")]}
    incoming = planner.read(planner.reader.parse(json.dumps(body).encode()), workers.route, Mode.TIER, workers.now)
    assert isinstance(incoming, IncomingChat)
    lookup = planner.state_lookup(incoming)
    first = lookup.names()
    lookup.adopt({name: blobs[name] for name in first if name in blobs})
    assert [name for name in lookup.names() if name not in first and name in blobs]


def test_scopes_are_apart() -> None:
    workers = Workers(2, blobs={})
    for messages in conversation(4):
        workers.send(*messages)
    plan = workers.send(*conversation(5)[4], scope="blue")
    assert plan.predicted.read == 0


def test_a_barred_session_is_barred_everywhere() -> None:
    workers = Workers(2, blobs={})
    first, second, third = conversation(3)
    plan = workers.send(*first)
    workers.planners[0].barred(plan)
    workers.blobs.update(workers.planners[0].export_state(plan)[1])
    assert workers.send(*second).reason == "barred"
    assert workers.send(*third).reason == "barred"


def test_what_is_older_is_not_taken() -> None:
    blobs: dict[str, bytes] = {}
    workers = Workers(1, blobs=blobs)
    requests = conversation(4)
    for messages in requests[:2]:
        workers.send(*messages)
    old = dict(blobs)
    session = workers.send(*requests[2]).session
    blobs.update(old)
    workers.send(*requests[3])
    found = snapshot.unpacked(snapshot.SESSION, blobs[f"s{session}"])
    assert found.memory.requests == 4


@pytest.mark.parametrize(
    "damage", [lambda blob: blob[:-3], lambda blob: b"", lambda blob: b"\x93\x02\x01", lambda blob: b"\xc1"]
)
def test_what_cannot_be_read_is_passed_over(damage: object) -> None:
    requests = conversation(6)
    blobs: dict[str, bytes] = {}
    workers = Workers(2, blobs=blobs)
    for messages in requests:
        plan = workers.send(*messages)
        for name in blobs:
            blobs[name] = damage(blobs[name])  # type: ignore[operator]
        assert plan.surprise is None


def damaged(value: object) -> Iterator[object]:
    """A decoded blob with one of its values replaced, in every place in turn: a number below zero, nothing in a list or
    in a text."""
    if isinstance(value, list):
        yield []
        for index, one in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in damaged(one))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from ({**value, key: other} for other in damaged(one))
    elif isinstance(value, str):
        yield ""
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield -7


@pytest.mark.parametrize("kind", list("slh"))
def test_a_blob_with_a_value_that_cannot_be_stops_no_plan(kind: str) -> None:
    *requests, last = conversation(4)
    blobs: dict[str, bytes] = {}
    workers = Workers(1, blobs=blobs)
    for messages in requests:
        workers.send(*messages)
    (name,) = (name for name in blobs if name[0] == kind)
    found = list(damaged(msgspec.msgpack.decode(blobs[name])))
    assert len(found) > 10
    for one in found[:: 1 + len(found) // 150]:
        again = Workers(1, blobs={**blobs, name: msgspec.msgpack.encode(one)})
        again.now = workers.now
        again.send(*last)


def test_another_version_is_no_snapshot() -> None:
    blobs: dict[str, bytes] = {}
    workers = Workers(1, blobs=blobs)
    plan = workers.send(*conversation(1)[0])
    packed = msgspec.msgpack.decode(blobs[f"s{plan.session}"])
    packed[0] = snapshot.VERSION + 1
    with pytest.raises(Unreadable):
        snapshot.unpacked(snapshot.SESSION, msgspec.msgpack.encode(packed))


@pytest.mark.parametrize("version", [3, 8, snapshot.VERSION - 1])
def test_state_that_an_earlier_version_wrote_is_left_out_and_learnt_anew(version: int) -> None:
    blobs: dict[str, bytes] = {}
    for messages in conversation(3):
        Workers(1, blobs=blobs).send(*messages)
    assert {name[0] for name in blobs} >= {"s", "l", "h"}
    for name in [name for name in blobs if name[0] in "slh"]:
        blobs[name] = msgspec.msgpack.encode([version, *msgspec.msgpack.decode(blobs[name])[1:-1]])
    workers = Workers(1, blobs=blobs)
    plan = workers.send(*conversation(4)[3])
    assert plan.surprise is None
    assert plan.predicted.read == 0


def test_everything_that_is_learnt_is_in_a_snapshot() -> None:
    """A new field must be packed, or be named here with its reason."""
    own = {"cohort", "shared_head", "known_by", "sent"}  # others' records; found out with every request
    packed = {*snapshot.PackedSession.__struct_fields__, *SessionMemory.__struct_fields__}
    renamed = {"tracker": "pieces"}
    for name in Session.__struct_fields__:
        assert name in own or renamed.get(name, name) in packed, name
    # What was listed last matters where pieces graduate by leaving the list: not where sessions are shared.
    state = {"items", "broken", "broken_by_history", "sequence"}
    assert set(vars(Classic())) == state | {"policy", "_last_listed"}


def test_blobs_hold_no_text() -> None:
    blobs: dict[str, bytes] = {}
    workers = Workers(1, blobs=blobs)
    for messages in conversation(4):
        workers.send(*messages)
    whole = b"".join(blobs.values())
    for text in (b"Rule 7", b"question", b"VERSION", b"Answer"):
        assert text not in whole


def test_costs_are_those_of_all() -> None:
    costs = Costs()
    costs.adopt(Costs().packed("a", 10.0, 12.0), "me")
    costs.adopt(costs.packed("me", 1.0, 1.0), "me")
    assert costs.sums() == (10.0, 12.0)
    costs.adopt(Costs().packed("a", 15.0, 20.0), "me")
    costs.adopt(Costs().packed("a", 11.0, 13.0), "me")
    costs.adopt(Costs().packed("b", 1.0, 2.0), "me")
    assert costs.sums() == (16.0, 22.0)
    with pytest.raises(Unreadable):
        costs.adopt(b"\x91\x01", "me")
    for number in range(40):
        costs.adopt(Costs().packed(f"n{number}", 1.0, 1.0), "me")
    assert len(costs.by_process) == 16


@pytest.mark.parametrize("gap", ["late", "failed"])
def test_a_session_whose_load_was_missed_once_goes_on_where_it_stopped(gap: str) -> None:
    """After a restart the answer of the store comes too late for one request, or not at all."""
    requests = conversation(12)
    steady = outcome(Workers(1), requests)
    workers = Workers(1, blobs={})
    session = [workers.send(*messages).session for messages in requests[:8]][-1]
    again = restarted(workers)
    body = json.dumps({"model": "m", "messages": requests[8]}).encode()
    planner, route = again.planners[0], again.route
    again.now += 20.0
    incoming = planner.read(planner.reader.parse(body), route, Mode.TIER, again.now)
    assert isinstance(incoming, IncomingChat)
    state_lookup = planner.state_lookup(incoming)
    early = state_lookup.names()
    plan = planner.decide(incoming, state_lookup).written()
    assert plan.session != session
    if gap == "late":
        known = workers.blobs or {}
        names = early
        for _ in range(3):
            state_lookup.adopt({name: known[name] for name in names if name in known})
            names = state_lookup.names()
    planner.on_accepted(plan, again.now)
    planner.on_completed(plan, None, again.now)
    plans = [again.send(*messages) for messages in requests[9:]]
    assert [plan.session for plan in plans] == [session] * 3
    reads = [plan.predicted.read for plan in plans if plan.predicted is not None]
    wanted = [predicted.read for _, predicted in steady[9:]]  # type: ignore[attr-defined]
    assert all(read >= 0.9 * least for read, least in zip(reads, wanted, strict=True)), (reads, wanted)


def test_a_cohort_that_has_seen_little_does_not_replace_one_that_has_seen_much() -> None:
    workers = Workers(1, blobs={})
    for name in ("Ann", "Bob", "Cid"):
        workers.send(system(RULES), user(f"{name} asks."))
    known = dict(workers.blobs or {})
    (cohort,) = (name for name in known if name.startswith("l"))
    young = restarted(workers)
    young.blobs = {}  # the store is away
    young.send(system(RULES), user("Dan asks."))
    young.blobs.update(known)
    young.send(system(RULES), user("Eve asks."))
    assert snapshot.unpacked(snapshot.COHORT, young.blobs[cohort]).cohort.started == 4


@pytest.mark.parametrize(
    ("place", "most"), [("gaps", 64), ("arrivals", 64), ("layouts", 4)], ids=["gaps", "arrivals", "layouts"]
)
def test_a_cohort_with_longer_lists_than_any_process_keeps_is_not_read(place: str, most: int) -> None:
    values: list[object] = [(b"x",)] * most if place == "layouts" else [1.0] * most
    cohort = SessionCohort(False)
    setattr(cohort, place, values)
    packed = snapshot.PackedCohort(snapshot.VERSION, cohort, {})
    assert getattr(snapshot.unpacked(snapshot.COHORT, msgspec.msgpack.encode(packed)).cohort, place) == values
    setattr(cohort, place, values + values[:1])
    with pytest.raises(Unreadable):
        snapshot.unpacked(snapshot.COHORT, msgspec.msgpack.encode(packed))


def test_what_another_process_has_learnt_of_a_cohort_does_not_rename_it() -> None:
    workers = Workers(1, blobs={})
    own = workers.send(system(RULES), user("Ann asks.")).in_flight.analysis.session.cohort.key
    known = workers.blobs or {}
    (name,) = (name for name in known if name.startswith("l"))
    theirs = snapshot.PackedCohort(snapshot.VERSION, SessionCohort(True, b"theirs", started=7), {})
    known[name] = msgspec.msgpack.encode(theirs)
    plan = workers.send(system(RULES), user("Ben asks."))
    cohort = plan.in_flight.analysis.session.cohort
    assert (cohort.has_tools, cohort.key, cohort.started) == (False, own, 8)
