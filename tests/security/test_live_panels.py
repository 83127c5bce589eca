"""Attacks on live panels, the rules of the history and compaction: small bodies that cost much, work that holds up
others, state that grows, and what belongs to others."""

import tracemalloc
from collections.abc import Iterator

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context.session import AssemblyOptions
from proxy.protocol.prices import Price
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.services.context_assembler import ContextAssembler, Resolved
from proxy.services.context_sessions import PanelBill
from tests.examples import sampled
from tests.security.provider import INPUT_USD, OUTPUT_USD, Answer, Seen, event
from tests.security.threads import on_the_loop, watched
from tests.security.world import CONFIG, World, chat, world_of

CHAT = "/v1/chat/completions"
SECRET = "the otter sleeps below the mill"
PRICE = Price.relative(0.1, 1.25, 2.0)


def panel(content: str = SECRET, panel_id: str = "p", **more: object) -> dict[str, object]:
    return {"id": panel_id, "kind": "file", "header": "notes", "content": content, **more}


def calls(count: int, panel_id: str = "p") -> list[dict[str, object]]:
    """So many calls for a panel, as a model makes them."""
    arguments = orjson.dumps({"id": panel_id}).decode()
    function = {"name": "dynamic_panel", "arguments": arguments}
    return [{"id": f"call_{n}", "type": "function", "function": function} for n in range(count)]


def calling(count: int) -> Answer:
    """An answer that calls for the panel so often, and reports what it has used."""
    message = {"role": "assistant", "content": None, "tool_calls": calls(count)}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return Answer(body={"id": "c", "object": "chat.completion", "created": 1, "choices": [choice]})


class Metered:
    """A model that calls for a panel in each answer, at a provider that reports and bills each call by its size. Each
    ``long_at``th answer has ``long`` tokens, and the others have five."""

    def __init__(self, count: int, long: int = 5, long_at: int = 3) -> None:
        self.count, self.usd, self.calls = count, 0.0, 0
        self.long, self.long_at = long, long_at

    def __call__(self, seen: Seen) -> Answer:
        prompt, answer = len(seen.body) // 4, calling(self.count)
        self.calls += 1
        output = 5 if self.calls % self.long_at else self.long
        self.usd += prompt * INPUT_USD + output * OUTPUT_USD
        assert isinstance(answer.body, dict)
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        return Answer(body={**answer.body, "usage": usage})


@pytest.fixture(scope="module")
def live() -> Iterator[World]:
    """A proxy that the tests of this file share."""
    with world_of(CONFIG) as running:
        yield running


# What a model's calls of panels cost


@pytest.mark.parametrize("count", [1, 8])
def test_calls_of_a_panel_never_cost_more_than_a_hard_budget_has_set_aside(count: int) -> None:
    model = Metered(count)
    with world_of(CONFIG) as world:
        world.providers["alpha"].script = model
        section = {"session": "s", "panels": [panel("word " * 3_000)]}
        statuses = [world.call("POST", CHAT, chat(stratiform=section), key="tight").status for _ in range(6)]
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert model.usd <= 0.05
        assert world.spent("tight") == pytest.approx(model.usd)


@pytest.mark.parametrize("long_at", [1, 2, 3])
def test_each_call_of_a_panel_may_use_its_whole_output_limit(long_at: int) -> None:
    model = Metered(1, long=1_200, long_at=long_at)
    with world_of(CONFIG) as world:
        world.providers["alpha"].script = model
        section = {"session": "s", "panels": [panel("word " * 500)]}
        ask = chat(stratiform=section, max_tokens=1_200)
        statuses = [world.call("POST", CHAT, ask, key="tight").status for _ in range(8)]
        assert (statuses[0], statuses[-1]) == (200, 429)
        assert model.usd <= 0.05
        assert world.spent("tight") == pytest.approx(model.usd)


def test_many_calls_of_a_large_panel_are_given_up_before_their_results_are_written(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch, "proxy.context.panels:panel_text")
    live.providers["alpha"].script = lambda seen: calling(64)
    section = {"session": "large", "panels": [panel("x" * 900_000)]}
    assert live.call("POST", CHAT, chat(stratiform=section), key="team-a").status == 200
    assert len(live.sent()) == 1
    assert 0 < len(seen) <= 10  # as many calls as have room
    assert on_the_loop(seen) == []


@pytest.mark.parametrize("pieces", [1, 2])
def test_no_call_of_ours_reaches_a_client_however_many_a_stream_has(live: World, pieces: int) -> None:
    live.forget()

    def delta(**said: object) -> bytes:
        return event({"id": "c", "choices": [{"index": 0, "delta": said}]})

    def streamed(index: int, call: dict[str, object]) -> bytes:
        if pieces == 1:
            return delta(tool_calls=[{"index": index, **call}])
        function = {"name": "dynamic_panel", "arguments": ""}
        first = delta(tool_calls=[{"index": index, **call, "function": function}])
        return first + delta(tool_calls=[{"index": index, "function": {"arguments": "{}"}}])

    end = event({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    events = [streamed(index, call) for index, call in enumerate(calls(1_500))]
    kind = [("content-type", "text/event-stream")]
    live.providers["alpha"].script = lambda seen: Answer(200, (*events, end, b"data: [DONE]\n\n"), kind)
    body = chat(stream=True, stratiform={"session": "wild", "panels": [panel()]})
    reply = live.call("POST", CHAT, body, key="team-a")
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert b"tool_calls" not in reply.body
    assert len(live.sent()) == 1


# What is held up, and what is held


def resolved(subject: ContextAssembler, section: dict[str, object]) -> Resolved:
    return subject.resolve(subject.read(parse_body(orjson.dumps(chat(stratiform=section)))), "key", "")


def test_a_session_that_is_forgotten_while_its_request_is_read_is_no_error() -> None:
    subject = ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions(session_bytes=20_000))
    found = resolved(subject, {"session": "slow", "panels": [panel()]})
    chat, counted, blocks = subject.assembled(found, subject.context(found, subject.index(found)), 1.0e9)
    for number in range(50):
        resolved(subject, {"session": f"{number}", "panels": []})
    assert subject.sessions.known("key", "slow") is None
    subject.know(found, counted, blocks)
    subject.remember(found, chat)


LONG = "value = compute(a, b)\n" * 400
TURNS = [{"role": role, "content": f"{n} {LONG}"} for n in range(45) for role in ("user", "assistant")]
PROMPT = {"role": "user", "content": "go on"}
SHORT = [{"role": role, "content": f"{n}"} for n in range(45) for role in ("user", "assistant")]
LIVE = {
    "messages": ([*TURNS, PROMPT], {"panels": [], "detach": False}),
    "short forms": (
        [*SHORT, PROMPT],
        {"messages_meta": [{"index": n, "status": "summarized", "tl_dr": f"{n} {LONG}"} for n in range(90)]},
    ),
    "frozen parts": ([*TURNS, PROMPT], {"panels": []}),
    "panels": ([PROMPT], {"panels": [panel(f"{n} {LONG}", f"p{n}") for n in range(90)]}),
}


@pytest.mark.parametrize("name", sampled(LIVE, 2))
def test_no_long_text_of_a_conversation_is_looked_at_on_the_event_loop(
    live: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, section = LIVE[name]
    places = ("proxy.context:digest", "proxy.services.context_sessions:digest")
    seen = watched(monkeypatch, *places, least=len(LONG))
    body = chat(messages=messages, stratiform={"session": name, **section})
    assert live.call("POST", CHAT, body, key="team-a").status == 200
    live.ledger("team-a")
    assert seen
    assert on_the_loop(seen) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["new sessions", "new panels", "many panels"])
def test_what_is_remembered_of_panels_is_bounded(kind: str) -> None:
    most = 1 << 18
    subject = ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions(session_bytes=most))
    # The counts of texts have a bound of their own.
    subject.sessions.counter = TokenCounter(capacity=100)
    rounds = 40 if kind == "many panels" else 120

    def go_on(number: int) -> None:
        name = "one" if kind == "new panels" else f"{number}"
        count = 100 if kind == "many panels" else 20
        shown = [panel(f"{number}", f"{'p' * 40}{number}-{n}") for n in range(count)]
        body = chat(text=f"turn {number}", stratiform={"session": name, "panels": shown})
        made = subject.chat_of(parse_body(orjson.dumps(body)), "key", now=1.0e9 + number)
        board = made.dialogue.board
        assert board is not None
        bill = PanelBill(made.order, made.reading.panel_tokens, board, PRICE)
        subject.sessions.counted(made, bill, PROFILES["anthropic"], None, None)

    tracemalloc.start()
    for number in range(rounds):
        go_on(number)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(rounds, 2 * rounds):
        go_on(number)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held - before < most
    assert held < 4 * most


# What belongs to others, and what is told to nobody


def asked(subject: ContextAssembler, scope: str, section: dict[str, object], now: float) -> None:
    """A request with panels, of this key."""
    subject.chat_of(parse_body(orjson.dumps(chat(stratiform=section))), scope, now=now)


@pytest.mark.parametrize("name", ["shared", ""])
def test_no_key_learns_when_another_keys_panel_has_changed(name: str) -> None:
    subject = ContextAssembler(load_context_texts(), bytes_over_four)
    section: dict[str, object] = {"session": name, "panels": [panel(), panel("more", "q")]}
    for scope, now in (("first", 1.0e9), ("second", 2.0e9), ("first", 3.0e9)):
        asked(subject, scope, section, now)
    boards = {scope: session.state.board for (scope, _), session in subject.sessions._held.items()}
    stamps = {scope: {memory.stamp_s for memory in board.panels.values()} for scope, board in boards.items()}
    assert stamps == {"first": {1.0e9}, "second": {2.0e9}}


def test_a_breakdown_moves_no_panel(live: World) -> None:
    live.forget()
    live.providers["alpha"].script = None
    bodies = [chat(stratiform={"session": "still", "panels": [panel(text), panel("q", "q")]}) for text in ("p", "new")]
    for path, body in ((CHAT, bodies[0]), ("/v1/stratiform/breakdown", bodies[1]), (CHAT, bodies[0])):
        assert live.call("POST", path, body, key="team-a").status == 200
    first, second = (seen.json["messages"] for seen in live.sent())
    assert first == second


@pytest.mark.parametrize("status", ["deleted", "summarized", "frozen"])
def test_nothing_of_panels_and_short_forms_is_logged_or_counted_by_name(live: World, status: str) -> None:
    live.forget()
    live.providers["alpha"].script = None
    metas = [{"index": 0, "status": status, **({"tl_dr": SECRET} if status == "summarized" else {})}]
    shown = [panel(SECRET, "otter_panel", kind="otter_kind", header=SECRET)]
    messages = [{"role": role, "content": SECRET} for role in ("user", "assistant", "user")]
    body = chat(messages=messages, stratiform={"session": status, "panels": shown, "messages_meta": metas})
    reply = live.call("POST", CHAT, body, key="team-a")
    assert reply.status == (400 if status == "frozen" else 200)
    told = (live.log, live.metrics(), str(reply.headers), reply.body.decode())
    assert [text for text in told if "otter" in text] == []
