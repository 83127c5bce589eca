"""The usage of several calls in the provider's own words."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.response.panel_answer import summed
from proxy.protocol.response.usage import summed as summed_usage
from proxy.protocol.response.usage import usage_of

COUNTS = st.integers(0, 10_000)


def openai(prompt: int, output: int, read: int, write: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt + read + write,
        "completion_tokens": output,
        "total_tokens": prompt + read + write + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
    }


def anthropic(prompt: int, output: int, read: int, write: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": write, "ephemeral_1h_input_tokens": 0},
    }


@pytest.mark.parametrize("shape", [openai, anthropic])
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), min_size=2, max_size=2))
def test_the_sum_of_reports_says_the_sum_of_what_they_say(shape: Any, counts: list[tuple[int, ...]]) -> None:
    one, other = (shape(*four) for four in counts)
    assert usage_of(summed(one, other)) == summed_usage(usage_of(one), usage_of(other))


def test_other_fields_are_those_of_the_last_report() -> None:
    one = {"prompt_tokens": 1, "queue_time": 0.5, "tier": "a", "cost": 0.25, "details": {"audio_tokens": None}}
    last = {"prompt_tokens": 2, "queue_time": 0.7, "tier": "b", "cost": 0.5, "is_byok": False, "details": None}
    found = {"prompt_tokens": 3, "queue_time": 0.7, "tier": "b", "cost": 0.75, "is_byok": False, "details": {}}
    assert summed(one, last) == found


@pytest.mark.parametrize("odd", ["x", True, None, [], {"a": 1}])
def test_what_is_no_count_is_not_added(odd: Any) -> None:
    assert summed({"total_tokens": odd}, {"total_tokens": 2}) == {"total_tokens": 2}
    assert summed({"total_tokens": 2}, {"total_tokens": odd}) == {"total_tokens": odd if odd is not None else 2}


def test_the_first_report_stays_as_it_is() -> None:
    assert summed(None, {"prompt_tokens": 3}) == {"prompt_tokens": 3}


def test_a_sum_is_a_number_that_json_can_be_written_with() -> None:
    most = {"prompt_tokens": 2**64 - 1, "total_tokens": 3}
    assert orjson.loads(orjson.dumps(summed(most, most))) == {"prompt_tokens": 2**64 - 1, "total_tokens": 6}
