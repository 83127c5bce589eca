"""What a request must be to be taken: its body, its encoding, its model and its mode."""

import asyncio
import gzip
from collections.abc import Sequence
from itertools import product

import orjson
import pytest

from proxy.engine import BodyLimits
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Principal
from proxy.engine.intake import fitting as fitting_levels
from proxy.kit.errors import ContextTooLong
from proxy.kit.modes import Mode
from proxy.models import Deployment
from proxy.prompts.window import Capability, CapabilityProfile
from proxy.protocol.request import ParsedBody, parse_body
from tests.doubles import ModelList, PassthroughPlanner, RewritingPlanner, make_deployment
from tests.examples import for_every
from tests.unit.engine.parts import (
    BODY,
    DONE,
    JSON,
    ROLE,
    USAGE,
    WORD,
    Bench,
    BrokenPlanner,
    MemoryClient,
    answers,
    chat_body,
    code,
    ended,
)


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


@for_every(
    [
        (Mode.TIER, "passthrough", "passthrough"),
        (Mode.TIER, "mark", "mark"),
        (Mode.TIER, "tier", "tier"),
        (Mode.OBSERVE, "tier", "observe"),
    ]
)
def test_a_request_may_lower_the_mode_and_not_raise_it(allowed: Mode, asked: str, got: str) -> None:
    models = ModelList({"m": make_deployment(name="m", mode=allowed)})
    bench = Bench(answers(BODY, headers=JSON), planner=RewritingPlanner(), models=models)
    client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", asked)]))
    assert client.answer_headers["x-stratiform-mode"] == (got if got in ("mark", "tier") else "passthrough")
    assert (b"rewritten" in bench.upstream.bodies[0]) is (got in ("mark", "tier"))


def test_in_passthrough_the_messages_are_not_even_read() -> None:
    refused, again = answers(b"no messages", status=400), answers(b"no messages", status=400)
    bench = Bench(refused, again, planner=BrokenPlanner())
    client = MemoryClient(b'{"model": "m", "stream": true}', headers=[*JSON, ("x-stratiform-mode", "passthrough")])
    assert bench.chat(client).answer == b"no messages"
    assert orjson.loads(bench.upstream.bodies[0])["stream_options"] == {"include_usage": True}


def test_an_unknown_mode_is_refused() -> None:
    bench = Bench()
    client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-mode", "turbo")]))
    assert (client.status, code(client)) == (400, "invalid_mode")
    assert ended(bench).planned.reason == "not-planned", "the log does not call a refused chat something else"


def test_the_clients_slowness_is_not_counted() -> None:
    class Slow(MemoryClient):
        async def read(self, limit: int) -> bytes:
            await asyncio.sleep(0.2)
            return await super().read(limit)

    bench = Bench(answers(BODY, headers=JSON))
    bench.chat(Slow(chat_body()))
    exchange = ended(bench)
    assert exchange.arrival.size == len(chat_body())
    assert exchange.total_s < 0.2


def test_virtual_time_is_taken_only_where_its_header_is_trusted() -> None:
    headers = [*JSON, ("x-stratiform-time", "42.5")]
    for trust, expected in ((True, 42.5), (False, 1000.0)):
        bench = Bench(answers(BODY, headers=JSON), trust_time_header=trust)
        bench.chat(MemoryClient(chat_body(), headers=headers))
        assert bench.upstream.calls[0].now == expected
    for written in ("soon", "-1", "nan", "inf", "1e300", "253402300799"):
        bench = Bench(trust_time_header=True)
        client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stratiform-time", written)]))
        assert (client.status, code(client)) == (400, "invalid_time"), written


@for_every(
    product(
        ["/responses", "/embeddings", "/v2/messages", "/completions/", "/%63ompletions", "/Completions"],
        ["text/plain", "", "multipart/form-data; boundary=b"],
    )
)
def test_a_request_that_asks_a_model_is_read_whatever_its_content_type_says(path: str, kind: str) -> None:
    models = ModelList({"mine": make_deployment(name="mine"), "*": make_deployment()})
    bench = Bench(answers(BODY, headers=JSON), models=models, limits=BodyLimits(peek_bytes=8))
    headers = [("content-type", kind), ("content-length", "17")]
    bench.relay(MemoryClient(b'{"model": "mine"}', headers=headers, path=path))
    assert bench.upstream.calls[0].deployment.name == "mine"


def test_a_request_that_asks_a_model_has_a_limit_of_size() -> None:
    client = Bench(limits=BodyLimits(body_bytes=10)).relay(MemoryClient(b'{"model": "mine"}', path="/responses"))
    assert (client.status, code(client)) == (413, "request_too_large")
    other = Bench(answers(b"{}", headers=JSON))
    assert other.relay(MemoryClient(b"\x1f\x8b", headers=[("content-encoding", "gzip")], path="/files")).status == 200


PARSED = parse_body(chat_body())
WINDOWS = {"a": 10, "b": 20, "c": 40, "any": None}


class Counting(PassthroughPlanner):
    """Counts as it is told, and says how often it was asked."""

    def __init__(self, count: int | None) -> None:
        super().__init__()
        self.count, self.asked = count, 0

    async def tokens(self, parsed: ParsedBody) -> int | None:
        self.asked += 1
        return self.count


def level(*names: str, of: str = "m") -> list[Deployment]:
    """Deployments of one name, each with a window of its own."""
    return [make_deployment(name=of, id=name) for name in names]


def fitting(
    tokens: int | None,
    levels: Sequence[Sequence[Deployment]],
    wider: Sequence[Sequence[Deployment]] = (),
    profile: CapabilityProfile | None = None,
) -> tuple[list[list[str]], list[list[str]]]:
    """The ids of what is left."""
    exchange = Exchange(Arrival("POST", "/chat/completions", 0.0), window=profile)
    check = fitting_levels(Counting(tokens), lambda deployment: WINDOWS[deployment.id], exchange, PARSED, levels, wider)
    own, others = asyncio.run(check)
    return [[d.id for d in one] for one in own], [[d.id for d in one] for one in others]


B, C, PROFILE = level("b", of="n"), level("c", of="o"), CapabilityProfile("mine", Capability.CHAT)


@for_every(
    [
        *((tokens, [level("a", "b"), level("any")], [], None, [["a", "b"], ["any"]], []) for tokens in (None, 10)),
        (11, [level("a", "b"), level("any")], [], None, [["b"], ["any"]], []),
        (21, [level("a", "b"), level("any")], [], None, [["any"]], []),
        (15, [level("a")], [B, C], None, [["b"], ["c"]], []),
        (30, [level("a")], [B, C], None, [["c"]], []),
        (15, [level("a", "c")], [level("a", of="n"), level("b", of="o")], None, [["c"]], [["b"]]),
        (15, [level("a"), level("c", of="fallback")], [B], None, [["b"]], []),
        (15, [level("a"), level("c", of="fallback")], [], None, [["c"]], []),
        (50, [level("a", "b")], [C], PROFILE, [["a", "b"]], []),
        (30, [level("a", "b")], [C], PROFILE, [["c"]], []),
    ]
)
def test_deployments_whose_window_is_too_small_are_left_out_and_wider_models_go_before_ordinary_fallbacks(
    tokens: int | None,
    levels: list[list[Deployment]],
    wider: list[list[Deployment]],
    profile: CapabilityProfile | None,
    left: list[list[str]],
    later: list[list[str]],
) -> None:
    """Wider models that are too small are no help later. A request with a profile keeps its own deployments where none
    is wide enough."""
    assert fitting(tokens, levels, wider, profile) == (left, later)


def test_a_prompt_that_fits_nothing_is_refused_with_the_figures() -> None:
    with pytest.raises(ContextTooLong) as caught:
        fitting(50, [level("a", "b")], [level("c", of="n")])
    assert caught.value.code == "context_length_exceeded"
    assert "about 50 tokens" in caught.value.message
    assert "at most 40" in caught.value.message


def test_nothing_is_counted_where_no_window_is_known() -> None:
    planner = Counting(1000)
    exchange = Exchange(Arrival("POST", "/chat/completions", 0.0))
    levels = [level("a")]
    check = fitting_levels(planner, lambda deployment: None, exchange, PARSED, levels, ())
    assert asyncio.run(check) == (levels, ())
    assert planner.asked == 0
