"""Any bytes give a plan or an InvalidRequest, and planning takes linear time."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Mode
from proxy.planner.plan import Plan
from proxy.protocol.providers import PROFILES
from tests.examples import examples, sampled
from tests.fidelity.chats import File
from tests.fidelity.strategies import bodies
from tests.growth import steps_of
from tests.talk import Body, Talk, assistant, calling, chat, lines, result, shown, system, text_part, tool, user

KEYS = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "id", "function", "name", "cache_control", "messages", "tools",
     "model", "stream", "stream_options", "stratiform", "tool_call_id", "prompt_cache_breakpoint", "", "x"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["user", "system", "assistant", "tool", "text", "m", "\ud800", "ephemeral", "1h"]),
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
PROFILE = st.sampled_from(sorted(PROFILES))
MODE = st.sampled_from(list(Mode))
QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def planned(talk: Talk, raw: bytes) -> Plan | None:
    """The plan, which is fit for the wire; None where the request was refused. Anything else is an error."""
    try:
        plan = talk.send(raw)
    except InvalidRequest:
        return None
    assert plan.body
    if plan.body is not raw:
        json.loads(plan.body)
    return plan


@st.composite
def near_misses(draw: st.DrawFn) -> Body:
    """A chat body in which some values are something else."""
    body = draw(bodies())
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = body
        for _ in range(draw(st.integers(1, 6))):
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(holder[key], dict | list) or not holder[key]:
                break
            holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if keys:
            holder[draw(st.sampled_from(keys))] = draw(JSON)
    return body


def written(value: object, ascii_only: bool) -> bytes:
    """As a client might write it; lone surrogates and NaN included."""
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@given(JSON, st.booleans(), PROFILE, MODE)
@settings(max_examples=examples(200), deadline=None, suppress_health_check=QUIRKS)
def test_any_json(value: object, ascii_only: bool, profile: str, mode: Mode) -> None:
    planned(Talk(profile=replace(PROFILES[profile], min_tokens=1), mode=mode), written(value, ascii_only))


@given(JSON, JSON, st.booleans(), PROFILE, MODE)
@settings(max_examples=examples(200), deadline=None, suppress_health_check=QUIRKS)
def test_any_messages_and_tools(messages: object, tools: object, ascii_only: bool, profile: str, mode: Mode) -> None:
    body = {"model": "m", "messages": messages, "tools": tools}
    talk = Talk(profile=replace(PROFILES[profile], min_tokens=1), mode=mode)
    planned(talk, written(body, ascii_only))
    planned(talk, written({**body, "messages": [messages, user("a")]}, ascii_only))


@given(near_misses(), st.booleans(), PROFILE, MODE)
@settings(max_examples=examples(600), deadline=None, suppress_health_check=QUIRKS)
def test_almost_a_chat_request(body: Body, ascii_only: bool, profile: str, mode: Mode) -> None:
    talk = Talk(profile=replace(PROFILES[profile], min_tokens=1), mode=mode)
    raw = written(body, ascii_only)
    assert (planned(talk, raw) is None) == (planned(talk, raw) is None)


@given(st.binary(max_size=60), MODE)
@settings(max_examples=examples(100))
def test_any_bytes(raw: bytes, mode: Mode) -> None:
    planned(Talk(mode=mode), raw)


def turns(count: int) -> Body:
    """A plain chat."""
    return chat(system("s"), *(m for n in range(count) for m in (user(f"q{n}"), assistant(f"a{n}"))), user("go"))


def loop(count: int) -> Body:
    """A tool loop."""
    calls = [m for n in range(count) for m in (calling(f"{n}a", f"{n}b"), result(f"{n}a", "x"), result(f"{n}b", "y"))]
    return chat(system("s"), user("go"), *calls, tools=[tool("run")])


def files(count: int) -> Body:
    """Many files in one context message."""
    return chat(system("s"), *shown(*(File(f"f{n}.py", f"{n}\n") for n in range(count))), user("go"))


def same_file(count: int) -> Body:
    """One file many times."""
    return chat(system("s"), *shown(*(File("f.py", f"{n}\n") for n in range(count))), user("go"))


def groups(count: int) -> Body:
    """Many context messages."""
    return chat(system("s"), *(m for n in range(count) for m in shown(File(f"f{n}.py", f"{n}\n"))), user("go"))


def documents(count: int) -> Body:
    """Many documents in the system prompt."""
    return chat(system("Answer.\n" + "".join(f'<doc id="{n}">{n}</doc>\n' for n in range(count))), user("go"))


def parts(count: int) -> Body:
    """One message of many parts."""
    return chat(system("s"), user([text_part(f"{n}") for n in range(count)]))


def systems(count: int) -> Body:
    """Many system messages, each with a clock."""
    return chat(*(system(f"{n}\nCurrent time: 10:00\nmore\n") for n in range(count)), user("go"))


def tools(count: int) -> Body:
    """Many tools."""
    return chat(system("s"), user("go"), tools=[tool(f"t{n}") for n in range(count)])


@pytest.mark.parametrize("policy", ["economic", "classic"])
@pytest.mark.parametrize("shape", sampled([turns, loop, files, same_file, groups, documents, parts, systems, tools], 3))
def test_work_grows_with_the_request_and_not_with_its_square(shape: Callable[[int], Body], policy: str) -> None:
    def work(count: int) -> int:
        talk = Talk(policy=policy)
        body = shape(count)
        following = {**body, "messages": [*body["messages"], assistant("done"), user(lines(2))]}
        return steps_of(lambda: (talk.send(body), talk.send(following)))

    small, large = work(60), work(240)
    assert large < 5.5 * small, (small, large)
