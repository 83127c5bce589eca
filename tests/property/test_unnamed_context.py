"""A conversation with structured context that its client does not name is planned like one that it names."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.exchange import Principal
from proxy.engine.ports import PlanRequest
from proxy.kit.modes import Mode
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import parse_body, with_system
from tests.doubles import make_deployment
from tests.e2e.conftest import planner_of
from tests.examples import examples

Body = dict[str, Any]
TEXTS = st.sampled_from(["", "one\n" * 40, "two\n" * 400, "three\n" * 2_000])


@st.composite
def conversations(draw: st.DrawFn) -> list[Body]:
    """The requests of one conversation that grows, while files and panels change, come and go."""
    talk: list[Body] = [{"role": "system", "content": "rules\n" * 600}]
    shown: dict[str, str] = {}
    found = []
    for turn in range(draw(st.integers(2, 6))):
        shown |= draw(st.dictionaries(st.sampled_from(["todo", "tree", "a.py", "b.py"]), TEXTS, max_size=2))
        panels = [{"id": name, "content": shown[name]} for name in shown if "." not in name]
        files = [{"path": name, "content": shown[name], "selected": True} for name in shown if "." in name]
        talk = [*talk, {"role": "user", "content": f"question {turn}\n" * draw(st.sampled_from([1, 200]))}]
        found.append({"model": "m", "messages": talk, "stratiform": {"files": files, "panels": panels, "tree": True}})
        talk = [*talk, {"role": "assistant", "content": f"answer {turn}\n" * 50}]
    return found


async def sent(requests: list[Body], profile: str, name: str, header: str = "", server: str = "") -> list[Any]:
    """What the provider receives, if the section or a header has the conversation's name. Each request is answered."""
    planner, found = planner_of("economic"), []
    deployment = make_deployment(profile=PROFILES[profile], server=server)
    for number, body in enumerate(requests):
        now = 1.7e9 + 20 * number
        raw = orjson.dumps({**body, "stratiform": {**body["stratiform"], "session": name}})
        chat = await planner.assemble(parse_body(raw), Principal("key", session_hint=header), now)
        chat.kept()
        principal = Principal("key", session_hint=chat.context.session or header)
        plan = await planner.plan(PlanRequest(parse_body(chat.body), deployment, principal, Mode.TIER, now, chat))
        planner.on_accepted(plan, now)
        planner.on_completed(plan, None, now)
        found.append((orjson.loads(plan.body), plan.headers))
    return found


@given(conversations(), st.sampled_from(["anthropic", "openai", "deepseek"]))
@settings(max_examples=examples(150), deadline=None)
def test_a_conversation_is_laid_out_alike_with_and_without_a_name(requests: list[Body], profile: str) -> None:
    assert asyncio.run(sent(requests, profile, "")) == asyncio.run(sent(requests, profile, "a name"))


async def sessions(requests: list[Body]) -> set[str]:
    """The sessions to which the requests of a conversation belong, while the operator edits the prompt of all."""
    planner, found = planner_of("economic"), set()
    for number, body in enumerate(requests):
        own = parse_body(orjson.dumps(body))
        composed = parse_body(with_system(own, f"version {number} of the operator's prompt"))
        chat = await planner.assemble(composed, Principal("key"), 1.7e9 + 20 * number, own)
        found.add(chat.session)
    return found


@given(conversations(), st.booleans())
@settings(max_examples=examples(50), deadline=None)
def test_a_conversation_stays_one_session_while_the_operators_prompt_changes(
    requests: list[Body], has_system: bool
) -> None:
    messages = slice(0 if has_system else 1, None)
    assert len(asyncio.run(sessions([{**body, "messages": body["messages"][messages]} for body in requests]))) == 1


@pytest.mark.parametrize(("name", "header", "is_added"), [("", "", True), ("s", "", True), ("", "s", False)])
def test_a_name_that_no_header_tells_the_provider_leaves_the_routing_key(
    name: str, header: str, is_added: bool
) -> None:
    section = {"panels": [{"id": "todo", "content": "x" * 9_000}]}
    body = {"model": "m", "messages": [{"role": "user", "content": "question " * 900}], "stratiform": section}
    ((found, _),) = asyncio.run(sent([body], "openrouter-anthropic", name, header, "openrouter"))
    assert ("session_id" in found) is is_added
