"""Any recording is replayed, explained and compared, or the place in the file that cannot be is named."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.kit.value import replace
from proxy.lab import TraceError, read_trace
from proxy.lab.replay import replay
from proxy.lab.replay.comparison import compare
from proxy.lab.replay.explain import explain_request
from proxy.protocol.providers import PROFILES
from tests.examples import examples
from tests.property.test_planner_any_json import PROFILE, QUIRKS, near_misses
from tests.unit.lab.replay.test_init_structured import wanted

TIMES = st.one_of(
    st.integers(0, 10_000), st.integers(), st.floats(), st.sampled_from([10**400, -1e18, 253_402_300_800, 1e11])
)
PANELS = {"panels": [{"id": "p", "kind": "file", "header": "h", "content": "text " * 50}], "session": "s"}


@st.composite
def recorded(draw: st.DrawFn) -> dict[str, Any]:
    body = draw(near_misses())
    if draw(st.booleans()):
        body = {**body, "stratiform": PANELS}
    return {"t": draw(TIMES), "session": draw(st.sampled_from(["s", "", None, 5])), "request": body}


def request(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"t": 1e18 if members else 1, "request": {"model": "m", "messages": list(messages), **members}}


@settings(max_examples=examples(40), deadline=None, suppress_health_check=QUIRKS)
@given(st.lists(recorded(), min_size=1, max_size=3), PROFILE)
@example([request({"role": "user", "content": "Hello"}, stratiform=PANELS)], "anthropic")
@example([request("cache_control")], "anthropic")
@example([request({"role": "user", "content": "Hello", "tool_calls": 1.5})], "anthropic")
def test_any_recording_gives_results_or_a_message_that_names_the_place(rows: list[Any], profile: str) -> None:
    setting = replace(wanted(), profile=PROFILES[profile])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.jsonl"
        said = f"{path}:"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            trace = read_trace(path)
            found = replay(trace, setting)
            assert (found.violations, found.surprises) == ([], [])
            assert explain_request(trace, setting, len(rows)).meaning
            assert compare(trace, setting).violations == []
        except TraceError as error:
            said = str(error)
        assert said.startswith((f"{path}:", "the request at t = "))
