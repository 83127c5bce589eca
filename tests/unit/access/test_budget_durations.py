"""LiteLLM's lengths of budgets as windows here: they begin anew when LiteLLM's do, or are never laxer."""

from datetime import UTC, datetime
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access import validation
from proxy.access.budget_durations import window_of
from proxy.spend.windows import window_at
from tests.contract.litellm_calls import LITELLM

pytestmark = LITELLM
CALENDAR = ["1h", "hourly", "1d", "24h", "daily", "7d", "1w", "weekly", "30d", "monthly", "1mo"]


@given(st.sampled_from(CALENDAR), st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))
def test_a_calendar_window_ends_when_litellms_does(duration: str, at: datetime) -> None:
    litellm = import_module("litellm.litellm_core_utils.duration_parser")
    now = at.replace(tzinfo=UTC)
    window = window_at(window_of(duration), "UTC", now.timestamp())
    assert window.resets_at == litellm.get_next_standardized_reset_time(duration, now).timestamp()


@pytest.mark.parametrize(("duration", "window"), [("", "total"), (None, "total"), ("2w", 14), ("2mo", 62), ("45d", 45)])
def test_any_other_window_rolls_and_is_one_that_a_budget_may_have(duration: str | None, window: str | int) -> None:
    found = validation.window(window_of(duration))
    assert found == (window if isinstance(window, str) else f"rolling:{window * 86400}")


@pytest.mark.parametrize("duration", ["sometimes", "2 moons", "0d", "-1d", "1y", "1d1h"])
def test_what_is_no_length_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match="must be a length"):
        window_of(duration)
