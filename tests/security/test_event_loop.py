"""One request does not hold up the others: what is done to a body grows no faster than the body, whatever it is."""

import contextlib
import time
from collections.abc import Callable

import msgspec
import pytest

from proxy.core.cut import Trunks
from proxy.core.demand import demand_of
from proxy.core.head import head_of, untouched
from proxy.core.wire import Unreadable, parse_members, peek, value_spans
from proxy.errors import InvalidRequest
from tests.security.bodies import WIRE

KIB = 1 << 10
# Four times the bytes take about four times as long; a quadratic routine takes sixteen. Below the floor clocks err.
MOST_RATIO = 9.0
FLOOR_S = 0.004
MOST_S = 0.5


def cpu_s(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU that the work takes."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def assert_linear(work: Callable[[bytes], object], make: Callable[[int], bytes], size: int = 256 * KIB) -> None:
    """The work on four times as many bytes takes no more than about four times the CPU, and never half a second."""
    small, large = make(size), make(4 * size)
    assert len(large) > 2 * len(small), "the body does not grow"
    before, after = cpu_s(lambda: work(small)), cpu_s(lambda: work(large))
    assert after < MOST_S
    assert after < MOST_RATIO * max(before, FLOOR_S)


def taken_apart(body: bytes) -> None:
    """All that is done to a body's own bytes where it is not planned."""
    with contextlib.suppress(InvalidRequest):
        head = head_of(body, Trunks().cut)
        if head.members is not None:
            value_spans(body, head.members)
        untouched(body, head, "another")
        demand_of("POST", "/chat/completions", head.asked)
        demand_of("POST", "/completions", head.asked)


@pytest.mark.parametrize("name", sorted(WIRE))
def test_a_body_is_taken_apart_in_linear_time(name: str) -> None:
    assert_linear(taken_apart, WIRE[name])


@pytest.mark.parametrize("unit", [rb"\"", rb"\\", b"a", rb"\u0041"])
def test_spans_are_found_in_linear_time_however_a_name_is_written(unit: bytes) -> None:
    # What has such names is not taken apart, but the routine does not rely on that.
    members = {"": msgspec.Raw(b"1")}
    assert_linear(lambda body: value_spans(body, members), lambda size: b'{"' + unit * (size // len(unit)) + b'":1}')


@pytest.mark.parametrize("name", ["name-of-letters", "name-of-escaped-quotes", "many-names"])
def test_what_has_absurd_names_is_not_taken_apart_and_goes_where_it_should(name: str) -> None:
    body = WIRE[name](400 * KIB)
    with pytest.raises(Unreadable):
        parse_members(body)
    head = head_of(body)
    assert (head.model, head.cut) == ("m", None)


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
    found = peek(body, msgspec.json.Decoder(dict[str, str]))
    assert found is not None
    assert {name: found[name] for name in ("whole", "path", "quoted", "wide")} == {
        "whole": "\ud7a3\u00e9", "path": "\\ud83d\\", "quoted": '"\\ud800', "wide": "\u20ac"
    }  # fmt: skip
    assert (len(found["half"]), len(found["other"])) == (1, 2)
