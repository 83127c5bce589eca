"""One request does not hold up the others: what is done to a body grows no faster than the body, whatever it is."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from functools import cache

import msgspec
import orjson
import pytest

from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.engine.telemetry.metrics import Metrics
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit import secrets as redaction
from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Mode
from proxy.kit.tasks import LARGE_BYTES, Aside
from proxy.models import Deployment, Transport
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan
from proxy.protocol.access import unambiguous
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import head_of, untouched
from proxy.protocol.request.demand import demand_of
from proxy.protocol.request.reader import BodyCache, Route
from proxy.protocol.request.tokens import Encode, quick
from proxy.protocol.wire.json_body import PIECE_BYTES, Unreadable, mended, parse_members, value_spans
from proxy.services import local_encode
from proxy.services.planner_port import Planning
from tests.examples import sampled
from tests.growth import assert_linear
from tests.security.bodies import CHATS, WIRE
from tests.security.provider import Answer, event
from tests.security.threads import on_the_loop, watched
from tests.security.world import CONFIG, World, chat, world_of

KIB = 1 << 10


def taken_apart(body: bytes) -> None:
    """All that is done to a body's own bytes where it is not planned."""
    with contextlib.suppress(InvalidRequest):
        head = head_of(body, BodyCache().parse)
        unambiguous(head)
        untouched(head, "another")
        demand_of("POST", "/chat/completions", head.asked)
        demand_of("POST", "/completions", head.asked)


@pytest.mark.parametrize("name", sampled(sorted(WIRE), 3))
def test_a_body_is_taken_apart_in_linear_time(name: str) -> None:
    assert_linear(taken_apart, WIRE[name], 256 * KIB)


@pytest.mark.parametrize("unit", [rb"\"", rb"\\", b"a", rb"\u0041"])
def test_spans_are_found_in_linear_time_however_a_name_is_written(unit: bytes) -> None:
    # What has such names is not taken apart, but the routine does not rely on that.
    members = {"": msgspec.Raw(b"1")}
    assert_linear(
        lambda body: value_spans(body, members), lambda size: b'{"' + unit * (size // len(unit)) + b'":1}', 256 * KIB
    )


@pytest.mark.parametrize("name", ["name-of-letters", "name-of-escaped-quotes", "many-names"])
def test_what_has_absurd_names_is_not_taken_apart_and_goes_where_it_should(name: str) -> None:
    body = WIRE[name](400 * KIB)
    with pytest.raises(Unreadable):
        parse_members(body)
    head = head_of(body)
    assert (head.model, head.parsed) == ("m", None)


@pytest.mark.parametrize("name", ["model-of-letters", "model-of-objects", "options-of-objects", "user-of-escapes"])
def test_a_member_that_decides_is_short_or_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="shorten it"):
        head_of(WIRE[name](64 * KIB))


@pytest.mark.parametrize("name", ["long-number-of-choices", "long-fraction", "long-exponent", "long-limit"])
def test_a_number_that_decides_is_short_or_none(name: str) -> None:
    demand = demand_of("POST", "/chat/completions", head_of(WIRE[name](64 * KIB)).asked)
    assert demand.max_output_tokens is None
    assert demand.unclear == ("" if name == "long-limit" else "n")


def test_what_is_read_in_the_place_of_half_a_character_leaves_all_else_as_it_was() -> None:
    body = (
        rb'{"half":"\ud83d","other":"\uDFFF\uD800","whole":"\uD7a3\u00e9",'
        rb'"path":"\\ud83d\\","quoted":"\"\\ud800","wide":"\u20ac"}'
    )
    found = msgspec.json.decode(mended(body), type=dict[str, str])
    assert {name: found[name] for name in ("whole", "path", "quoted", "wide")} == {
        "whole": "\ud7a3\u00e9", "path": "\\ud83d\\", "quoted": '"\\ud800', "wide": "\u20ac"
    }  # fmt: skip
    assert (len(found["half"]), len(found["other"])) == (1, 2)


ROUTE = Route(scope="s", name="m", model="m", profile=PROFILES["anthropic"])
DEPLOYMENT = Deployment(name="m", model="m", transport=Transport.HTTP, profile=PROFILES["anthropic"])


@pytest.fixture
def short_switches() -> Iterator[None]:
    """Threads take turns as they do in the server."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before)


@cache
def counting() -> Encode:
    """The server's own; to read its table takes a second."""
    return quick(local_encode())


def planning() -> Planning:
    """As the server has it: no recogniser searches a very long text."""
    return Planning(TierPlanner(counting(), recognisers(build_plugin_manager(), Metrics())))


async def planned(planner: Planning, body: bytes, now: float = 1.0) -> Plan:
    """The plan of a request that is counted, as the engine has it made."""
    principal = Principal(scope="s")
    head = await Aside().run_large(len(body), lambda: head_of(body, planner.parse))
    assert head.parsed is not None
    plan = await planner.plan(PlanRequest(head.parsed, DEPLOYMENT, principal, Mode.TIER, now))
    planner.on_accepted(plan, now)
    planner.on_completed(plan, None, now)
    return plan


def longest_turn_s(body: bytes) -> float:
    """The most CPU that this process takes between two turns of the event loop while a body is planned. CPU, not time:
    what else runs on the machine does not count."""

    async def main() -> float:
        gaps: list[float] = []

        async def tick() -> None:
            last = time.process_time()
            while True:
                await asyncio.sleep(0.0005)
                now = time.process_time()
                gaps.append(now - last)
                last = now

        planner = planning()
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.005)
        await planned(planner, body)
        await asyncio.sleep(0.005)
        ticking.cancel()
        return max(gaps)

    return asyncio.run(main())


@pytest.mark.parametrize("name", sampled(sorted(CHATS), 12))
def test_the_event_loop_gets_its_turns_while_a_large_chat_is_planned(name: str, short_switches: None) -> None:
    """A turn takes no longer for a body of four times the size: the work is done in pieces, or elsewhere. What looks
    longer is measured again: on a busy machine the loop may wait for the processor while its helper works on."""
    small = min(longest_turn_s(CHATS[name](1 << 20)) for _ in range(2))
    most, large = 2.5 * max(small, 0.04), CHATS[name](4 << 20)
    assert any(longest_turn_s(large) < most for _ in range(8))


class _Decoder:
    """orjson, with a note of how long each text was that it was given."""

    def __init__(self) -> None:
        self.most = 0

    def loads(self, text: bytes) -> object:
        self.most = max(self.most, len(text))
        return orjson.loads(text)

    def __getattr__(self, name: str) -> object:
        return getattr(orjson, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["escapes", "emoji", "prose", "one-long-word-in-the-system-text"])
def test_no_long_text_is_decoded_in_one_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = _Decoder()
    for module in ("proxy.protocol.request.message", "proxy.protocol.wire.json_body"):
        monkeypatch.setattr(f"{module}.orjson", decoder)
    assert asyncio.run(planned(planning(), CHATS[name](3 * PIECE_BYTES))).surprise is None
    assert 0 < decoder.most < 1.1 * PIECE_BYTES


@pytest.mark.parametrize("name", sampled(sorted(CHATS), 7, 1))
def test_a_chat_is_planned_in_linear_time(name: str) -> None:
    def work(body: bytes) -> None:
        planner = TierPlanner(counting(), recognisers(build_plugin_manager()))
        plan = planner.plan(body, ROUTE, Mode.TIER, 1.0)
        planner.on_accepted(plan, 1.0)
        planner.on_completed(plan, None, 1.0)

    assert_linear(work, CHATS[name], 60 * KIB)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["files", "messages", "documents", "tools", "parts"])
def test_a_large_request_gets_the_layout_that_one_step_gives(name: str) -> None:
    body = CHATS[name](LARGE_BYTES + 300 * KIB)
    assert len(body) > LARGE_BYTES
    grown = body[:-1] + b',"temperature":1}'

    async def beside() -> list[bytes]:
        planner = planning()
        return [(await planned(planner, each, at)).body for at, each in ((1.0, body), (20.0, grown), (40.0, body))]

    planner, at_once = TierPlanner(counting(), recognisers(build_plugin_manager())), []
    for at, each in ((1.0, body), (20.0, grown), (40.0, body)):
        plan = planner.plan(each, ROUTE, Mode.TIER, at)
        planner.on_accepted(plan, at)
        planner.on_completed(plan, None, at)
        at_once.append(plan.body)
    assert asyncio.run(beside()) == at_once


def test_small_requests_are_planned_while_a_large_one_is(short_switches: None) -> None:
    async def main() -> int:
        planner, done = planning(), 0
        large = asyncio.create_task(planned(planner, CHATS["escapes"](8 << 20)))
        while not large.done():
            plan = await planned(planner, CHATS["messages"](2_000))
            assert plan.surprise is None
            done += 1
            await asyncio.sleep(0.001)
        return done

    assert asyncio.run(main()) > 5


def test_what_cannot_be_read_is_found_out_once_and_passes_whole() -> None:
    body = CHATS["parts"](LARGE_BYTES)[:-2] + b',{"role":7}]}'
    plan = asyncio.run(planned(planning(), body))
    assert (plan.reason, plan.rewritten, plan.surprise) == ("unreadable", False, None)


# What looks at a whole body, or at as much of it as there is.
STEPS = (
    "proxy.engine.chat:head_of", "proxy.engine.chat:unambiguous", "proxy.engine.chat:untouched",
    "proxy.engine.chat:may_be_signed",
    "proxy.engine.intake:reach_of_request", "proxy.engine.intake:demand_of", "proxy.engine.intake:session_key",
    "proxy.engine.raw_requests:raw_call", "proxy.engine.raw_requests:unambiguous",
    "proxy.engine.custody:references_in", "proxy.protocol.request.reader:parse_members",
)  # fmt: skip
SPREAD = CONFIG.replace("model_name: dear", "model_name: cheap", 1).replace(
    "transport: http", "transport: http, cache_profile: anthropic"
)
"""Two deployments of one model: requests of a session go where the ones before them went. The model has a cache: panels
that change are moved."""
_SIZE = LARGE_BYTES + 200 * KIB
LARGE = {
    "chat": json.dumps(chat(text="a" * _SIZE)).encode(),
    "tools": CHATS["tools"](_SIZE).replace(b'"m"', b'"cheap"', 1),
    "not taken apart": WIRE["halves-in-capitals"](_SIZE).replace(b'"m"', b'"cheap"', 1),
    "names": WIRE["settings-of-names"](_SIZE).replace(b'"m"', b'"cheap"', 1),
}


@pytest.fixture(scope="module")
def spread() -> Iterator[World]:
    """A proxy whose model has two deployments."""
    with world_of(SPREAD) as running:
        yield running


@pytest.mark.parametrize("body", sampled(LARGE.values(), 2), ids=LARGE)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("mode", ["tier", "passthrough"])
def test_no_step_looks_at_a_large_body_on_the_event_loop(
    spread: World, body: bytes, path: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch, *STEPS)
    reply = spread.call("POST", path, body, headers=[("x-stratiform-mode", mode)], key="team-a")
    assert reply.status == 200
    # What a request costs is read from a few of its members, however large the others are.
    assert [one for one in on_the_loop(seen) if not one.startswith("demand_of")] == []
    assert {one.partition(" ")[0] for one in seen} >= {"unambiguous", "references_in", "session_key"}


def test_no_step_reads_a_large_conversation_with_panels_on_the_event_loop(
    spread: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch, *STEPS, "proxy.protocol.request:elements")
    each = "word " * 2_000
    talk = [{"role": role, "content": each} for _ in range(_SIZE // len(each) // 2) for role in ("user", "assistant")]
    for turn in range(2):  # the second request has lost its oldest messages, and a panel has moved
        panels = [{"id": "a", "content": f"{turn}"}, {"id": "b", "content": "y"}]
        messages = [*talk[2 * turn :], {"role": "user", "content": "hi"}]
        body = {"model": "cheap", "messages": messages, "stratiform": {"panels": panels}}
        assert spread.call("POST", "/v1/chat/completions", body, key="team-a").status == 200
    assert {one.partition(" ")[0] for one in seen} >= {"elements", "may_be_signed"}
    assert [one for one in on_the_loop(seen) if not one.startswith("demand_of")] == []


@pytest.mark.parametrize(
    "name", sampled(["raw-halves", "many-names", "settings-of-names", "prompts", "long-number"], 3)
)
def test_no_large_body_is_bounded_on_the_event_loop(spread: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [f"proxy.teams.estimates:{step}" for step in ("parse_body", "of_bytes", "elements", "digest", "weigh")]
    seen = watched(monkeypatch, *steps, least=64 * KIB)
    spread.call("POST", "/v1/chat/completions", WIRE[name](_SIZE).replace(b'"m"', b'"cheap"', 1), key="tight")
    assert seen
    assert on_the_loop(seen) == []


def test_many_small_messages_are_not_weighed_on_the_event_loop(spread: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch, "proxy.teams.estimates:weigh")
    messages = [{"role": "user", "content": f"question {number}"} for number in range(1_000)]
    spread.call("POST", "/v1/chat/completions", {"model": "cheap", "messages": messages, "max_tokens": 1}, key="tight")
    assert len(seen) >= len(messages)
    assert on_the_loop(seen) == []


def test_what_tools_cost_is_not_counted_on_the_event_loop(spread: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch, "proxy.engine.intake:demand_of")
    assert spread.call("POST", "/v1/chat/completions", LARGE["tools"], key="team-a").status == 200
    assert on_the_loop(seen) == []


def test_a_small_request_is_served_on_the_event_loop_alone(spread: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch, *STEPS)
    assert spread.call("POST", "/v1/chat/completions", chat(), key="team-a").status == 200
    assert on_the_loop(seen) == seen


@pytest.mark.parametrize("size", [4096, 1 << 22])
def test_an_error_in_a_stream_is_looked_through_in_linear_time(spread: World, size: int) -> None:
    def work(data: bytes) -> None:
        chunks = tuple(data[at : at + size] for at in range(0, len(data), size))
        for provider in spread.providers.values():
            provider.script = lambda seen: Answer(200, chunks, [("content-type", "text/event-stream")])
        reply = spread.call("POST", "/v1/chat/completions", chat(stream=True), key="team-a")
        assert b"cut by the proxy" in reply.body
        assert len(reply.body) < 64 * KIB

    def answer(size: int) -> bytes:
        return event({"choices": []}) + event({"error": {"message": "sk-****" * size}})

    assert_linear(work, answer, 35_000, time.process_time)


def test_an_error_is_looked_through_in_linear_time(spread: World) -> None:
    def work(message: str) -> None:
        for provider in spread.providers.values():
            provider.script = lambda seen: Answer(400, {"error": {"message": message, "code": "no_such_model"}})
        reply = spread.call("POST", "/v1/chat/completions", chat(), key="team-a")
        assert (reply.status, reply.json["error"]["code"]) == (400, "no_such_model")
        assert len(reply.body) < 64 * KIB

    assert_linear(work, lambda n: "sk-****" * n, 35_000, time.process_time)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["sk-****", "xxxx-", "%41", "abcdefgh "])
def test_a_key_is_looked_for_in_linear_time(unit: str) -> None:
    looking = redaction.Redaction(["sk-0123456789abcdef"])
    assert_linear(lambda text: looking.body(text), lambda size: (unit * (size // len(unit))).encode(), 64 * KIB)
