"""Live panels through the whole proxy: the real SDK, HTTP, and a provider that records what it gets."""

import json
from typing import Any

import openai
import pytest

from tests.e2e.conftest import Proxy, Start, planner_of
from tests.e2e.provider import Scripted
from tests.e2e.test_structured import scripted, sent_texts

TODO = {"id": "todo", "kind": "todo", "header": "Todo List", "content": "write\nrest"}
TREE = {"id": "tree", "kind": "tree", "header": "Tree", "content": "a.py\nb.py"}


def ask(proxy: Proxy, section: dict[str, Any], *texts: str, **fields: Any) -> Any:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts or ("q",))]
    more = {"stratiform": {"session": "s", **section}, **fields.pop("extra", {})}
    return proxy.client.chat.completions.with_raw_response.create(
        model="m", messages=messages, extra_body=more, extra_headers=fields.pop("headers", {}), **fields
    )


def bodies(provider: Scripted) -> list[Any]:
    return [json.loads(seen.body) for seen in provider.seen]


def outline(body: Any) -> list[str]:
    """Each message as one word: the panel that is called, or the beginning of what is said."""
    found = []
    for message in body["messages"]:
        calls = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        words = [call.get("id") or call["action"] for call in calls] or [text_of(message).split()[0].rstrip(":")]
        found.append(" ".join([message["role"], *words]))
    return found


def text_of(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_panels_stand_in_front_and_what_changes_moves_to_the_prompt(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    first = ask(proxy, {"panels": [TODO, TREE]})
    ask(proxy, {"panels": [TODO | {"content": "rest"}, TREE]}, "q", "a", "r")
    assert first.headers["x-stratiform-edits"] == "panels-shown"
    one, two = (outline(body) for body in bodies(provider))
    assert one[:4] == ["assistant tree", "tool =======", "assistant todo", "tool ======="]
    assert one[4:] == ["assistant end_panels", "tool Panel", "user Current", "user q"]
    assert two[:2] == one[:2]
    assert two[-5:] == ["assistant a", "assistant todo", "tool =======", "user Current", "user r"]
    texts = "\n".join(sent_texts(provider))
    assert texts.count("======= [todo] Todo List =======\nrest") == 1
    assert "write" not in texts


def test_the_tool_is_declared_where_the_provider_wants_tools_declared(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    own = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}
    ask(proxy, {"panels": [TODO]})
    ask(proxy, {"panels": [TODO]}, tools=[own])
    ask(proxy, {"session": "t"})
    names = [[tool["function"]["name"] for tool in body.get("tools", ())] for body in bodies(provider)]
    assert names == [["dynamic_panel"], ["dynamic_panel", "own"], []]


def test_the_tool_is_not_declared_where_no_panel_is_shown_any_longer(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    ask(proxy, {"session": "t", "panels": [TODO]})
    ask(proxy, {"session": "t", "panels": []}, "q", "a", "r")
    assert ["tools" in body for body in bodies(provider)] == [True, False]


def test_under_the_tiers_panels_stand_in_their_original_order(start: Start) -> None:
    provider = scripted()
    proxy = start(provider, planner=planner_of("classic"))
    ask(proxy, {"panels": [TREE, TODO]})
    ask(proxy, {"panels": [TREE | {"content": "a.py"}, TODO]}, "q", "a", "r")
    calls = [word for word in outline(bodies(provider)[-1]) if word.startswith("assistant")]
    assert calls == ["assistant todo", "assistant tree", "assistant end_panels", "assistant a"]


def test_what_a_client_says_of_its_messages_holds(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    metas = [{"index": 0, "status": "deleted"}, {"index": 1, "status": "summarized", "tl_dr": "short"}]
    answer = ask(proxy, {"messages_meta": metas}, "secret", "long answer", "r")
    assert [text_of(message) for message in bodies(provider)[-1]["messages"]] == ["short", "r"]
    assert answer.headers["x-stratiform-edits"] == "history-summarized, history-removed"


def test_a_tool_of_the_client_s_own_with_the_name_of_ours_is_refused_where_panels_are_shown(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    own = {"type": "function", "function": {"name": "dynamic_panel", "parameters": {"type": "object"}}}
    with pytest.raises(openai.BadRequestError) as found:
        ask(proxy, {"panels": [TODO]}, tools=[own])
    assert (found.value.code, found.value.param, provider.seen) == ("reserved_tool", "tools", [])
    ask(proxy, {"panels": []}, tools=[own])
    assert len(provider.seen) == 1
