"""Several attempts for one exchange: which failures are followed by another, where it goes, and what is counted."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine import Breakers
from proxy.engine.attempts import Attempts, retry_after_s
from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal
from proxy.kit.errors import (
    BudgetExceeded,
    CircuitOpen,
    ProxyError,
    UpstreamError,
    UpstreamLoading,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.kit.resilience import ORDINARY, BreakerPolicy, RetryPolicy
from proxy.models import Deployment
from proxy.prompts.window import Capability, CapabilityProfile, OverBudget
from tests.doubles import ModelList, RewritingPlanner, make_deployment
from tests.examples import for_every
from tests.unit.engine.parts import BODY, DONE, JSON, ROLE, WORD, Bench, MemoryClient, Script, answers, chat_body, ended

QUICK = RetryPolicy(retries=2, first_wait_s=0.001)
NUMBERS = st.integers(-(10**6), 10**25).map(str) | st.integers(0, 60).map("{:02}".format)


@dataclass(slots=True)
class Groups(ModelList):
    """One name with several levels of deployments, and who serves it where their windows are too small."""

    groups: Sequence[Sequence[Deployment]] = ()
    others: Sequence[Sequence[Deployment]] = ()

    def levels(self, name: str) -> Sequence[Sequence[Deployment]]:
        return self.groups

    def wider(self, name: str) -> Sequence[Sequence[Deployment]]:
        return self.others

    def resolve(self, name: str) -> Deployment:
        return self.groups[0][0]


def place(name: str, number: int = 0, **fields: object) -> Deployment:
    """A deployment with a key of its own."""
    found = make_deployment(name=name, base_url="http://x", api_key="sk-operator", **fields)  # type: ignore[arg-type]
    return replace(found, id=f"{name}#{number}" if number else name)


def ok() -> Script:
    return answers(BODY, headers=JSON)


def busy(status: int = 503, **headers: str) -> Script:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return answers(b'{"error": {"message": "busy"}}', status=status, headers=[*JSON, *named])


def levels(text: str) -> list[list[Deployment]]:
    """Each word is a level: a name, and with ``*2`` behind it two deployments of that name."""
    found = [(name, int(count or 1)) for name, _, count in (word.partition("*") for word in text.split())]
    return [[place(name, n) for n in range(1, count + 1)] if count > 1 else [place(name)] for name, count in found]


def over(text: str, *scripts: Script | ProxyError, wider: str = "", **more: Any) -> Bench:
    """A bench whose name has these levels of deployments."""
    return Bench(*scripts, models=Groups(groups=levels(text), others=levels(wider)), **{"retries": QUICK, **more})


def ids(bench: Bench) -> list[str]:
    """Where the calls went."""
    return [call.deployment.id for call in bench.upstream.calls]


@for_every(
    [
        (lambda: busy(429), "rate-limited"),
        (lambda: busy(500), "server-error"),
        (lambda: busy(529), "server-error"),
        (lambda: busy(408), "timeout"),
        (lambda: UpstreamUnavailable("gone"), "unavailable"),
        (lambda: UpstreamTimeout("silent"), "timeout"),
        (lambda: UpstreamRejected("busy", status=503, error_type="server_error"), "server-error"),
        (lambda: answers(UpstreamUnavailable("cut")), "unavailable"),
    ]
)
def test_what_reached_nobody_is_tried_again(trouble: Callable[[], Script | ProxyError], kind: str) -> None:
    bench = Bench(trouble(), trouble(), ok(), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (200, BODY)
    exchange = ended(bench)
    assert (exchange.ending, exchange.attempts, bench.ledger.failures) == (ExchangeOutcome.COMPLETED, 3, [kind, kind])
    assert bench.planner.events == ["accepted", "completed"]
    assert len(set(bench.upstream.bodies)) == 1
    assert all(script.closed == 1 for script in bench.upstream.scripts if isinstance(script, Script))


def test_a_deployment_that_cannot_be_called_yet_has_done_nothing_wrong() -> None:
    loading = [UpstreamLoading("not yet", headers={"retry-after": "5"}) for _ in range(6)]
    bench = Bench(*loading, ok(), retries=QUICK, breakers=Breakers(BreakerPolicy(allowed_fails=1)))
    for _ in loading:
        client = bench.chat(MemoryClient(chat_body()))
        assert (client.status, client.answer_headers["retry-after"]) == (503, "5")
    assert bench.chat(MemoryClient(chat_body())).status == 200


def test_another_deployment_serves_while_one_cannot_be_called_yet() -> None:
    bench = over("m*2", UpstreamLoading("not yet"), ok())
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert len(set(ids(bench))) == 2
    assert bench.ledger.failures == ["loading"]


def test_the_last_failure_is_the_answer() -> None:
    bench = Bench(busy(), busy(), busy(429, retry_after="0"), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer_headers["retry-after"]) == (429, "0")
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.status, exchange.attempts) == (ExchangeOutcome.REJECTED, 429, 3)


@for_every(
    [
        lambda: busy(400),
        lambda: busy(401),
        lambda: busy(404),
        lambda: busy(501),
        lambda: busy(429, x_should_retry="false"),
        lambda: busy(429, retry_after="3600"),
        lambda: busy(429, retry_after="2.5"),
        lambda: busy(503, retry_after="Fri, 31 Dec 2999 23:59:59 GMT"),
        lambda: UpstreamError("a bug"),
    ]
)
def test_what_would_end_alike_is_not_tried_again(trouble: Callable[[], Script | ProxyError]) -> None:
    bench = Bench(trouble(), retries=QUICK)
    assert bench.chat(MemoryClient(chat_body())).status >= 400
    assert (ended(bench).attempts, bench.ledger.failures) == (1, [])


def test_nothing_is_tried_again_once_a_byte_was_sent() -> None:
    bench = Bench(answers(ROLE, UpstreamUnavailable("cut")), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer.startswith(ROLE)
    assert ended(bench).ending is ExchangeOutcome.BROKEN
    assert len(bench.upstream.calls) == 1


def test_what_is_held_back_can_still_be_tried_again() -> None:
    broken = answers(ROLE, UpstreamTimeout("silent"))
    bench = Bench(broken, answers(ROLE, WORD, DONE), planner=RewritingPlanner(), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer == ROLE + WORD + DONE
    assert (ended(bench).attempts, ended(bench).planned.was_retried) == (2, False)


def test_an_answer_without_a_body_begins_all_the_same() -> None:
    bench = Bench(answers(status=204, headers=[]), retries=QUICK)
    client = bench.relay(MemoryClient(method="HEAD", headers=[], path="/models"))
    assert (client.status, client.has_ended) == (204, True)


def test_a_refused_rewrite_and_a_failure_in_one_exchange() -> None:
    bench = Bench(busy(), busy(400), busy(500), ok(), planner=RewritingPlanner(), retries=QUICK)
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert [b"rewritten" in body for body in bench.upstream.bodies] == [True, True, False, False]
    exchange = ended(bench)
    assert (exchange.attempts, exchange.planned.was_retried) == (4, True)


async def test_a_client_that_leaves_while_a_retry_waits_ends_it() -> None:
    bench = Bench(busy(429, retry_after="2"), retries=RetryPolicy(retries=1))

    task = asyncio.ensure_future(bench.engine.chat(MemoryClient(chat_body())))
    while not bench.ledger.failures:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended(bench).ending is ExchangeOutcome.HUNG_UP


def test_a_group_serves_a_session_at_one_place_and_moves_when_that_fails() -> None:
    bench = over("m*3", ok(), ok(), UpstreamUnavailable("gone"), ok())
    for _ in range(3):
        assert bench.chat(MemoryClient(chat_body())).status == 200
    first, again, third, moved = ids(bench)
    assert first == again == third != moved
    assert bench.ledger.ended[-1].deployment is not None
    assert bench.ledger.ended[-1].deployment.id == moved


TASK, CLOCK = {"role": "user", "content": "go"}, {"role": "system", "content": "10:00"}
LATER = [{**CLOCK, "content": "10:01"}, TASK, {"role": "assistant", "content": "a"}, TASK]


@for_every([({}, [CLOCK, TASK], LATER), ({"prompt_cache_key": "s1"}, [TASK], [{**TASK, "content": "another"}])])
def test_a_session_is_known_by_what_stays(more: dict[str, object], *talks: Sequence[object]) -> None:
    bench = over("m*29", ok(), ok())
    for messages in talks:
        bench.chat(MemoryClient(chat_body(messages=messages, **more)))
    assert len(set(ids(bench))) == 1


@for_every(["task", "hint", "scope"])
def test_a_task_a_hint_and_a_scope_tell_sessions_apart(what: str) -> None:
    bench = over("m*29", *(ok() for _ in range(20)))
    for n in range(20):
        known = {"task": "t", "hint": "h", "scope": "s", what: str(n)}
        who = Principal(known["scope"], session_hint=known["hint"] if what == "hint" else "")
        bench.door.admit = lambda headers, now, who=who: who  # type: ignore[method-assign,misc]
        bench.chat(MemoryClient(chat_body(messages=[{"role": "user", "content": known["task"]}])))
    assert len(set(ids(bench))) > 6


def test_a_fallback_is_planned_for_as_what_it_is() -> None:
    main, other = place("m", model="big"), place("n", model="small")
    bench = Bench(busy(), busy(), busy(), ok(), models=Groups(groups=[[main], [other]]), retries=QUICK)
    client = bench.chat(MemoryClient(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'))
    assert client.status == 200
    assert [orjson.loads(body)["model"] for body in bench.upstream.bodies] == ["big", "big", "big", "small"]
    assert ended(bench).deployment is other


@pytest.mark.parametrize("refuses", ["extend", "take_turn"])
def test_an_exchange_whose_fallback_is_not_called_stands_under_the_deployment_that_was_called(refuses: str) -> None:
    main, other = place("m"), place("n")
    bench = Bench(busy(504), models=Groups(groups=[[main], [other]]), retries=RetryPolicy(retries=0))

    async def full(exchange: Exchange, asked: object, further_tokens: int = 0) -> bool:
        if bench.upstream.calls:
            raise BudgetExceeded("enough")
        return True

    setattr(bench.door, refuses, full)
    assert bench.chat(MemoryClient(chat_body())).status == 429
    assert ended(bench).deployment is main


def test_the_reservation_knows_all_who_may_serve() -> None:
    seen: list[Deployment] = []
    bench = over("m n", ok())
    reserve = bench.door.reserve

    async def noting(exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        assert exchange.deployment is not None
        seen.extend((exchange.deployment, *others))
        await reserve(exchange, others)

    bench.door.reserve = noting  # type: ignore[method-assign,assignment]
    bench.chat(MemoryClient(chat_body()))
    assert [d.id for d in seen] == ["m", "n"]


@pytest.mark.parametrize("key", ["sk-operator", None])
def test_a_deployment_that_asks_for_time_is_passed_over_meanwhile_unless_the_limit_is_a_clients(
    key: str | None,
) -> None:
    group = [replace(place("m", n), api_key=key) for n in (1, 2)]
    models, breakers = Groups(groups=[group]), Breakers(BreakerPolicy())
    bench = Bench(busy(429, retry_after="30"), ok(), ok(), models=models, retries=QUICK, breakers=breakers)
    for _ in range(2):
        bench.chat(MemoryClient(chat_body()))
    first, second, third = ids(bench)
    assert first != second
    assert third == (first if key is None else second)


def test_a_breaker_opens_closes_and_is_told_of() -> None:
    now, told = [0.0], list[tuple[str, str]]()
    breakers = Breakers(
        BreakerPolicy(allowed_fails=1, cooldown_s=5.0), lambda d, s: told.append((d, s)), lambda: now[0]
    )
    bench = Bench(busy(), busy(), ok(), models=Groups(groups=[[place("m")]]), breakers=breakers)
    for _ in range(2):
        assert bench.chat(MemoryClient(chat_body())).status == 503
    now[0] = 1.0
    shut = bench.chat(MemoryClient(chat_body()))
    assert (shut.status, orjson.loads(shut.answer)["error"]["code"]) == (503, "circuit_open")
    assert shut.answer_headers["retry-after"] == "4"
    assert len(bench.upstream.calls) == 2
    now[0] = 5.0
    assert bench.chat(MemoryClient(chat_body())).status == 200
    assert told == [("m", "open"), ("m", "half-open"), ("m", "closed")]
    assert [e.ending for e in bench.ledger.ended][2] is ExchangeOutcome.BROKEN
    assert len(bench.door.reserved) == 3, "nothing is reserved for what is not sent"


@pytest.mark.parametrize("others", [0, 1])
def test_who_comes_behind_the_probe_goes_elsewhere_or_is_refused(others: int) -> None:
    """Also where it was admitted before the probe was sent."""
    now = [0.0]
    breakers = Breakers(BreakerPolicy(allowed_fails=0), now=lambda: now[0])
    group = [place("m", n) for n in range(1 + others)]
    breakers.ended(group[0], ORDINARY, is_failure=True)
    now[0] = 5.0
    probe, late = (Attempts([group], breakers, QUICK, lambda: 0.0, lambda kind: None) for _ in range(2))
    assert (probe.deployment, late.deployment) == (group[0], group[0])
    assert probe.began()
    if not others:
        with pytest.raises(CircuitOpen):
            late.began()
        return
    assert not late.began()
    assert asyncio.run(late.pause())
    assert late.deployment is group[1]
    assert late.began()


async def test_one_call_probes_at_a_time_and_its_place_is_the_next_ones_when_its_client_leaves() -> None:
    now = [0.0]
    bench = Bench(busy(), answers(None), ok(), breakers=Breakers(BreakerPolicy(allowed_fails=0), now=lambda: now[0]))
    await bench.engine.chat(MemoryClient(chat_body()))
    now[0] = 5.0
    probe = asyncio.ensure_future(bench.engine.chat(MemoryClient(chat_body())))
    while len(bench.upstream.calls) < 2:
        await asyncio.sleep(0)
    beside, behind = MemoryClient(chat_body()), MemoryClient(chat_body())
    await bench.engine.chat(beside)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    await bench.engine.chat(behind)
    assert (beside.status, behind.status, len(bench.upstream.calls)) == (503, 200, 3)


def test_an_upload_that_its_client_breaks_off_is_not_the_upstreams_failure() -> None:
    breakers = Breakers(BreakerPolicy(allowed_fails=0))
    headers = [("content-type", "multipart/form-data"), ("content-length", "20")]
    bench = Bench(UpstreamUnavailable("upload ended"), answers(b"{}", headers=JSON), retries=QUICK, breakers=breakers)
    client = MemoryClient(b"x" * 20, headers=headers, path="/files")
    client.failure = ValueError("the client's")
    with pytest.raises(ValueError, match="the client's"):
        bench.relay(client)
    assert bench.relay(MemoryClient(b"x" * 20, headers=headers, path="/files")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "calls"),
    [("POST", "/embeddings", 2), ("POST", "/responses", 2), ("GET", "/files", 2), ("POST", "/batches", 1),
     ("DELETE", "/files/1", 1)],
)  # fmt: skip
def test_other_paths_are_tried_again_where_that_does_no_harm(method: str, path: str, calls: int) -> None:
    bench = Bench(busy(), ok(), retries=QUICK)
    body = b'{"model": "m"}' if method == "POST" else b""
    client = bench.relay(MemoryClient(body, method=method, path=path, headers=JSON if body else []))
    assert client.status == (200 if calls == 2 else 503)
    assert len(bench.upstream.calls) == calls


@for_every(
    [
        ([("retry-after", "7")], 7.0),
        ([("retry-after", "0.5")], 0.5),
        ([("retry-after-ms", "250"), ("retry-after", "7")], 0.25),
        ([("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], 0.0),
        ([("retry-after", "soon")], None),
        ([("retry-after", "-1")], None),
        ([("retry-after", "nan")], None),
        ([("retry-after", "1e99")], 1e6),
        ([], None),
    ]
)
def test_when_an_upstream_wants_to_be_asked_again(headers: list[tuple[str, str]], expected: float | None) -> None:
    assert retry_after_s(headers) == expected


@given(
    st.sampled_from(["Mon, {} Jan {} 00:00:00 GMT", "Mon, 01 Jan 2024 {}:{}:00 GMT", "Mon, 01 Jan 2024 00:00:{} +{}"]),
    st.tuples(NUMBERS, NUMBERS),
)
def test_a_date_of_any_numbers_asks_for_a_wait_or_for_nothing(form: str, numbers: tuple[str, str]) -> None:
    wait_s = retry_after_s([("retry-after", form.format(*numbers))])
    assert wait_s is None or 0 <= wait_s <= 1e6


SDK = [*JSON, ("x-stainless-retry-count", "0")]
AGAIN = [*JSON, ("x-stainless-retry-count", "1")]
AI_SDK = [*JSON, ("user-agent", "ai/6.0.1 ai-sdk/provider-utils/4.0.1")]


@for_every(
    product([SDK, AGAIN, AI_SDK], [lambda: busy(429, retry_after="1"), busy, lambda: UpstreamUnavailable("gone")])
)
def test_a_client_that_repeats_its_calls_gets_no_retries_of_ours(
    headers: list[tuple[str, str]], trouble: Callable[[], Script | ProxyError]
) -> None:
    bench = Bench(trouble(), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body(), headers=headers))
    assert client.status in {429, 502, 503}
    assert "x-should-retry" not in client.answer_headers
    assert ended(bench).attempts == 1


@pytest.mark.parametrize("trouble", [busy, lambda: UpstreamUnavailable("gone")])
def test_what_the_proxy_has_repeated_is_not_repeated_by_the_client(trouble: Callable[[], Script | ProxyError]) -> None:
    bench = Bench(*(trouble() for _ in range(3)), retries=QUICK)
    client = bench.chat(MemoryClient(chat_body()))
    assert client.answer_headers["x-should-retry"] == "false"
    assert ended(bench).attempts == 3


@for_every([lambda: busy(429, retry_after="30"), lambda: busy(429, retry_after="0"), busy])
def test_in_a_group_the_retries_of_one_call_are_counted_together(trouble: Callable[[], Script]) -> None:
    """A call that its client repeats twice makes no more calls to any deployment than it would make directly."""
    bench = over("m*2", *(trouble() for _ in range(9)))
    for count in ("0", "1", "2"):
        client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, ("x-stainless-retry-count", count)]))
        assert client.status >= 429
        if client.answer_headers.get("x-should-retry") == "false":
            break
    assert max(Counter(ids(bench)).values()) <= 3


NO_MONEY = b'{"error": {"message": "You exceeded your current quota", "type": "x", "code": "insufficient_quota"}}'


def no_money(status: int) -> Script | ProxyError:
    return answers(NO_MONEY[:20], NO_MONEY[20:], status=status, headers=[*JSON, ("retry-after", "1")])


@for_every([429, 402, 403])
def test_a_quota_is_not_waited_for(status: int) -> None:
    bench = Bench(no_money(status), retries=QUICK, breakers=Breakers(BreakerPolicy(allowed_fails=0)))
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (status, NO_MONEY)
    assert client.answer_headers["x-should-retry"] == "false"
    assert ended(bench).attempts == 1


def no_credit() -> Script | ProxyError:
    message = "Your credit balance is too low to access the Anthropic API."
    body = orjson.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
    return answers(body, status=400, headers=JSON)


REJECTED = UpstreamRejected("no", status=429, error_type="insufficient_quota")


@for_every([*(lambda status=status: no_money(status) for status in (429, 402, 403)), lambda: REJECTED, no_credit])
def test_another_deployment_has_another_quota(trouble: Callable[[], Script | ProxyError]) -> None:
    bench = over("m*2 n", trouble(), trouble(), ok(), ok(), breakers=Breakers(BreakerPolicy()))
    assert bench.chat(MemoryClient(chat_body(), headers=AGAIN)).status == 200
    assert (ended(bench).attempts, bench.ledger.failures) == (3, ["quota", "quota"])
    bench.chat(MemoryClient(chat_body()))
    assert len(set(ids(bench)[:3])) == 3
    assert ids(bench)[3] == "n", "an account without money is passed over for a while"


LONG = b"x" * 90_000


@for_every([((b'{"err', UpstreamUnavailable("cut")), b'{"err', False), ((LONG, LONG), LONG + LONG, True)])
def test_an_error_passes_as_far_as_it_came(steps: tuple[Any, ...], answer: bytes, has_ended: bool) -> None:
    client = Bench(answers(*steps, status=403, headers=JSON), retries=QUICK).chat(MemoryClient(chat_body()))
    assert (client.status, client.answer, client.has_ended) == (403, answer, has_ended)


@pytest.mark.parametrize("counts", [[None], ["0", "1", "2", "3", "4"]])
def test_the_attempts_of_one_call_do_not_shut_a_deployment(counts: list[str | None]) -> None:
    """The client gets the upstream's own words to the end."""
    bench = Bench(
        *(busy(500) for _ in range(9)), ok(), retries=replace(QUICK, retries=8),
        breakers=Breakers(BreakerPolicy(allowed_fails=1)),
    )  # fmt: skip
    for count in counts:
        more = [] if count is None else [("x-stainless-retry-count", count)]
        client = bench.chat(MemoryClient(chat_body(), headers=[*JSON, *more]))
        assert (client.status, client.answer) == (500, b'{"error": {"message": "busy"}}')


def too_large() -> Script:
    return answers(b'{"error": {"message": "prompt is too long: 5 tokens > 4 maximum"}}', status=400, headers=JSON)


BUSY, GONE = "server-error", "unavailable"


@for_every(
    [
        ("m", "n o", lambda: (too_large(), too_large(), ok()), 200, "m n o", []),
        ("m", "n", lambda: (too_large(), too_large()), 400, "m n", []),
        ("m", "n", lambda: [busy() for _ in range(3)], 503, "m m m", [BUSY] * 2),
        ("m n", "n o", lambda: (*(busy() for _ in range(3)), too_large(), ok()), 200, "m m m n o", [BUSY] * 3),
        ("m", "n*2 o", lambda: (too_large(), busy(401)), 401, "m n", []),
        ("m", "n*2 o", lambda: (too_large(), UpstreamUnavailable("gone"), too_large(), ok()), 200, "m n n o", [GONE]),
    ]
)
def test_wider_models_are_asked_in_turn_and_once_where_the_window_is_too_small(
    text: str,
    wider: str,
    scripts: Callable[[], Sequence[Script | ProxyError]],
    status: int,
    asked: str,
    failures: list[str],
) -> None:
    """Deployments of one model stand in for each other where one fails, but have the same window."""
    bench = over(text, *scripts(), wider=wider)
    client, calls = bench.chat(MemoryClient(chat_body())), bench.upstream.calls
    assert (client.status, client.answer.count(b"prompt is too long")) == (status, status == 400)
    assert " ".join(call.deployment.name for call in calls) == asked
    assert len(set(ids(bench))) == len(asked.replace("m m m", "m").split())
    assert (ended(bench).attempts, bench.ledger.failures) == (len(calls), failures)
    assert ended(bench).deployment is calls[-1].deployment


def test_a_wider_model_that_keeps_failing_is_left_alone_and_the_refusal_passes() -> None:
    breakers, wide = Breakers(BreakerPolicy(allowed_fails=0, cooldown_s=60)), place("n")
    call = breakers.began(wide)
    assert call is not None
    breakers.ended(wide, call, is_failure=True)
    bench = over("m", too_large(), wider="n", breakers=breakers)
    assert bench.chat(MemoryClient(chat_body())).status == 400
    assert ids(bench) == ["m"]


def test_a_wider_model_comes_before_what_the_profile_says() -> None:
    profile = CapabilityProfile("mine", Capability.CHAT, over_budget=OverBudget.EMPTY)
    bench = over("m", too_large(), ok(), wider="n", window=profile)
    assert bench.chat(MemoryClient(chat_body())).answer == BODY
    bench = over("m", too_large(), too_large(), wider="n", window=profile)
    assert bench.chat(MemoryClient(chat_body())).answer_headers["x-stratiform-outcome"] == "over_budget"
    assert ids(bench) == ["m", "n"]


def test_a_raw_request_is_asked_of_a_wider_model_with_that_models_name() -> None:
    bench = over("m", too_large(), ok(), wider="n")
    assert bench.relay(MemoryClient(chat_body(), path="/messages")).status == 200
    assert [orjson.loads(body)["model"] for body in bench.upstream.bodies] == ["m", "n"]
