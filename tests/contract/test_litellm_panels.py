"""Live panels on the wire: what litellm makes of the proxy's messages, the provider that is called takes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.context.history import DetachTerms
from proxy.protocol.providers import PROFILES
from tests.contract.litellm_calls import LITELLM
from tests.contract.litellm_panels import Body, Sender, wire
from tests.contract.provider_rules import anthropic_faults, bedrock_faults, gemini_faults, mistral_faults
from tests.talk import assistant, result, said, system, tool, user

pytestmark = LITELLM

PROVIDERS: dict[str, tuple[str, Callable[[Body], Iterator[str]]]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", anthropic_faults),
    "bedrock": ("bedrock/converse/anthropic.claude-sonnet-4-5-20250929-v1:0", bedrock_faults),
    "gemini": ("gemini/gemini-2.5-pro", gemini_faults),
    "mistral": ("mistral/mistral-large-latest", mistral_faults),
}
EACH = pytest.mark.parametrize("name", list(PROVIDERS))
RULES = system("Every rule is kept. " * 300)
LONG = "line of the panel\n" * 300
TODO = {"id": "todo", "kind": "todo", "header": "Todo List", "content": "write\n" + LONG}
TREE = {"id": "tree", "kind": "tree", "header": "Tree", "content": "a.py\n" + LONG}
GIT = {"id": "git", "kind": "git", "header": "Git", "content": "clean\n" + LONG}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC", "GEMINI", "MISTRAL"):
        monkeypatch.setenv(f"{name}_API_KEY", "k")


def calling(*ids: str, content: str | None = None) -> Body:
    """A call for each id, no two alike: litellm takes calls out of a turn for Gemini that say the same."""
    function = {"name": "open", "arguments": ""}
    calls = [{"id": i, "type": "function", "function": function | {"arguments": f'{{"path": "{i}"}}'}} for i in ids]
    return said("assistant", content, tool_calls=calls)


def at(panel: Body, version: int) -> Body:
    return panel | {"content": f"{panel['content']}{version}"}


def chat(sender: Sender, **more: Any) -> Iterator[tuple[Body, Body]]:
    """Four turns of plain talk. One panel changes in each turn, another in one, and the third never does."""
    talk = [RULES]
    for turn in range(4):
        panels = [TREE, at(TODO, turn // 2), at(GIT, turn)]
        talk.append(user(f"question {turn}"))
        yield sender.send({"panels": panels}, talk, **more)
        talk.append(assistant(f"answer {turn}"))


def loop(sender: Sender, **more: Any) -> Iterator[tuple[Body, Body]]:
    """Tool loops, with a panel that each call changes; one call has words beside it, and one message has two calls."""
    talk, ids = [RULES], iter(["call0000a", "call0000b", "call0000c", "call0000d"])
    for turn in range(2):
        talk.append(user(f"question {turn}"))
        yield sender.send({"panels": [TREE, at(GIT, len(talk))]}, talk, **more)
        talk += [calling(one := next(ids), content="let me see" if turn else None), result(one, "found")]
        yield sender.send({"panels": [TREE, at(GIT, len(talk))]}, talk, **more)
        if not turn:
            talk += [calling(one := next(ids), two := next(ids)), result(one, "1"), result(two, "2")]
            yield sender.send({"panels": [TREE, at(GIT, len(talk))]}, talk, **more)
        talk.append(assistant(f"answer {turn}"))


def own_tools(sender: Sender) -> Iterator[tuple[Body, Body]]:
    yield from loop(sender, tools=[tool("read"), tool("write")])


def repeated(sender: Sender) -> Iterator[tuple[Body, Body]]:
    yield from chat(Sender(sender.profile, options={"repeats_for": frozenset({sender.profile.name})}))


def classic(sender: Sender) -> Iterator[tuple[Body, Body]]:
    yield from chat(Sender(sender.profile, "classic"))


def frozen(sender: Sender) -> Iterator[tuple[Body, Body]]:
    terms = DetachTerms(chunk_messages=2, chunk_tokens=1, keep_messages=2, keep_tokens=1)
    yield from chat(Sender(sender.profile, options={"detach": terms}))


def without_system(sender: Sender) -> Iterator[tuple[Body, Body]]:
    yield sender.send({"panels": [TREE, GIT]}, [user("q")])
    yield sender.send({"panels": [TREE, at(GIT, 1)]}, [user("q"), assistant("a"), user("r")])


def described(sender: Sender) -> Iterator[tuple[Body, Body]]:
    """The client has messages left out and shortened, and has lost a result."""
    talk = [RULES, user("q"), calling("call0000a", "call0000b"), result("call0000a", "1"), assistant("a"), user("r")]
    talk += [calling("call0000c"), assistant("b"), user("s")]
    metas = [{"index": 4, "status": "summarized", "tl_dr": "short"}, {"index": 5, "status": "deleted"}]
    yield sender.send({"panels": [TREE, GIT], "messages_meta": metas}, talk)
    yield sender.send({"panels": [TREE, at(GIT, 1)], "messages_meta": metas}, [*talk, assistant("c"), user("t")])


def summary(sender: Sender) -> Iterator[tuple[Body, Body]]:
    talk = [RULES]
    for turn in range(4):
        talk += [user(f"question {turn}"), assistant(f"answer {turn}")]
    yield sender.send({"panels": [TREE, GIT], "compaction": True}, [*talk, user("r")])
    sender.compact(4, "They talked.")
    found = sender.send(
        {"panels": [TREE, at(GIT, 1)], "compaction": True}, [*talk, user("r"), assistant("a"), user("s")]
    )
    assert "[History Summary]" in json.dumps(found[0])
    yield found


def thinking(sender: Sender) -> Iterator[tuple[Body, Body]]:
    more = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}
    yield from chat(sender, **(more if sender.profile.thinks_in_calls else {}))


SESSIONS = [chat, loop, summary, thinking, repeated, own_tools, classic, frozen, without_system, described]


@EACH
@pytest.mark.parametrize("session", SESSIONS)
def test_the_provider_takes_each_request_in_both_orders(
    name: str, session: Callable[[Sender], Iterator[tuple[Body, Body]]]
) -> None:
    model, faults = PROVIDERS[name]
    for sent, instead in session(Sender(PROFILES[name])):
        arrived = wire(model, sent)
        assert list(faults(arrived)) == [], "as it is sent"
        assert list(faults(wire(model, instead))) == [], "in the original order"
        if name == "anthropic":
            assert marked(arrived) == marked(sent), "each marker arrives on the block that it was meant for"


def marked(body: Body) -> list[str]:
    """What carries a marker, in sending order: texts, and the ids of calls whose result carries one."""
    pieces = [*body.get("system", ())]
    for message in body["messages"]:
        whole = message["role"] == "tool" or isinstance(message.get("content"), str)
        pieces += [message] if whole else message.get("content") or ()
    shown = ("tool_use_id", "tool_call_id", "text", "content")
    return [next(piece[k] for k in shown if k in piece) for piece in pieces if "cache_control" in piece]


def test_the_planner_means_markers_on_answers() -> None:
    """So the check of those that arrive has some to look at: on an answer's text, and on the words beside a call."""
    sent = [sent for each in (chat, loop) for sent, _ in each(Sender(PROFILES["anthropic"]))]
    answers = [message for body in sent for message in body["messages"] if message["role"] == "assistant"]
    found = {text for answer in answers for text in marked({"messages": [answer]})}
    assert {"answer 0", "let me see"} <= found


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bedrock", "A conversation must start with a user message."),
        ("gemini", "function call turn comes immediately after a user turn or after a function response turn"),
        ("mistral", "Unexpected role 'user' after role 'tool'"),
    ],
)
def test_the_provider_would_refuse_what_another_takes(name: str, fault: str) -> None:
    other = Sender(PROFILES["anthropic"])
    sent, _ = other.send({"panels": [TREE, GIT]}, [user("q")])
    model, faults = PROVIDERS[name]
    assert fault in list(faults(wire(model, sent)))


def pieces(body: Body) -> list[str]:
    """The blocks of the conversation in sending order, without markers."""
    messages = body.get("contents") or body["messages"]
    found = []
    for message in messages:
        content = message.get("parts") or message.get("content")
        parts = (
            content if isinstance(content, list) else [{name: message.get(name) for name in ("content", "tool_calls")}]
        )
        for part in parts:
            kept = {key: value for key, value in part.items() if key not in ("cache_control", "cachePoint")}
            found += [json.dumps([message["role"], kept])] if kept else []
    return found


@EACH
@pytest.mark.parametrize("session", [chat, loop])
def test_what_is_added_for_a_provider_breaks_no_cache(
    name: str, session: Callable[[Sender], Iterator[tuple[Body, Body]]]
) -> None:
    """Each request goes on with the blocks of the one before, up to the first panel that has left its place."""
    model, _ = PROVIDERS[name]
    wires = [pieces(wire(model, sent)) for sent, _ in session(Sender(PROFILES[name]))]
    for before, after in zip(wires, wires[1:], strict=False):
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        gone = before[same : same + 1]
        assert all("dynamic panel" in each or "Panel auto" in each or '"tool' in each for each in gone), gone


def test_a_marker_on_a_panel_stands_on_its_result() -> None:
    *_, (sent, _) = chat(Sender(PROFILES["anthropic"]))
    meant = [m.get("tool_call_id") for m in sent["messages"] if m["role"] == "tool" and "cache_control" in str(m)]
    blocks = [block for m in wire(PROVIDERS["anthropic"][0], sent)["messages"] for block in m["content"]]
    marked = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result" and "cache_control" in block]
    assert marked == meant != []


GOLDEN = Path(__file__).parents[1] / "golden/panels_anthropic.txt"


def rendered(body: Body) -> str:
    """A request with a line for each block."""
    lines = [f"  {json.dumps(block)}" for block in body["system"]]
    for message in body["messages"]:
        lines += [message["role"], *(f"  {json.dumps(block)}" for block in message["content"])]
    return "\n".join(["system", *lines, "tools", *(f"  {each['name']}" for each in body["tools"])])


def test_the_whole_request_as_anthropic_gets_it(request: pytest.FixtureRequest) -> None:
    sender = Sender(PROFILES["anthropic"], options={"repeats_for": frozenset({"anthropic"})})
    todo, git = ({**panel, "content": panel["content"].removesuffix(LONG).strip()} for panel in (TODO, GIT))
    talk, tools = [system("Keep the rules."), user("Hello!")], [tool("open")]
    sender.send({"panels": [todo, git]}, talk, tools=tools)
    talk += [calling("T1", content="Let me check that file."), result("T1", "Opened 'T1' as P10"), assistant("Done.")]
    git["content"] = "1 file has changed"
    sent, instead = sender.send({"panels": [todo, git]}, [*talk, user("Go on.")], tools=tools)
    model = PROVIDERS["anthropic"][0]
    orders = {"original": instead, "chronological": sent}
    written = "".join(f"## The {name} order\n\n{rendered(wire(model, each))}\n\n" for name, each in orders.items())
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(written)
    assert written == GOLDEN.read_text()
