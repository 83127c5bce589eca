"""Upstreams that refuse to be asked for usage in streams; sessions stay where they are."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import orjson
import pytest

from proxy.engine.attempts import OurEdit, QuestionOptOut, ordered
from proxy.kit.errors import UpstreamRejected
from proxy.kit.modes import Mode
from proxy.models import Deployment, Transport
from proxy.protocol.providers import PROFILES
from tests.doubles import ModelList, RewritingPlanner, make_deployment
from tests.examples import for_every
from tests.unit.engine.parts import DONE, JSON, ROLE, SSE, WORD, Bench, MemoryClient, Script, answers, chat_body

UNKNOWN = b'{"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}'
VAGUE = b'{"error": {"message": "invalid request"}}'


def refusal(body: bytes = VAGUE, status: int = 400) -> Script:
    return answers(body, status=status, headers=JSON)


def accepted() -> Script:
    return answers(ROLE, WORD, DONE)


def sent(bench: Bench) -> Iterator[tuple[bool, bool]]:
    """Of each call: whether it was laid out anew, and whether it asked for usage."""
    for body in map(orjson.loads, bench.upstream.bodies):
        yield "rewritten" in body, bool((body.get("stream_options") or {}).get("include_usage"))


@pytest.mark.parametrize("status", [400, 405, 409, 415, 422, 424, 499])
@pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.OBSERVE, Mode.TIER])
def test_a_stream_that_is_refused_goes_without_the_question_for_usage_and_so_do_later_ones(
    status: int, mode: Mode
) -> None:
    models = ModelList({"m": make_deployment(name="m", model="theirs", mode=mode)})
    bench = Bench(refusal(status=status), accepted(), accepted(), models=models)
    body = b'{"stream" : true, "model": "m","messages": [{"role": "user", "content": "hi"}] }'
    client = bench.chat(MemoryClient(body))
    assert (client.status, client.answer) == (200, ROLE + WORD + DONE)
    assert bench.upstream.bodies[1] == body.replace(b'"m"', b'"theirs"')
    assert bench.planner.events == ["accepted", "completed"]
    assert bench.chat(MemoryClient(body)).status == 200
    assert list(sent(bench)) == [(False, True), (False, False), (False, False)]
    assert not bench.ledger.ended[0].planned.was_retried


def test_the_clients_own_options_come_back() -> None:
    bench = Bench(refusal(), accepted(), accepted(), planner=RewritingPlanner())
    own = {"include_usage": False, "x": 1}
    for _ in range(2):
        bench.chat(MemoryClient(chat_body(stream=True, stream_options=own), headers=_in_mode("observe")))
    assert [orjson.loads(body)["stream_options"] for body in bench.upstream.bodies[1:]] == [own, own]


def test_what_the_client_asks_for_itself_is_no_edit_of_ours() -> None:
    bench = Bench(refusal(UNKNOWN))
    client = bench.chat(MemoryClient(chat_body(stream=True, stream_options={"include_usage": True})))
    assert (client.status, client.answer, len(bench.upstream.calls)) == (400, UNKNOWN, 1)


def test_a_request_that_is_refused_without_stream_options_as_well_teaches_nothing() -> None:
    bench = Bench(refusal(), refusal(b"{}"), accepted())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, client.answer) == (400, b"{}")
    bench.chat(MemoryClient(chat_body(stream=True)))
    assert list(sent(bench)) == [(False, True), (False, False), (False, True)]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 413, 429, 500])
def test_other_statuses_do_not_blame_stream_options(status: int) -> None:
    bench = Bench(refusal(status=status))
    assert bench.chat(MemoryClient(chat_body(stream=True))).status == status
    assert len(bench.upstream.calls) == 1


@for_every(
    product(
        [
            {"message": "Unsupported value", "type": "invalid_request_error", "param": "temperature", "code": None},
            {"message": "This model's maximum context length is 8", "param": None, "code": "context_length_exceeded"},
            {"message": "max_tokens: 9 > 8, which is the maximum for this model", "type": "invalid_request_error"},
            {"message": "messages.0.content: text must be non-empty", "type": "invalid_request_error"},
            {"message": "Invalid value for `top_p`", "type": "BadRequestError", "param": None, "code": 400},
            {"message": "Your credit balance is too low to access the Anthropic API.", "type": "invalid_request_error"},
        ],
        [False, True],
    )
)
def test_a_refusal_that_is_about_something_else_is_not_called_again(error: dict[str, object], is_raised: bool) -> None:
    raised = UpstreamRejected(
        str(error["message"]),
        status=400,
        error_type=str(error.get("type")),
        code=error["code"] if isinstance(error.get("code"), str) else None,  # type: ignore[arg-type]
        param=error.get("param"),  # type: ignore[arg-type]
    )
    body = orjson.dumps({"error": error})
    bench = Bench(raised if is_raised else refusal(body))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, len(bench.upstream.calls)) == (400, 1)
    assert is_raised or client.answer == body


def test_places_in_a_list_are_members_too() -> None:
    body = b'{"detail": [{"loc": ["body", "temperature"], "msg": "Input should be a number"}]}'
    bench = Bench(refusal(body, 422))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == body
    assert len(bench.upstream.calls) == 1


def test_a_layout_may_be_to_blame_for_what_a_refusal_says_of_another_member() -> None:
    body = b'{"error": {"message": "messages.1: unexpected order", "type": "invalid_request_error"}}'
    bench = Bench(refusal(body), accepted(), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body(stream=True))).status == 200
    assert list(sent(bench)) == [(True, True), (False, True)]


@pytest.mark.parametrize("error", [UNKNOWN, None])
def test_where_the_upstream_names_stream_options_the_layout_is_not_blamed(error: bytes | None) -> None:
    raised = UpstreamRejected("unknown", status=400, error_type="invalid_request_error", param="stream_options")
    bench = Bench(refusal(error) if error else raised, accepted(), accepted(), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, client.answer_headers["x-stratiform-reason"]) == (200, "barred")
    assert "refused" not in bench.planner.events
    assert bench.upstream.bodies[1] == chat_body(stream=True)
    bench.chat(MemoryClient(chat_body(stream=True)))
    assert list(sent(bench)) == [(True, True), (False, False), (True, False)]
    assert bench.ledger.ended[0].planned.was_retried


def test_where_either_may_be_refused_the_layout_is_blamed_and_usage_asked_for_again() -> None:
    bench = Bench(refusal(VAGUE), accepted(), accepted(), planner=RewritingPlanner())
    for _ in range(2):
        bench.chat(MemoryClient(chat_body(stream=True)))
    assert list(sent(bench)) == [(True, True), (False, False), (True, True)]
    assert bench.planner.events[0] == "refused"


def test_a_status_that_only_the_layout_can_mean_keeps_the_question() -> None:
    bench = Bench(refusal(UNKNOWN, 413), refusal(UNKNOWN), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body(stream=True))).status == 400
    assert list(sent(bench)) == [(True, True), (False, True)]


def test_a_refusal_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.engine.upstream_answer._MOST_S", 0.01)
    slow = answers(b'{"error": ', None, status=400, headers=JSON)
    bench = Bench(slow, accepted(), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body(stream=True))).status == 200
    assert slow.closed == 1


def test_the_answer_reads_as_the_client_asked_for_it() -> None:
    bench = Bench(refusal(), answers(ROLE, WORD, DONE, headers=SSE))
    bench.chat(MemoryClient(chat_body(stream=True)))
    assert bench.ledger.ended[0].answer.outcome.usage is None  # what the meter then estimates


def test_the_memory_ends_and_is_bounded() -> None:
    now = 0.0
    unasked = QuestionOptOut(lambda: now)
    first, *others = (replace(make_deployment(), id=str(n)) for n in range(2049))
    assert first not in unasked
    unasked.add(first)
    assert first in unasked
    now = 3600.0
    assert first not in unasked
    now = 0.0
    for other in others:
        unasked.add(other)
    assert first not in unasked


def test_which_edits_a_status_can_be_about() -> None:
    both = OurEdit.LAYOUT | OurEdit.USAGE
    assert [both.behind(status) for status in (200, 400, 404, 422, 424, 429, 500)] == [
        OurEdit.NONE, both, OurEdit.LAYOUT, both, both, OurEdit.NONE, OurEdit.NONE,
    ]  # fmt: skip


def _in_mode(mode: str) -> list[tuple[str, str]]:
    return [*JSON, ("x-stratiform-mode", mode)]


def place(id: str, weight: float = 1.0) -> Deployment:
    return Deployment(name="m", model="m", transport=Transport.HTTP, profile=PROFILES["none"], id=id, weight=weight)


KEYS = [str(n).encode() for n in range(2000)]


def firsts(*places: Deployment) -> Counter[str]:
    return Counter(ordered(places, key)[0].id for key in KEYS)


def test_one_place_needs_no_draw() -> None:
    one = place("a", 0.0)
    assert ordered([one], b"") == [one]


def test_the_order_is_the_keys_and_has_everyone() -> None:
    places = [place(name) for name in "abcd"]
    for key in KEYS[:50]:
        found = ordered(places, key)
        assert sorted(found, key=lambda p: p.id) == places
        assert ordered(places[::-1], key) == found


def test_shares_follow_the_weights() -> None:
    counts = firsts(place("a", 3.0), place("b", 1.0), place("c", 0.0))
    assert 0.70 < counts["a"] / len(KEYS) < 0.80
    assert counts["c"] == 0


def test_a_place_that_goes_moves_only_its_own_sessions() -> None:
    a, b, c = place("a"), place("b"), place("c")
    for key in KEYS:
        before = ordered([a, b, c], key)
        assert ordered([a, b], key) == [p for p in before if p is not c]


def test_weightless_places_come_last_in_a_fixed_order() -> None:
    assert [p.id for p in ordered([place("x", 0.0), place("a"), place("y", 0.0)], b"k")] == ["a", "x", "y"]
