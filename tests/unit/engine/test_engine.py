"""The life of a request, with an upstream in memory."""

import asyncio
import gzip
import json
from dataclasses import replace

import orjson
import pytest

from proxy.core.modes import Mode
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC, NONE
from proxy.core.reasons import Reason
from proxy.core.request.tokens import bytes_over_four
from proxy.engine import Limits
from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.errors import UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.planning.planner_port import Planning
from proxy.ports import Plan, PlanRequest, PlanResult, Principal
from proxy.testing import ModelList, PassthroughPlanner, RewritingPlanner, make_deployment
from tests.unit.engine.parts import (
    DONE,
    JSON,
    ROLE,
    SSE,
    USAGE,
    WORD,
    Bench,
    MemoryClient,
    answers,
    chat_body,
    event,
)

BODY = orjson.dumps({"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 4, "completion_tokens": 1}})


def ended(bench: Bench) -> Exchange:
    """The one exchange, which was settled once, and its reservation with it."""
    (exchange,) = bench.ledger.ended
    assert bench.ledger.open == 0
    assert [r.exchange_id for r in bench.door.reserved] == [i for i, _ in bench.door.settled]
    return exchange


def code(client: MemoryClient) -> object:
    return orjson.loads(client.answer)["error"]["code"]


def test_a_json_answer_passes_with_its_length_and_is_settled() -> None:
    script = answers(BODY, headers=[*JSON, ("content-length", str(len(BODY))), ("x-request-id", "r1")])
    bench = Bench(script)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.has_ended) == (200, BODY, True)
    exchange = ended(bench)
    assert client.answer_headers == {
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "x-request-id": "r1",
        "x-stratiform-id": exchange.arrival.id,
        "x-stratiform-mode": "passthrough",
        "x-stratiform-reason": "passthrough-mode",
    }
    assert exchange.ending is ExchangeOutcome.COMPLETED
    assert exchange.answer.outcome.usage is not None
    assert (
        exchange.answer.outcome.usage.prompt,
        exchange.answer.outcome.finish_reason,
        exchange.answer.sent_bytes,
    ) == (4, "stop", len(BODY))
    assert bench.planner.events == ["accepted", "completed"]
    assert script.closed == 1


def test_usage_is_asked_for_and_kept_from_a_client_that_did_not() -> None:
    bench = Bench(answers(ROLE, WORD, USAGE + DONE))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert orjson.loads(bench.upstream.bodies[0])["stream_options"] == {"include_usage": True}
    usage = ended(bench).answer.outcome.usage
    assert usage is not None
    assert usage.prompt == 7


def test_usage_is_passed_to_a_client_that_asked() -> None:
    bench = Bench(answers(ROLE, WORD, USAGE + DONE))
    asked = chat_body(stream=True, stream_options={"include_usage": True})
    assert bench.chat(MemoryClient(asked)).answer == ROLE + WORD + USAGE + DONE
    assert bench.upstream.bodies == [asked]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "invalid_json"),
        (b"[1]", "invalid_json"),
        (b'{"messages": []}', "missing_model"),
        (b'{"model": "", "messages": []}', "missing_model"),
        (b'{"model": "m"}', "missing_messages"),
        (b'{"model": "m", "messages": {}}', "invalid_type"),
    ],
)
def test_what_is_no_chat_request_is_refused_by_us(body: bytes, expected: str) -> None:
    bench = Bench()
    client = bench.chat(MemoryClient(body))
    assert (client.status, code(client)) == (400, expected)
    assert ended(bench).ending is ExchangeOutcome.REFUSED
    assert bench.planner.events == []


def test_a_stream_without_a_content_type_is_read_as_a_stream() -> None:
    bench = Bench(answers(WORD, USAGE, DONE, headers=[]))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == WORD + DONE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (chat_body().decode().encode("utf-16"), "invalid_encoding"),
        (b'{"model": "m", "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
    ],
)
def test_a_body_that_others_read_and_we_do_not_goes_nowhere(body: bytes, expected: str) -> None:
    for path in ("/chat/completions", "/responses", "/batches"):
        bench, client = Bench(), MemoryClient(body, path=path)
        bench.chat(client) if path.startswith("/chat") else bench.relay(client)
        assert (client.status, code(client), bench.upstream.calls) == (400, expected, [])


def test_a_byte_order_mark_is_left_out() -> None:
    body = b'\xef\xbb\xbf{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stratiform": {}}'
    bench = Bench(answers(BODY, headers=JSON), models=ModelList({"m": make_deployment(name="m", model="theirs")}))
    assert bench.chat(MemoryClient(body)).status == 200
    (sent,) = bench.upstream.bodies
    assert orjson.loads(sent) == {"model": "theirs", "messages": [{"role": "user", "content": "hi"}]}


def test_a_body_beyond_the_limit() -> None:
    bench = Bench(limits=Limits(body_bytes=10))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, code(client)) == (413, "request_too_large")
    assert ended(bench).answer.status == 413


def compressed(path: str = "/chat/completions") -> MemoryClient:
    return MemoryClient(gzip.compress(chat_body()), headers=[*JSON, ("content-encoding", "gzip")], path=path)


@pytest.mark.parametrize("why", ["models", "allowed", "limited"])
def test_a_compressed_body_is_refused_where_it_must_be_read(why: str) -> None:
    models = ModelList({"m": make_deployment(name="m")}) if why == "models" else None
    for path in ("/chat/completions", "/responses", "/embeddings"):
        bench, client = Bench(models=models), compressed(path)
        if why == "allowed":
            bench.door.admit = lambda headers, now: Principal("s", models=(("*",),))  # type: ignore[method-assign]
        bench.door.is_limited = why == "limited"
        bench.chat(client) if path.startswith("/chat") else bench.relay(client)
        assert (client.status, code(client), bench.upstream.calls) == (400, "unsupported_encoding", [])
        assert ended(bench).ending is ExchangeOutcome.REFUSED


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_a_compressed_body_passes_to_the_sole_upstream(path: str) -> None:
    bench, client = Bench(answers(ROLE, WORD, USAGE + DONE)), compressed(path)
    bench.chat(client) if path.startswith("/chat") else bench.relay(client)
    assert (client.status, client.answer) == (200, ROLE + WORD + USAGE + DONE)
    assert gzip.decompress(bench.upstream.bodies[0]) == chat_body()
    sent = dict(bench.upstream.calls[0].headers)
    assert (sent["content-encoding"], sent["accept-encoding"]) == ("gzip", "identity")
    exchange = ended(bench)
    assert (
        exchange.answer.outcome.usage is not None and exchange.answer.outcome.usage.prompt,
        exchange.planned.plan,
    ) == (7, None)


def test_an_unknown_model() -> None:
    bench = Bench(models=ModelList({"known": make_deployment(name="known")}))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, code(client)) == (404, "model_not_found")


@pytest.mark.parametrize(("asked", "got"), [("passthrough", "passthrough"), ("mark", "mark"), ("tier", "tier")])
def test_a_request_may_lower_the_mode(asked: str, got: str) -> None:
    bench = Bench(answers(BODY, headers=JSON), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", asked)]))
    assert client.answer_headers["x-stratiform-mode"] == got


def test_a_request_may_not_raise_the_mode() -> None:

    models = ModelList({"m": make_deployment(name="m", mode=Mode.OBSERVE)})
    bench = Bench(answers(BODY, headers=JSON), planner=RewritingPlanner(), models=models)
    bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", "tier")]))
    assert b"rewritten" not in bench.upstream.bodies[0]


def test_in_passthrough_the_messages_are_not_even_read() -> None:
    refused, again = answers(b"no messages", status=400), answers(b"no messages", status=400)
    bench = Bench(refused, again, planner=BrokenPlanner())
    client = MemoryClient(b'{"model": "m", "stream": true}', headers=[*JSON, ("x-stratiform-mode", "passthrough")])
    assert bench.chat(client).answer == b"no messages"
    assert orjson.loads(bench.upstream.bodies[0])["stream_options"] == {"include_usage": True}


def test_an_unknown_mode() -> None:
    client = Bench().chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", "turbo")]))
    assert (client.status, code(client)) == (400, "invalid_mode")


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_refused_rewrite_is_sent_again_as_the_client_wrote_it(status: int) -> None:
    refused, accepted = answers(b"{}", status=status, headers=JSON), answers(BODY, headers=JSON)
    bench = Bench(refused, accepted, planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert [b"rewritten" in body for body in bench.upstream.bodies] == [True, False]
    assert bench.upstream.bodies[1] == chat_body()
    assert bench.planner.events == ["refused", "accepted", "barred", "completed"]
    exchange = ended(bench)
    assert exchange.planned.was_retried
    assert client.answer_headers["x-stratiform-reason"] == Reason.BARRED
    assert (refused.closed, accepted.closed) == (1, 1)


class KeyedPlanner(RewritingPlanner):
    """Names a header with its plans."""

    async def plan(self, request: PlanRequest) -> Plan:
        return replace(await super().plan(request), headers=(("x-grok-conv-id", "st-1"),))


def test_a_plans_headers_go_with_its_body_alone_and_never_in_place_of_the_clients() -> None:
    refused, accepted = answers(b"{}", status=400, headers=JSON), answers(BODY, headers=JSON)
    bench = Bench(refused, accepted, planner=KeyedPlanner())
    bench.chat(MemoryClient(chat_body()))
    assert [dict(call.headers).get("x-grok-conv-id") for call in bench.upstream.calls] == ["st-1", None]
    bench = Bench(answers(BODY, headers=JSON), planner=KeyedPlanner())
    bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-grok-conv-id", "mine")]))
    assert [v for n, v in bench.upstream.calls[0].headers if n == "x-grok-conv-id"] == ["mine"]


def test_a_refusal_that_a_library_raises_is_retried_too() -> None:
    error = UpstreamRejected("no markers", status=400, error_type="invalid_request_error")
    bench = Bench(error, answers(BODY, headers=JSON), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert len(bench.upstream.calls) == 2


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_errors_that_are_not_the_layouts_fault_pass(status: int) -> None:
    body = b'{"error": {"message": "theirs"}}'
    bench = Bench(answers(body, status=status, headers=[*JSON, ("retry-after", "7")]), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.answer_headers["retry-after"]) == (status, body, "7")
    assert ended(bench).ending is ExchangeOutcome.REJECTED
    assert bench.planner.events == []


def test_a_refused_original_passes() -> None:
    bench = Bench(answers(b"no", status=400), answers(b"still no", status=400), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (400, b"still no")
    assert bench.planner.events == ["refused"]
    assert ended(bench).ending is ExchangeOutcome.REJECTED


def test_a_refusal_of_an_unchanged_request_is_not_retried() -> None:
    bench = Bench(answers(b"no", status=400))
    assert bench.chat(MemoryClient(chat_body())).status == 400
    assert len(bench.upstream.calls) == 1


@pytest.mark.parametrize(
    "empty",
    [
        answers(),
        answers(DONE),
        answers(ROLE, DONE),
        answers(ROLE, USAGE, DONE),
        answers(event({"error": {"code": 400, "message": "no"}})),
    ],
)
def test_an_empty_stream_to_a_rewrite_is_retried(empty: object) -> None:
    bench = Bench(empty, answers(ROLE, WORD, DONE), planner=RewritingPlanner())  # type: ignore[arg-type]
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert bench.planner.events[-4:] == ["refused", "accepted", "barred", "completed"]
    assert ended(bench).planned.was_retried


def test_an_upstream_that_says_nothing_to_either_teaches_nothing() -> None:
    bench = Bench(answers(ROLE, DONE), answers(ROLE, DONE), planner=RewritingPlanner())
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + DONE
    assert "barred" not in bench.planner.events


def test_an_empty_stream_to_the_clients_own_request_passes() -> None:
    bench = Bench(answers(ROLE, DONE))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == ROLE + DONE


def test_a_rewritten_stream_is_held_back_only_until_it_has_content() -> None:
    bench = Bench(answers(ROLE, WORD, WORD, None), planner=RewritingPlanner())
    client = MemoryClient(chat_body(stream=True))

    async def main() -> None:
        two_words = asyncio.Event()
        client.on_send = lambda chunk: two_words.set() if client.answer == ROLE + WORD + WORD else None
        task = asyncio.ensure_future(bench.engine.chat(client))
        await asyncio.wait_for(two_words.wait(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert client.chunks == [ROLE + WORD, WORD]


def test_a_long_silence_of_comments_is_let_go() -> None:
    comment = b": still here\n\n" * 3000
    bench = Bench(answers(comment, comment, ROLE, DONE), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == comment + comment + ROLE + DONE
    assert len(bench.upstream.calls) == 1


def test_an_upstream_that_cannot_be_reached() -> None:
    bench = Bench(UpstreamUnavailable("gone"))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, code(client)) == (502, "upstream_unavailable")
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert bench.planner.events == []


def test_a_break_before_anything_was_sent_is_an_error_answer() -> None:
    bench = Bench(answers(ROLE, UpstreamTimeout("silent")), planner=RewritingPlanner())
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, code(client)) == (504, "upstream_timeout")
    assert ended(bench).ending is ExchangeOutcome.BROKEN


def test_a_break_in_mid_stream_is_an_event_and_no_done() -> None:
    bench = Bench(answers(WORD, WORD[:9], UpstreamUnavailable("cut")))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    rest = client.answer.removeprefix(WORD)
    assert orjson.loads(rest.removeprefix(b"data: "))["error"]["code"] == "upstream_unavailable"
    assert not client.has_ended, "the line breaks behind the event"
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert bench.planner.events == ["accepted", "completed"]


def test_a_json_body_that_breaks_off_is_cut_off() -> None:
    bench = Bench(answers(BODY[:9], UpstreamUnavailable("cut"), headers=JSON))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.answer, client.has_ended) == (BODY[:9], False)
    assert ended(bench).ending is ExchangeOutcome.BROKEN


def test_an_error_event_of_the_upstream_passes_and_is_counted() -> None:
    broke = event({"error": {"message": "overloaded"}})
    bench = Bench(answers(WORD, broke))
    assert bench.chat(MemoryClient(chat_body(stream=True))).answer == WORD + broke
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.error_code) == (ExchangeOutcome.BROKEN, "upstream_stream_error")


def cancelled(bench: Bench, client: MemoryClient, when: asyncio.Event) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(bench.engine.chat(client))
        await asyncio.wait_for(when.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bench.engine.aclose()

    asyncio.run(main())


def test_a_client_that_leaves_in_mid_stream() -> None:
    script = answers(ROLE, WORD, None)
    bench = Bench(script)
    client, seen = MemoryClient(chat_body(stream=True)), asyncio.Event()
    client.on_send = lambda chunk: seen.set() if chunk == WORD else None
    cancelled(bench, client, seen)
    assert script.closed == 1
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.status, exchange.answer.outcome.events) == (
        ExchangeOutcome.HUNG_UP,
        200,
        2,
    )
    assert bench.planner.events == ["accepted", "completed"]


def test_a_client_that_leaves_before_the_first_byte_changes_nothing() -> None:
    script = answers(None)
    bench, client, opened = Bench(script), MemoryClient(chat_body(stream=True)), asyncio.Event()

    async def started(status: int, headers: object) -> None:
        client.is_started = True
        opened.set()

    client.start = started  # type: ignore[method-assign,assignment]
    cancelled(bench, client, opened)
    assert script.closed == 1
    assert ended(bench).ending is ExchangeOutcome.HUNG_UP
    assert bench.planner.events == []


class BrokenPlanner(PassthroughPlanner):
    async def plan(self, request: PlanRequest) -> Plan:
        raise ZeroDivisionError("plan")


class ClumsyPlanner(RewritingPlanner):
    def on_accepted(self, plan: Plan, now: float) -> None:
        raise ZeroDivisionError("accepted")

    def refused(self, plan: Plan) -> None:
        raise ZeroDivisionError("refused")

    def on_completed(self, plan: Plan, usage: object, now: float) -> PlanResult:
        raise ZeroDivisionError("completed")


def test_a_surprise_is_raised_and_settled() -> None:
    bench = Bench(planner=BrokenPlanner())
    with pytest.raises(ZeroDivisionError):
        bench.chat(MemoryClient(chat_body()))
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.status) == (ExchangeOutcome.FAILED, 500)


def test_bookkeeping_that_fails_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(answers(b"no", status=400), answers(BODY, headers=JSON), planner=ClumsyPlanner())
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    assert ended(bench).ending is ExchangeOutcome.COMPLETED
    assert [r.args[0] for r in caplog.records] == ["planner.refused", "planner.on_accepted", "planner.on_completed"]
    assert "ZeroDivisionError at test_engine.py" in caplog.text


def test_virtual_time_only_where_it_is_trusted() -> None:
    headers = [*JSON, ("x-stratiform-time", "42.5")]
    for trust, expected in ((True, 42.5), (False, 1000.0)):
        bench = Bench(answers(BODY, headers=JSON), trust_time_header=trust)
        bench.chat(MemoryClient(chat_body(), headers=headers))
        assert bench.upstream.calls[0].now == expected
    bench = Bench(trust_time_header=True)
    client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-time", "soon")]))
    assert (client.status, code(client)) == (400, "invalid_time")


def test_a_virtual_key_is_not_sent_upstream() -> None:
    bench = Bench(answers(BODY, headers=JSON))
    bench.door.admit = lambda headers, now: Principal("s", virtual=True)  # type: ignore[method-assign]
    bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("authorization", "Bearer sk-ours")]))
    assert "sk-ours" not in str(bench.upstream.calls[0].headers)


def test_a_raw_json_request_gets_the_deployments_name_for_the_model() -> None:
    models = ModelList({"mine": make_deployment(name="mine", model="theirs")})
    bench = Bench(answers(BODY, headers=JSON), models=models)
    body = b'{"input" : "x",  "model": "mine", "n": 1.0}'
    client = bench.relay(MemoryClient(body, path="/embeddings", query="a=1%202"))
    assert bench.upstream.bodies == [body.replace(b"mine", b"theirs")]
    call = bench.upstream.calls[0]
    assert (call.path, call.query, client.answer) == ("/embeddings", "a=1%202", BODY)
    exchange = ended(bench)
    assert exchange.answer.outcome.usage is not None
    assert bench.planner.events == []


def test_a_raw_stream_passes_untouched_and_its_usage_is_seen() -> None:
    bench = Bench(answers(WORD[:9], WORD[9:] + USAGE))
    client = bench.relay(MemoryClient(b'{"model": "m", "stream": true}', path="/completions"))
    assert client.chunks == [WORD + USAGE], "whole events pass, with every byte"
    assert ended(bench).answer.outcome.usage is not None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/responses", b'data: {"error":{"message":"cut","type":"server_error","param":null,'
                       b'"code":"upstream_unavailable"}}\n\n'),
        ("/messages", b'event: error\ndata: {"type":"error","error":{"message":"cut","type":"api_error","param":null,'
                      b'"code":"upstream_unavailable"}}\n\n'),
    ],
)  # fmt: skip
def test_a_raw_stream_that_breaks_says_so_behind_whole_events_and_is_cut_off(path: str, said: bytes) -> None:
    bench = Bench(answers(WORD, WORD[:9], UpstreamUnavailable("cut")))
    client = bench.relay(MemoryClient(b'{"model": "m"}', path=path))
    assert (client.answer, client.has_ended) == (WORD + said, False)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"model": 7}'])
def test_what_names_no_model_goes_to_the_fallback_as_it_is(body: bytes) -> None:
    bench = Bench(answers(b"x", headers=[]))
    assert bench.relay(MemoryClient(body, path="/anything")).answer == b"x"
    assert bench.upstream.bodies == [body]


def test_other_bodies_are_streamed() -> None:
    headers = [("content-type", "multipart/form-data; boundary=b"), ("content-length", "20"), ("accept-encoding", "br")]
    bench = Bench(answers(b"{}", headers=JSON))
    bench.relay(MemoryClient(b"x" * 20, headers=headers, path="/files"))
    call = bench.upstream.calls[0]
    assert not isinstance(call.body, bytes)
    assert bench.upstream.bodies == [b"x" * 20]
    assert dict(call.headers)["content-length"] == "20"
    assert dict(call.headers)["accept-encoding"] == "br"


def test_a_large_json_body_is_streamed_to_the_fallback() -> None:
    bench = Bench(answers(b"{}", headers=JSON), limits=Limits(peek_bytes=8))
    bench.relay(MemoryClient(b'{"model": "other"}', path="/batches"))
    assert not isinstance(bench.upstream.calls[0].body, bytes)
    assert bench.upstream.calls[0].deployment.name == "*"


def test_a_request_without_a_body() -> None:
    bench = Bench(answers(b"{}", headers=JSON))
    bench.relay(MemoryClient(method="GET", headers=[], path="/files"))
    assert (bench.upstream.calls[0].method, bench.upstream.calls[0].body) == ("GET", b"")


def test_compressed_answers_pass_unread() -> None:
    bench = Bench(answers(b"\x1f\x8b\x08", headers=[*SSE, ("content-encoding", "gzip")]))
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.answer, client.answer_headers["content-encoding"]) == (b"\x1f\x8b\x08", "gzip")
    assert ended(bench).answer.outcome.usage is None


def test_closing_the_engine_closes_its_upstreams() -> None:
    bench = Bench()
    asyncio.run(bench.engine.aclose())
    assert bench.upstream.is_closed


@pytest.mark.parametrize(
    "path", ["/responses", "/embeddings", "/v2/messages", "/completions/", "/%63ompletions", "/Completions"]
)
@pytest.mark.parametrize("kind", ["text/plain", "", "multipart/form-data; boundary=b"])
def test_what_asks_a_model_is_read_whatever_it_calls_itself(path: str, kind: str) -> None:
    models = ModelList({"mine": make_deployment(name="mine"), "*": make_deployment()})
    bench = Bench(answers(BODY, headers=JSON), models=models, limits=Limits(peek_bytes=8))
    headers = [("content-type", kind), ("content-length", "17")]
    bench.relay(MemoryClient(b'{"model": "mine"}', headers=headers, path=path))
    assert bench.upstream.calls[0].deployment.name == "mine"


def test_what_asks_a_model_has_a_limit() -> None:
    client = Bench(limits=Limits(body_bytes=10)).relay(MemoryClient(b'{"model": "mine"}', path="/responses"))
    assert (client.status, code(client)) == (413, "request_too_large")
    other = Bench(answers(b"{}", headers=JSON))
    assert other.relay(MemoryClient(b"\x1f\x8b", headers=[("content-encoding", "gzip")], path="/files")).status == 200


@pytest.mark.parametrize("is_chat", [True, False])
@pytest.mark.parametrize("name", [b'"model"', b'"mod\\u0065l"'])
def test_a_name_that_stands_twice_is_sent_once(name: bytes, *, is_chat: bool) -> None:
    models = ModelList({"cheap": make_deployment(name="cheap"), "dear": make_deployment(name="dear")})
    bench = Bench(answers(BODY, headers=JSON), models=models)
    body = b'{"model":"dear","messages":[{"role":"user","content":"hi"}],' + name + b':"cheap"}'
    if is_chat:
        bench.chat(MemoryClient(body))
    else:
        bench.relay(MemoryClient(body, path="/responses"))
    assert bench.upstream.calls[0].deployment.name == "cheap"
    assert b"dear" not in bench.upstream.bodies[0]
    assert orjson.loads(bench.upstream.bodies[0])["messages"] == [{"role": "user", "content": "hi"}]


def test_a_name_in_capitals_is_refused_where_a_server_could_take_it_for_the_other() -> None:
    client = Bench().chat(MemoryClient(chat_body(Model="dear")))
    assert (client.status, code(client)) == (400, "invalid_request")
    bench = Bench(answers(BODY, headers=JSON))
    assert bench.chat(MemoryClient(chat_body(Messages=[], topP=1))).status == 200


@pytest.mark.parametrize("name", ["mine", "mine.*", 'mi"ne'])
@pytest.mark.parametrize(
    "messages",
    [
        b"[" + b",".join([b'{"role":"user","content":"a"}'] * 10_001) + b"]",
        b'[{"role":"user","content":"half a smile: \\ud83d"}],"\\ud83d":1',
        b'[{"role":"user","content":"\\"model\\": \\"mine\\" \\ud83d"}],"\\ud83d":1',
    ],
)
def test_what_is_not_taken_apart_still_goes_to_the_right_model(messages: bytes, name: str) -> None:
    models = ModelList({name: make_deployment(name=name, model="theirs", profile=ANTHROPIC)})
    bench = Bench(answers(BODY, headers=JSON), models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
    client = bench.chat(MemoryClient(b'{"messages":' + messages + b', "model" : ' + orjson.dumps(name) + b"}"))
    assert client.status == 200
    sent = bench.upstream.bodies[0]
    assert messages in sent
    assert json.loads(sent)["model"] == "theirs"
    assert client.answer_headers["x-stratiform-reason"] == Reason.UNREADABLE


def test_a_client_that_marks_for_an_unknown_cache_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    found = (make_deployment(name=name, model="theirs", profile=NONE) for name in ("one", "two"))
    models = ModelList({each.name: replace(each, entry="*") for each in found})
    bench = Bench(*[answers(BODY, headers=JSON)] * 4, models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
    marked = [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}]
    for name in ("one", "two", "one"):
        body = {"model": name, "messages": [{"role": "system", "content": marked}, {"role": "user", "content": "q"}]}
        client = bench.chat(MemoryClient(orjson.dumps(body)))
        assert client.answer_headers["x-stratiform-reason"] == Reason.MARKS_WITHOUT_PROFILE
        assert b"cache_control" in bench.upstream.bodies[-1]
    bench.chat(MemoryClient(orjson.dumps({"model": "one", "messages": [{"role": "user", "content": "q"}]})))
    told = [line for line in caplog.messages if "model_info.cache_profile" in line]
    assert len(told) == 1
    assert told[0].startswith("model *: ")


def test_nothing_that_a_client_chose_begins_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stratiform")
    odd = "m\nERROR stratiform exchange id=forged\r\x1b[31m\u2028"
    bench = Bench(answers(BODY, headers=JSON), answers(BODY, headers=JSON))
    bench.chat(MemoryClient(chat_body(model=odd)))
    bench.relay(MemoryClient(b"{}", path="/x%0aERROR\nforged", method="GET"))
    assert len(caplog.messages) == 2
    for line in caplog.messages:
        assert line.startswith("exchange id=sx-")
        assert line.isprintable()


@pytest.mark.parametrize("odd", [b"1", b"NaN"])
def test_structured_context_is_refused_and_not_dropped(odd: bytes) -> None:
    bench = Bench(answers(BODY, headers=JSON))
    body = chat_body(stratiform={"files": []}, x=1).replace(b'"x":1', b'"x":' + odd)
    client = bench.chat(MemoryClient(body))
    assert (client.status, code(client), bench.upstream.bodies) == (400, "structured_form_unavailable", [])
    assert bench.chat(MemoryClient(chat_body(stratiform={}))).status == 200


def test_a_request_does_not_get_rid_of_the_operators_reminder() -> None:
    deployment = make_deployment(name="m", model="m", profile=ANTHROPIC)
    for mode, asked, count in (
        (Mode.TIER, "passthrough", 1),
        (Mode.OBSERVE, "passthrough", 1),
        (Mode.PASSTHROUGH, "tier", 0),
    ):
        models = ModelList({"m": replace(deployment, mode=mode, reminder="Be brief.")})
        bench = Bench(answers(BODY, headers=JSON), models=models, planner=Planning(TierPlanner(bytes_over_four, [])))
        bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", asked)]))
        assert bench.upstream.bodies[0].count(b"Be brief.") == count
