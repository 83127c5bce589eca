"""Breakpoints on the wire: what the planner sends through litellm arrives in its order, each mark behind the text that
it was meant for, and is billed as the plan itself would be. Of a family without marks the order is looked at.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from proxy.models import Transport
from proxy.models.deployments import choose_profile, provider_of
from proxy.protocol.providers import PROFILES, CacheProfile, Dialect
from tests.contract.litellm_calls import LITELLM
from tests.contract.litellm_panels import wire, wires_inside
from tests.contract.wire_bill import bill, pieces_of
from tests.edited_talks import SYSTEM, A, C, exchange
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, calling, chat, lines, result, sent, shown, system, text_part, tool, user

pytestmark = LITELLM

BEDROCK = "anthropic.claude-sonnet-4-5-20250929-v1:0"
MARKED = {
    "anthropic/claude-sonnet-4-5": "anthropic",
    f"bedrock/converse/{BEDROCK}": "bedrock",
    f"bedrock/invoke/{BEDROCK}": "bedrock",
    "vertex_ai/claude-sonnet-4-5": "vertex",
    "azure_ai/claude-sonnet-4-5": "foundry",
    "openrouter/anthropic/claude-sonnet-4.5": "openrouter-anthropic",
    "openrouter/openai/gpt-5.6-sol": "openrouter-openai-explicit",
    "openai/gpt-5.6-sol": "openai-explicit",
    "azure/gpt-5.6-sol": "azure-explicit",
    "dashscope/qwen3-max": "qwen",
}
"""The models of each family that reads marks, and the profile that the planner has for it."""
UNMARKED = (
    "openrouter/google/gemini-2.5-pro", "openai/gpt-5.2", "azure/gpt-4o", "minimax/MiniMax-M2", "zai/glm-4.6",
    "databricks/databricks-claude-sonnet-4-5",
)  # fmt: skip
NAMED = frozenset({"azure-explicit"})
"""Profiles that an operator asks for by name: ``model_info.cache_profile``."""
TOOLS = [tool("read"), tool("write")]


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and addresses that nothing is sent to."""
    for name in ("ANTHROPIC", "OPENROUTER", "OPENAI", "AZURE", "AZURE_AI", "DASHSCOPE", "MINIMAX", "ZAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "k")
    monkeypatch.setenv("DATABRICKS_API_KEY", "k")
    for name in ("AZURE", "AZURE_AI", "DATABRICKS"):
        monkeypatch.setenv(f"{name}_API_BASE", "http://127.0.0.1:9")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    monkeypatch.setenv("VERTEXAI_PROJECT", "p")
    monkeypatch.setenv("VERTEXAI_LOCATION", "us-east5")
    from litellm.llms.vertex_ai.vertex_llm_base import VertexBase

    monkeypatch.setattr(VertexBase, "get_access_token", lambda self, *given, **more: ("token", "p"))


def profile_of(model: str) -> CacheProfile:
    name = MARKED.get(model, "")
    found = PROFILES[name] if name in NAMED else choose_profile(Transport.LITELLM, *provider_of(model), "")
    assert name in ("", found.name)
    return replace(found, min_tokens=1)


def edited() -> Iterator[Body]:
    """A chat in which a file is edited between two others, with tools."""
    turns: list[Body] = []
    for number in range(6):
        changed = File("b.py", lines(60, "b") + f"edit {number}\n")
        yield chat(SYSTEM, *turns, *shown(changed, A, C), user(f"question {number}"), tools=TOOLS)
        turns += exchange(number)


def looping() -> Iterator[Body]:
    """A tool loop: the newest message is a result, alone or one of two, as a text or as parts."""
    talk = [SYSTEM, user("question " + lines(20, "task"))]
    for number in range(3):
        yield chat(*talk, tools=TOOLS)
        ids = [f"call{number}{letter}" for letter in "ab"[: 1 + number % 2]]
        found = lines(40, f"found {number}")
        talk += [calling(*ids), *(result(one, found if one.endswith("a") else [text_part(found)]) for one in ids)]
    yield chat(*talk, tools=TOOLS)
    yield chat(*talk, assistant(lines(5, "answer")), user("thanks"), tools=TOOLS)


def dated() -> Iterator[Body]:
    """Instructions in which a clock stands in front of everything else."""
    turns: list[Body] = []
    for number in range(6):
        clock = f"The time is 2026-11-25T10:0{number}:00Z.\n"
        yield chat(system(clock + lines(60, "rule")), *turns, user(f"question {number}"), tools=TOOLS)
        turns += exchange(number)


def in_parts() -> Iterator[Body]:
    """Instructions and turns whose content is a list."""
    turns: list[Body] = []
    rules = system([text_part(lines(30, "rule")), text_part(lines(30, "more"))])
    for number in range(4):
        asked = user([text_part(lines(30, f"context {number}")), text_part(f"question {number}")])
        yield chat(rules, *turns, asked, tools=TOOLS)
        turns += [asked, assistant(lines(3, f"answer {number}"))]


TRACES = {"edited": edited, "looping": looping, "dated": dated, "in parts": in_parts}


def bodies_of(trace: str, profile: CacheProfile) -> list[Body]:
    """What the planner sends of a conversation."""
    talk = Talk(profile=profile)
    return [sent(talk.send(body)) for body in TRACES[trace]()]


def marked_texts(body: Body) -> list[str]:
    return [piece.text for piece in pieces_of(body) if piece.is_marked]


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("model", [*MARKED, *UNMARKED])
def test_the_plan_arrives_as_it_was_meant(model: str, trace: str) -> None:
    profile = profile_of(model)
    planned = bodies_of(trace, profile)[-3:]
    arrived = [wire(model, body) for body in planned]
    assert [pieces_of(body) for body in arrived] == [pieces_of(body) for body in planned]
    assert any(map(marked_texts, arrived)) == (profile.dialect is not Dialect.NONE)
    assert max(len(marked_texts(body)) for body in arrived) <= 4


def test_a_mark_that_is_lost_on_the_way_is_seen() -> None:
    """litellm drops a mark on a message whose content is a list, and one on an answer that only calls a tool."""
    lost = user([text_part("a")], cache_control={"type": "ephemeral"})
    body = chat(lost, calling("call0"), result("call0", "found"), user([text_part("b")]), tools=TOOLS)
    arrived = wire("anthropic/claude-sonnet-4-5", body)
    assert (marked_texts(body), marked_texts(arrived)) == (["a"], [])


def saving(bodies: Sequence[Body], profile: CacheProfile) -> float:
    has_marks = profile.dialect is not Dialect.NONE
    read, write = (profile.read, profile.write) if has_marks else (0.1, 1.0)
    return 1 - bill(bodies, read=read, write=write, has_marks=has_marks)


LONG = lines(400, "guide")
"""Longer than the shortest prompt that any provider caches."""


@pytest.mark.parametrize("model", [*MARKED, *UNMARKED])
def test_inside_litellm_each_plan_arrives_and_the_saving_of_the_http_transport_is_kept(model: str) -> None:
    profile = replace(profile_of(model), min_tokens=PROFILES[profile_of(model).name].min_tokens)
    came = list(edited())
    for body in came:
        body["messages"][0] = system(LONG + body["messages"][0]["content"])
    talk = Talk(profile=profile)
    planned = [sent(talk.send(body)) for body in json.loads(json.dumps(came))]
    arrived = wires_inside(model, came, profile.name if profile.name in NAMED else "")
    assert all(marked_texts(body) for body in arrived) == (profile.dialect is not Dialect.NONE)
    assert max(len(marked_texts(body)) for body in arrived) <= 4
    assert saving(arrived, profile) >= 0.95 * saving(planned, profile) > 0.1
