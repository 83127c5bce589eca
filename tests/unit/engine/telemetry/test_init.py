"""What an exchange leaves behind: its cost, its saving, its metrics."""

import math
from dataclasses import replace
from functools import partial

import pytest

from proxy.engine.exchange import Call, ExchangeOutcome, Principal, Reservation, Settlement
from proxy.engine.telemetry import MetricsMeter, error_kind, savings
from proxy.engine.telemetry.metrics import ERROR_KINDS, Metrics
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment, Transport
from proxy.models.deployments import price_for
from proxy.planner.plan import Plan, PlanResult
from proxy.planner.record import Break, BreakKind
from proxy.planner.tiers import Change, Tier
from proxy.prompts.window import Capability, CapabilityProfile
from proxy.protocol.caches import Bill
from proxy.protocol.prices import Price, PriceMap
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.demand import Demand
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.refusal import ContextRefusalOutcome
from proxy.protocol.response.usage import Usage
from tests.exchanges import make_exchange
from tests.unit.engine.telemetry.test_metrics import value

PRICE = Price(input=1.0, output=5.0, read=0.1, write_5m=1.25, write_1h=2.0)
ENTRY = {
    "input_cost_per_token": 1.0,
    "output_cost_per_token": 5.0,
    "cache_read_input_token_cost": 0.1,
    "cache_creation_input_token_cost": 1.25,
    "cache_creation_input_token_cost_above_1hr": 2.0,
}
DEPLOYMENT = Deployment(name="m", model="up", transport=Transport.EMBEDDED, profile=ANTHROPIC)
CALL = Call(DEPLOYMENT, "POST", "/chat/completions", (), b"{}", stream=True, now=0.0)
OWN = Bill(read=0, write_5m=0, write_1h=0, plain=1000)
OURS = Bill(read=800, write_5m=200, write_1h=0, plain=0)
MONEY = {"model": "m", "team": "t"}
COST = {**MONEY, "client": "unrecognised"}
PRICED, UNPRICED = (partial(price_for, PriceMap(entries)) for entries in ({"up": ENTRY}, {}))


def plan(**fields):
    given = {
        "body": b"{ }",
        "original": b"{}",
        "mode": Mode.TIER,
        "reason": Reason.ORDERED.value,
        "predicted": OURS,
        "own": OWN,
        "tier_tokens": {"L0": 800},
        "segment_tokens": {"1": 900, "unmarked": 50},
    }
    return Plan(**{**given, **fields})


def exchange(**fields):
    given = {
        "method": "POST",
        "path": "/chat/completions",
        "now": 0.0,
        "is_chat": True,
        "principal": Principal("scope", "t"),
        "deployment": DEPLOYMENT,
        "mode": Mode.TIER,
        "reason": Reason.ORDERED.value,
        "plan": plan(),
        "result": PlanResult((Change("file:a", Tier.L1, Tier.L0, "unchanged"),)),
        "status": 200,
        "ending": ExchangeOutcome.COMPLETED,
        "usage": Usage(prompt=1000, output=10, read=800, write_5m=200),
        "overhead_s": 0.001,
        "first_byte_s": 0.2,
        "attempts": 1,
    }
    return make_exchange(**{**given, **fields})


def ended(meter, one):
    """The exchange, opened, priced and counted."""
    meter.began()
    one.settlement = meter.price(one)
    meter.settle(one)
    return one


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def settle(metrics):
    meter = MetricsMeter(metrics, PRICED)

    def run(one):
        return ended(meter, one)

    return run


def test_a_good_exchange(metrics, settle):
    done = settle(exchange())
    assert done.settlement.cost_usd == pytest.approx(80 + 250 + 50)
    assert value(metrics, "cost_usd_total", **COST) == pytest.approx(380)
    assert value(metrics, "input_cost_usd_total", **MONEY) == pytest.approx(330)
    assert value(metrics, "uncached_input_cost_usd_total", **MONEY) == 1000
    assert value(metrics, "saved_usd_total", **MONEY, basis="shadow") == pytest.approx(670)
    assert value(metrics, "saved_usd_total", **MONEY, basis="reported") == pytest.approx(670)
    assert value(metrics, "requests_total", model="m", mode="tier", status="200", transport="embedded") == 1
    assert value(metrics, "plan_reasons_total", mode="tier", reason="ordered") == 1
    assert value(metrics, "tier_tokens_total", tier="L0") == 800
    assert value(metrics, "segment_tokens_total", segment="1") == 900
    assert value(metrics, "tier_moves_total", source="L1", target="L0") == 1
    assert value(metrics, "prediction_error_tokens_sum", side="over") == 0
    assert value(metrics, "overhead_seconds_count") == 1
    assert value(metrics, "time_to_first_byte_seconds_count", model="m") == 1
    assert value(metrics, "in_flight") == 0


def test_a_name_behind_a_wildcard_for_which_no_upstream_was_called_is_no_label(metrics, settle):
    for number in range(300):
        odd = replace(DEPLOYMENT, name=f"odd-{number}", entry="odd-*")
        refused = {"plan": None, "usage": None, "status": 403, "ending": ExchangeOutcome.REFUSED, "attempts": 0}
        settle(exchange(deployment=odd, **refused))
    assert value(metrics, "requests_total", model="odd-*", mode="tier", status="403", transport="embedded") == 300
    settle(exchange(deployment=replace(DEPLOYMENT, name="honest")))
    assert value(metrics, "requests_total", model="honest", mode="tier", status="200", transport="embedded") == 1


def test_further_calls_are_each_priced_and_the_plan_is_held_against_the_first_alone(metrics, settle):
    one = exchange()
    one.answer.further = (Outcome(usage=Usage(2000, 20, read=1000)), Outcome(usage=Usage(10, 1, estimated=True)))
    one.answer.panel_calls.update(answered=2)
    done = settle(one)
    assert done.settlement.usage == Usage(3010, 31, read=1800, write_5m=200, estimated=True)
    assert done.settlement.cost_usd == pytest.approx(380 + (1000 * 0.1 + 1000 + 100) + (10 + 5))
    assert done.settlement.saved_usd == pytest.approx(670)
    assert value(metrics, "cost_usd_total", **COST) == pytest.approx(done.settlement.cost_usd)
    assert value(metrics, "uncached_input_cost_usd_total", **MONEY) == 1000 + 2000 + 10
    assert value(metrics, "prediction_error_tokens_sum", side="over") == 0
    assert value(metrics, "panel_calls_total", outcome="answered") == 2
    assert value(metrics, "panel_calls_total", outcome="failed") == 0


def test_refusals_for_the_context_window_are_counted_by_profile_and_outcome(metrics, settle):
    one = exchange()
    one.window = CapabilityProfile("mine", Capability.CHAT)
    one.answer.context_refusals.update({ContextRefusalOutcome.RETRIED: 2, ContextRefusalOutcome.ERROR: 1})
    settle(one)
    other = exchange()
    other.answer.context_refusals[ContextRefusalOutcome.PASSED] += 1
    settle(other)
    assert value(metrics, "context_refusals_total", profile="mine", outcome="retried") == 2
    assert value(metrics, "context_refusals_total", profile="mine", outcome="error") == 1
    assert value(metrics, "context_refusals_total", profile="none", outcome="passed") == 1
    assert value(metrics, "context_refusals_total", profile="none", outcome="empty") == 0


def test_lost_answers_are_billed_with_their_further_calls(metrics):
    one = exchange()
    one.answer.further = (Outcome(usage=Usage(2000, 20)),)
    lost = MetricsMeter(metrics, PRICED).lose(one)
    assert lost.usage == Usage(3000, 30, read=800, write_5m=200)
    assert lost.cost_usd == pytest.approx(380 + 2100)
    assert value(metrics, "uncached_input_cost_usd_total", **MONEY) == 0


def test_the_cost_of_one_answer_is_told_without_counting_it(metrics):
    meter = MetricsMeter(metrics, PRICED)
    two = [Outcome(usage=Usage(100, 2)), Outcome(usage=Usage(10, 1))]
    assert meter.spent(exchange(), two) == Settlement(Usage(110, 3), 125.0)
    assert meter.spent(exchange(lost=Settlement(Usage(1, 0), 7.0)), two).cost_usd == 132.0
    assert meter.spent(exchange(), [Outcome()]) == Settlement()
    assert MetricsMeter(metrics, UNPRICED).spent(exchange(), two).cost_usd == 0
    assert value(metrics, "cost_usd_total", **COST) in (0, None)


def test_a_miss_that_was_not_foreseen_is_a_loss_as_reported(metrics, settle):
    settle(exchange(usage=Usage(prompt=1000, output=10, write_5m=1000)))
    assert value(metrics, "saved_usd_total", **MONEY, basis="shadow") == pytest.approx(670)
    assert value(metrics, "lost_usd_total", **MONEY, basis="reported") == pytest.approx(250)
    assert value(metrics, "prediction_error_tokens_sum", side="over") == 800


def test_the_reported_basis_weighs_by_the_providers_count():
    saved = savings(exchange(usage=Usage(prompt=2000, output=1, read=2000)), PRICE)
    assert saved == {"shadow": pytest.approx(670), "reported": pytest.approx(2000 - 200)}


@pytest.mark.parametrize(
    "fields",
    [
        {"plan": plan(body=b"{}", predicted=OWN), "usage": Usage(1000, 1, read=1000)},
        {"plan": plan(own=None)},
        {"plan": None},
        {"status": 400, "ending": ExchangeOutcome.REJECTED, "usage": None},
        {"first_byte_s": None, "status": 0, "ending": ExchangeOutcome.BROKEN, "usage": None},
    ],
)
def test_nothing_saved_where_nothing_of_ours_was_sent_or_billed(fields):
    assert savings(exchange(**fields), PRICE) == {}


def test_observing_saves_nothing_and_says_what_it_would(metrics, settle):
    settle(exchange(mode=Mode.OBSERVE, plan=plan(body=b"{}", mode=Mode.OBSERVE, reason="observe-mode")))
    assert value(metrics, "saved_usd_total", **MONEY, basis="observed") == pytest.approx(670)
    assert value(metrics, "saved_usd_total", **MONEY, basis="shadow") is None
    assert value(metrics, "prediction_error_tokens_sum", side="under") == 800, "the client's own layout was sent"


def test_a_client_that_left_still_pays(metrics, settle):
    done = settle(exchange(ending=ExchangeOutcome.HUNG_UP, usage=None, stream=True, events=25, **WROTE))
    assert done.settlement.usage == Usage(1000, 25, estimated=True), "nothing of the prompt counts as read"
    assert done.settlement.cost_usd == pytest.approx(1000 + 125)
    assert value(metrics, "client_disconnects_total") == 1
    assert value(metrics, "usage_missing_total", model="m") == 1
    assert value(metrics, "tokens_total", model="m", kind="estimated", client="unrecognised") == 1000
    assert value(metrics, "saved_usd_total", **MONEY, basis="shadow") == pytest.approx(670)
    assert value(metrics, "saved_usd_total", **MONEY, basis="reported") is None
    assert value(metrics, "prediction_error_tokens_count", side="over") == 0


def test_a_client_that_left_before_the_upstream_answered(metrics, settle):
    done = settle(exchange(ending=ExchangeOutcome.HUNG_UP, usage=None, status=0, first_byte_s=None))
    assert (done.settlement.usage, done.settlement.cost_usd) == (None, 0)
    assert value(metrics, "requests_total", model="m", mode="tier", status="499", transport="embedded") == 1
    assert value(metrics, "usage_missing_total", model="m") is None


def test_raw_paths_are_counted_by_what_they_report(metrics, settle):
    raw = {"is_chat": False, "plan": None, "mode": Mode.PASSTHROUGH}
    assert settle(exchange(path="/embeddings", usage=Usage(8, 0), **raw)).settlement.cost_usd == 8
    files = settle(exchange(path="/files", usage=None, size=10**7, **raw))
    assert (files.settlement.usage, files.settlement.cost_usd) == (None, 0)
    text = settle(exchange(path="/messages", usage=None, size=4000, tokens=100, **raw))
    assert text.settlement.usage == Usage(1000, 100, estimated=True)
    assert value(metrics, "plan_reasons_total", mode="passthrough", reason="passthrough-mode") is None


def test_a_model_without_a_price_costs_nothing_and_is_counted(metrics):
    done = ended(MetricsMeter(metrics, UNPRICED), exchange())
    assert done.settlement.cost_usd == 0
    assert value(metrics, "unpriced_requests_total", model="m") == 1
    assert value(metrics, "tokens_total", model="m", kind="read", client="unrecognised") == 800


def test_a_request_that_we_refused(metrics, settle):
    settle(
        exchange(
            model="client-chosen", principal=None, deployment=None, plan=None, usage=None,
            status=401, ending=ExchangeOutcome.REFUSED, first_byte_s=None,
        )
    )  # fmt: skip
    assert value(metrics, "requests_total", model="none", mode="tier", status="401", transport="none") == 1
    assert b"client-chosen" not in b"".join(metrics.pieces())
    assert value(metrics, "plan_reasons_total", mode="tier", reason="passthrough-mode") == 0


def test_a_spent_budget(metrics, settle):
    settle(
        exchange(plan=None, usage=None, status=429, ending=ExchangeOutcome.REFUSED, error_code="insufficient_quota",
                 first_byte_s=None)
    )  # fmt: skip
    assert value(metrics, "budget_rejections_total", team="t") == 1


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"ending": ExchangeOutcome.BROKEN, "error_code": "upstream_timeout", "first_byte_s": None}, "timeout"),
        ({"ending": ExchangeOutcome.BROKEN, "error_code": "upstream_unavailable", "first_byte_s": None}, "unavailable"),
        ({"ending": ExchangeOutcome.BROKEN, "error_code": "upstream_unavailable"}, "broken-off"),
        ({"ending": ExchangeOutcome.REJECTED, "status": 429}, "rate-limited"),
        ({"ending": ExchangeOutcome.REJECTED, "status": 403}, "unauthorized"),
        ({"ending": ExchangeOutcome.REJECTED, "status": 422}, "rejected"),
        ({"ending": ExchangeOutcome.REJECTED, "status": 529}, "server-error"),
    ],
)
def test_upstream_errors_by_kind(metrics, settle, fields, kind):
    failed = exchange(usage=None, **fields)
    assert error_kind(failed) == kind
    settle(failed)
    assert kind in ERROR_KINDS
    assert value(metrics, "upstream_errors_total", model="m", kind=kind) == 1


def test_a_retry_with_the_original_is_judged_by_what_the_provider_says(metrics, settle):
    settle(exchange(was_retried=True, reason=Reason.BARRED.value, usage=Usage(1000, 1, write_5m=1000)))
    assert value(metrics, "retries_original_total") == 1
    assert value(metrics, "plan_reasons_total", mode="tier", reason="barred") == 1
    assert value(metrics, "lost_usd_total", **MONEY, basis="reported") == pytest.approx(250)
    assert value(metrics, "saved_usd_total", **MONEY, basis="shadow") is None
    assert value(metrics, "prediction_error_tokens_count", side="over") == 0


def test_standing_down_may_cost_what_the_provider_holds_of_ours():
    down = plan(body=b"{}", own=Bill(1000, 0, 0, 0), predicted=Bill(0, 1000, 0, 0))
    saved = savings(exchange(plan=down, usage=Usage(1000, 1, write_5m=1000)), PRICE)
    assert saved == {"shadow": pytest.approx(-1150), "reported": pytest.approx(-1150)}


def test_the_arms_of_a_hold_out_are_counted_apart(metrics) -> None:
    meter = MetricsMeter(metrics, PRICED)
    control = plan(body=b"{}", mode=Mode.OBSERVE, reason=Reason.HOLD_OUT.value, arm="control")
    ended(meter, exchange(plan=plan(arm="treated")))
    ended(meter, exchange(plan=control, usage=Usage(prompt=1000, output=10)))
    treated = {"model": "m", "arm": "treated"}
    assert value(metrics, "holdout_input_cost_usd_total", **treated) == pytest.approx(800 * 0.1 + 200 * 1.25)
    assert value(metrics, "holdout_uncached_input_cost_usd_total", **treated) == 1000
    assert value(metrics, "holdout_input_cost_usd_total", model="m", arm="control") == 1000
    assert savings(exchange(plan=control), PRICE) == {}


def test_a_deviation_is_counted_beside_the_providers_cause(metrics) -> None:
    MetricsMeter(metrics, PRICED).settle(exchange(result=PlanResult(deviation="evicted"), cache_cause="unavailable"))
    assert value(metrics, "cache_deviations_total", model="m", kind="evicted", cause="unavailable") == 1


# Clients that leave

WROTE = {"heard_s": math.inf}
"""The model has written without a pause."""


LEFT = {"ending": ExchangeOutcome.HUNG_UP, "usage": None, "stream": True}


def test_what_was_sent_is_billed_though_the_client_left_before_the_first_byte(settle):
    done = settle(exchange(**LEFT, status=0, first_byte_s=None, call=CALL))
    assert done.settlement.usage == Usage(1000, done.settlement.usage.output, estimated=True)
    assert settle(exchange(**LEFT, status=0, first_byte_s=None)).settlement.usage is None


@pytest.mark.parametrize(
    ("demand", "more", "output"),
    [
        (Demand(), {"events": 3, "tokens": 400}, 400),
        (Demand(max_output_tokens=195, answers=2), {"events": 3, "tokens": 400}, 390),
        # More came than the request allows.
        (Demand(max_output_tokens=50, answers=2), {"events": 3, "tokens": 400}, 400),
        # A silent model has thought.
        (Demand(max_output_tokens=800, answers=2), {"tokens": 10, "silent_s": 1.0}, 10 + 600),
        # A call that goes on is billed to its limit; one that came whole is not.
        (Demand(max_output_tokens=800), {"tokens": 10}, 10),
        (Demand(max_output_tokens=800), {"tokens": 10, "runs_on": True, "is_open": True}, 800),
        (Demand(max_output_tokens=800), {"tokens": 10, "runs_on": True}, 10),
    ],
)
def test_the_answer_to_a_client_that_left_is_billed_by_what_came_and_what_was_thought(settle, demand, more, output):
    assert settle(exchange(**LEFT, **WROTE, **more, demand=demand)).settlement.usage.output == output


@pytest.mark.parametrize(
    ("kind", "culprit_kind", "cause", "counted"),
    [
        (BreakKind.CHANGED, "system", "system-changed", {"same": 1.0}),
        (BreakKind.CHANGED, "system", "tools-changed", {"other": 1.0}),
        (BreakKind.TOOLS, "tool", "tools-changed", {"same": 1.0}),
        (BreakKind.CHANGED, "turn", "messages-changed", {"same": 1.0}),
        (BreakKind.MODEL_SWITCHED, "model", "model-changed", {"same": 1.0}),
        (None, "", "messages-changed", {"other": 1.0}),
        (BreakKind.CHANGED, "system", "untold", {}),
        (BreakKind.CHANGED, "system", "unavailable", {}),
        (BreakKind.CHANGED, "system", "hit", {}),
    ],
)
def test_the_providers_cause_is_counted_beside_ours(settle, metrics, kind, culprit_kind, cause, counted):
    broke = Break(kind, "x", culprit_kind, usd=2.0) if kind is not None else None
    settle(exchange(plan=plan(), result=PlanResult(broke=broke), cache_cause=cause))
    found = {
        agreement: count
        for agreement in ("same", "other")
        if (count := value(metrics, "cache_break_causes_total", model="m", agreement=agreement))
    }
    assert found == counted
    if kind is not None:
        assert value(metrics, "cache_breaks_total", model="m", kind=kind) == 1
        assert value(metrics, "cache_break_usd_total", model="m", kind=kind) == 2.0


def test_a_cause_that_a_client_has_asked_for_itself_is_compared_with_nothing(settle, metrics):
    settle(exchange(path="/messages", plan=None, cache_cause="system-changed"))
    assert not value(metrics, "cache_break_causes_total", model="m", agreement="other")


def test_a_usage_without_output_is_not_believed_where_text_came(settle):
    done = settle(exchange(stream=True, tokens=300, usage=Usage(1000, 0, read=900), **WROTE))
    assert done.settlement.usage == Usage(1000, 300, read=900, estimated=True)
    assert settle(exchange(stream=True, usage=Usage(1000, 0, read=900))).settlement.usage == Usage(1000, 0, read=900)


def test_a_usage_that_came_in_mid_answer_is_no_more_than_its_beginning(settle):
    left = {**LEFT, **WROTE, "is_open": True, "tokens": 300, "usage": Usage(1000, 1, read=900)}
    done = settle(exchange(**left))
    assert done.settlement.usage == Usage(1000, 300, read=900, estimated=True)


def test_the_prompt_is_billed_as_it_was_reserved(settle):
    held = Reservation("sx-1", "t", prompt_tokens=1300)
    assert settle(exchange(**LEFT, **WROTE, reservation=held)).settlement.usage == Usage(1300, 0, estimated=True)
