"""Providers are asked for the cause of a miss, and the client sees nothing of it."""

from collections.abc import Sequence

import orjson
import pytest

from proxy.engine.attempts import Inquiries
from proxy.engine.exchange import Exchange, Principal
from proxy.kit.tasks import Aside
from proxy.models import Headers
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, OPENAI, OPENAI_EXPLICIT, CacheProfile
from proxy.teams.bookings import settled_entry
from tests.doubles import ModelList, make_deployment
from tests.unit.engine.parts import JSON, SSE, Bench, MemoryClient, Script, answers, event

PRICE = Price(input=1.0, output=5.0, read=0.1, write_5m=1.25, write_1h=2.0)
SYSTEM = "You are careful. " * 600
CACHED = {"cache_control": {"type": "ephemeral"}}


def bench(*scripts: Script, server: str = "anthropic", profile: CacheProfile = ANTHROPIC, asks: bool = True) -> Bench:
    deployment = make_deployment(name="m", model="m", server=server, profile=profile, base_url="http://up", id="d")
    inquiries = Inquiries(lambda deployment: PRICE, Aside()) if asks else None
    return Bench(*scripts, models=ModelList({"m": deployment}), inquiries=inquiries)


def message(number: int, cause: str | None = None, **usage: int) -> bytes:
    """A whole answer of Anthropic's."""
    told = None if cause is None else {"cache_miss_reason": {"type": cause, "cache_missed_input_tokens": 9}}
    text = {"type": "text", "text": f"answer {number}"}
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    found = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [text], "usage": counts}
    return orjson.dumps({**found, "stop_reason": "end_turn", "diagnostics": told})


def streamed(number: int, cause: str | None = None, **usage: int) -> bytes:
    """The same as a stream."""
    whole = orjson.loads(message(number, cause, **usage))
    start = {"type": "message_start", "message": {**whole, "content": []}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"answer {number}"}}
    return event(start) + event(delta) + event({"type": "message_stop"})


def asked(*turns: str, system: str = SYSTEM, **more: object) -> bytes:
    """A request; the turns are the user's, with the answers between them."""
    messages = [{"role": "user", "content": turns[0]}]
    for number, turn in enumerate(turns[1:], 1):
        messages += [{"role": "assistant", "content": f"answer {number}"}, {"role": "user", "content": turn}]
    text = [{"type": "text", "text": system, **CACHED}]
    return orjson.dumps({"model": "m", "max_tokens": 5, "system": text, "messages": messages, **more})


def sent(found: Bench, name: str = "diagnostics") -> list[object]:
    return [orjson.loads(body).get(name) for body in found.upstream.bodies]


WRITTEN, READ = {"cache_creation_input_tokens": 2550}, {"cache_read_input_tokens": 2550}


@pytest.mark.parametrize(("answer", "headers", "more"), [(message, JSON, {}), (streamed, SSE, {"stream": True})])
def test_a_changed_system_text_is_named_by_both_and_the_client_sees_no_cause(
    answer: object, headers: Headers, more: dict[str, object]
) -> None:
    assert callable(answer)
    found = bench(
        answers(answer(1, **WRITTEN), headers=headers),
        answers(answer(2, **READ), headers=headers),
        answers(answer(3, "system_changed", **WRITTEN), headers=headers),
    )
    clients = [found.relay(MemoryClient(body, path="/messages")) for body in (
        asked("a", **more), asked("a", "b", **more), asked("a", "b", "c", system="Now: 12:01. " + SYSTEM, **more),
    )]  # fmt: skip
    assert sent(found) == [
        {"previous_message_id": None}, {"previous_message_id": "msg_1"}, {"previous_message_id": "msg_2"},
    ]  # fmt: skip
    assert not any(b"diagnostics" in client.answer for client in clients)
    assert b"answer 3" in clients[2].answer
    assert [client.has_ended for client in clients] == [True] * 3
    last: Exchange = found.ledger.ended[-1]
    broke = last.planned.result.broke
    assert broke is not None
    assert (broke.kind, broke.culprit, broke.line, broke.is_waste) == ("changed", "system", 0, True)
    assert broke.lost > 2000
    assert (last.answer.outcome.cache_cause, broke.expected_cause) == ("system-changed", "system-changed")
    entry = settled_entry(last)
    assert (entry.break_kind, entry.provider_cause) == ("changed", "system-changed")
    assert [one.planned.result.broke for one in found.ledger.ended[:2]] == [None, None]


def test_the_length_of_a_whole_answer_is_not_told_where_something_is_taken_out() -> None:
    body = message(1, "unavailable")
    headers = [*JSON, ("content-length", str(len(body)))]
    found = bench(answers(body[:40], body[40:], headers=headers))
    client = found.relay(MemoryClient(asked("a"), path="/messages"))
    assert "content-length" not in client.answer_headers
    assert orjson.loads(client.answer) == {k: v for k, v in orjson.loads(body).items() if k != "diagnostics"}
    ((_, most),) = found.ledger.ended[0].sent
    assert len(found.upstream.bodies[0]) <= len(asked("a")) + most


@pytest.mark.parametrize("name", ["m" * 300, "\x00" * 200, "mäöü", 7, None, "a b"])
def test_an_id_of_another_form_than_ids_have_is_not_sent_back(name: object) -> None:
    odd = orjson.dumps({**orjson.loads(message(1)), "id": name})
    found = bench(answers(odd, headers=JSON), answers(message(2), headers=JSON))
    found.relay(MemoryClient(asked("a"), path="/messages"))
    found.relay(MemoryClient(asked("a", "b"), path="/messages"))
    assert sent(found) == [{"previous_message_id": None}] * 2


def test_another_team_s_conversation_that_begins_alike_is_not_compared() -> None:
    found = bench(answers(message(1), headers=JSON), answers(message(2), headers=JSON))
    found.relay(MemoryClient(asked("a"), path="/messages"))
    found.door.admit = lambda headers, now: Principal(scope="others")  # type: ignore[method-assign]
    found.relay(MemoryClient(asked("a", "b"), path="/messages"))
    assert sent(found) == [{"previous_message_id": None}] * 2


def test_a_client_that_asks_itself_gets_its_own_question_and_the_answer_to_it() -> None:
    found = bench(answers(message(1, "unavailable"), headers=JSON))
    client = found.relay(MemoryClient(asked("a", diagnostics={"previous_message_id": "mine"}), path="/messages"))
    assert sent(found) == [{"previous_message_id": "mine"}]
    assert orjson.loads(client.answer)["diagnostics"]["cache_miss_reason"]["type"] == "unavailable"


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
def test_an_upstream_that_refuses_the_question_gets_the_request_without_it_and_no_other_question(status: int) -> None:
    refusal = orjson.dumps({"error": {"type": "invalid_request_error", "message": "diagnostics: not permitted"}})
    found = bench(
        answers(refusal, status=status, headers=JSON),
        answers(message(1), headers=[*JSON, ("content-length", str(len(message(1))))]),
        answers(message(2), headers=JSON),
    )
    body = asked("a")
    client = found.relay(MemoryClient(body, path="/messages"))
    found.relay(MemoryClient(asked("a", "b"), path="/messages"))
    assert (client.status, found.upstream.bodies[1]) == (200, body)
    assert ("content-length", str(len(client.answer))) in client.answer_headers.items()
    assert sent(found) == [{"previous_message_id": None}, None, None]
    assert [one.attempts for one in found.ledger.ended] == [2, 1]


def test_a_request_that_is_refused_without_the_question_too_says_nothing_of_it() -> None:
    refusal = orjson.dumps({"error": {"message": "max_tokens: too large"}})
    found = bench(*[answers(refusal, status=400, headers=JSON)] * 2, answers(message(1), headers=JSON))
    assert found.relay(MemoryClient(asked("a"), path="/messages")).status == 400
    found.relay(MemoryClient(asked("a"), path="/messages"))
    assert sent(found) == [{"previous_message_id": None}, None, {"previous_message_id": None}]


@pytest.mark.parametrize(
    ("path", "server", "asks"),
    [
        ("/messages", "", True),
        ("/messages", "openrouter", True),
        ("/messages/count_tokens", "anthropic", True),
        ("/completions", "anthropic", True),
        ("/messages", "anthropic", False),
    ],
)
def test_nobody_else_is_asked_and_nobody_without_the_setting(path: str, server: str, asks: bool) -> None:
    found = bench(answers(message(1), headers=JSON), server=server, asks=asks)
    body = asked("a")
    client = found.relay(MemoryClient(body, path=path))
    assert (found.upstream.bodies, client.answer) == ([body], message(1))


@pytest.mark.parametrize(
    ("profile", "questions"), [(OPENAI_EXPLICIT, [None, {"comparison_response_id": "resp_1"}]), (OPENAI, [None, None])]
)
def test_responses_are_asked_from_the_second_on_where_the_model_takes_it(
    profile: CacheProfile, questions: Sequence[object]
) -> None:
    def response(number: int) -> bytes:
        told = {"type": "cache_miss", "reason": "tools_changed"} if number > 1 else None
        held = {"id": f"resp_{number}", "object": "response", "prompt_cache_diagnostics": told, "output": []}
        return event({"type": "response.created", "response": held}) + event(
            {"type": "response.completed", "response": {**held, "usage": {"input_tokens": 9, "output_tokens": 1}}}
        )

    found = bench(*(answers(response(number)) for number in (1, 2)), server="openai", profile=profile)
    more = {"model": "m", "stream": True, "instructions": SYSTEM}
    turns: list[object] = [{"role": "user", "content": "a"}]
    found.relay(MemoryClient(orjson.dumps({**more, "input": turns}), path="/responses"))
    turns += [{"role": "assistant", "content": "x"}, {"role": "user", "content": "b"}]
    client = found.relay(MemoryClient(orjson.dumps({**more, "input": turns}), path="/responses"))
    assert sent(found, "prompt_cache_options") == questions
    assert (b"prompt_cache_diagnostics" in client.answer) is (questions[1] is None)
    assert client.answer.endswith(b"\n\n")
    assert found.ledger.ended[-1].answer.outcome.cache_cause == "tools-changed"


@pytest.mark.parametrize("body", [b"[]", b'{"model": "m", "messages": 7}', b'{"model": "m", "messages": [[1, {}], 3]}'])
def test_bodies_of_any_shape_pass(body: bytes) -> None:
    found = bench(answers(message(1), headers=JSON))
    assert found.relay(MemoryClient(body, path="/messages")).status == 200


def test_a_failure_of_the_diagnosis_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*told: object, **more: object) -> None:
        raise LookupError("secret")

    monkeypatch.setattr("proxy.engine.attempts.wire_record", fail)
    found = bench(answers(message(1), headers=JSON))
    client = found.relay(MemoryClient(asked("a"), path="/messages"))
    assert (client.answer, found.upstream.bodies) == (message(1), [asked("a")])


def test_a_prompt_of_more_pieces_than_are_compared_passes_as_it_came() -> None:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": ["a"] * 5_001}]})
    found = bench(answers(message(1), headers=JSON))
    assert found.relay(MemoryClient(body, path="/messages")).status == 200
    assert found.upstream.bodies == [body]
