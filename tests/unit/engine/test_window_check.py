"""Which deployments take a prompt, before any of them is called."""

import asyncio
from collections.abc import Sequence

import pytest

from proxy.core.request.parsed_body import ParsedBody, parse_body
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.engine.exchange import Arrival, Exchange
from proxy.engine.window_check import fitting as fitting_levels
from proxy.errors import ContextTooLong
from proxy.ports import Deployment
from tests.doubles import PassthroughPlanner, make_deployment
from tests.unit.engine.parts import chat_body

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


def place(name: str, entry: str = "") -> Deployment:
    return make_deployment(name=entry or name, id=name)


def level(*names: str, of: str = "m") -> list[Deployment]:
    """Deployments of one name, each with a window of its own."""
    return [place(name, of) for name in names]


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


@pytest.mark.parametrize(
    ("tokens", "left"),
    [(None, [["a", "b"], ["any"]]), (10, [["a", "b"], ["any"]]), (11, [["b"], ["any"]]), (21, [["any"]])],
)
def test_a_deployment_whose_window_is_too_small_is_left_out(tokens: int | None, left: list[list[str]]) -> None:
    assert fitting(tokens, [level("a", "b"), level("any")])[0] == left


def test_a_wider_model_serves_what_fits_no_deployment_of_the_name() -> None:
    assert fitting(15, [level("a")], [level("b", of="n"), level("c", of="o")]) == ([["b"], ["c"]], [])
    assert fitting(30, [level("a")], [level("b", of="n"), level("c", of="o")]) == ([["c"]], [])


def test_wider_models_that_are_too_small_are_no_help_later() -> None:
    assert fitting(15, [level("a", "c")], [level("a", of="n"), level("b", of="o")]) == ([["c"]], [["b"]])


def test_a_wider_model_goes_before_an_ordinary_fallback() -> None:
    assert fitting(15, [level("a"), level("c", of="fallback")], [level("b", of="n")]) == ([["b"]], [])
    assert fitting(15, [level("a"), level("c", of="fallback")]) == ([["c"]], [])


def test_a_prompt_that_fits_nothing_is_refused_with_the_figures() -> None:
    with pytest.raises(ContextTooLong) as caught:
        fitting(50, [level("a", "b")], [level("c", of="n")])
    assert caught.value.code == "context_length_exceeded"
    assert "about 50 tokens" in caught.value.message
    assert "at most 40" in caught.value.message


def test_a_request_with_a_profile_keeps_its_own_where_none_is_wide_enough() -> None:
    profile = CapabilityProfile("mine", Capability.CHAT)
    assert fitting(50, [level("a", "b")], [level("c", of="n")], profile) == ([["a", "b"]], [])
    assert fitting(30, [level("a", "b")], [level("c", of="n")], profile) == ([["c"]], [])


def test_nothing_is_counted_where_no_window_is_known() -> None:
    planner = Counting(1000)
    exchange = Exchange(Arrival("POST", "/chat/completions", 0.0))
    levels = [level("a")]
    check = fitting_levels(planner, lambda deployment: None, exchange, PARSED, levels, ())
    assert asyncio.run(check) == (levels, ())
    assert planner.asked == 0
