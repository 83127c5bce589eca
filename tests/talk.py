"""A client that talks to the planner: messages in short notation, requests sent one after another in virtual time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plugins.aider import AiderRecogniser
from plugins.fenced import FencedRecogniser
from plugins.system_text import SystemTextRecogniser
from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.planner.candidates import PlanAnalysis
from proxy.planner.plan import Plan, PlannerOptions, PlanResult
from proxy.protocol.providers import ANTHROPIC, CacheProfile
from proxy.protocol.request.message import Message, MessageReader
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import Encode, TokenCounter, bytes_over_four
from proxy.protocol.request.transcript import NOTHING_MOVES, RecognisedRequest, Transcript, recognise_request
from proxy.protocol.wire.json_body import elements
from tests.fidelity.chats import EDITABLE_ACK, EDITABLE_OPENING, File

Body = dict[str, Any]

RECOGNISERS = (AiderRecogniser(), FencedRecogniser(), SystemTextRecogniser())
# Anthropic's rules without the minimum length, so that short prompts can show them.
TINY = replace(ANTHROPIC, name="anthropic", min_tokens=1)
MARK = {"cache_control": {"type": "ephemeral"}}
MARK_KEYS = ("cache_control", "prompt_cache_breakpoint")


def said(role: str, content: object, **more: object) -> Body:
    """A message."""
    return {"role": role, "content": content, **more}


def system(content: object, **more: object) -> Body:
    """A system message."""
    return said("system", content, **more)


def user(content: object, **more: object) -> Body:
    """A user's turn."""
    return said("user", content, **more)


def assistant(content: object, **more: object) -> Body:
    """A model's turn."""
    return said("assistant", content, **more)


def text_part(text: str, **more: object) -> Body:
    """A content part."""
    return {"type": "text", "text": text, **more}


def calling(*ids: str, content: object = None) -> Body:
    """A model's turn that calls tools."""
    calls = [{"id": i, "type": "function", "function": {"name": "run", "arguments": '{"x":1}'}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(call_id: str, content: object, **more: object) -> Body:
    """A tool's answer."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def as_parts(*messages: Body) -> list[Body]:
    """The same messages as clients send them that write calls and results into the content: the results of one turn
    stand in one message of the user."""
    found: list[Body] = []
    has_results = False
    for message in messages:
        if "tool_calls" in message:
            calls = [
                {"type": "tool_use", "id": call["id"], "name": "run", "input": {}} for call in message["tool_calls"]
            ]
            found.append({"role": "assistant", "content": calls})
        elif message["role"] == "tool":
            part = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if has_results:
                found[-1]["content"].append(part)
            else:
                found.append({"role": "user", "content": [part]})
        else:
            found.append(message)
        has_results = message["role"] == "tool"
    return found


def tool(name: str, **more: object) -> Body:
    """A tool definition."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}, **more}


def file_text(files: Sequence[File], opening: str = EDITABLE_OPENING, fence: tuple[str, str] = ("```", "```")) -> str:
    """Files in the form in which aider shows them."""
    return opening + "".join(f"\n{f.path}\n{fence[0]}\n{f.content}{fence[1]}\n" for f in files)


def shown(*files: File, opening: str = EDITABLE_OPENING, ack: str = EDITABLE_ACK) -> list[Body]:
    """A context message of aider's and its acknowledgement."""
    return [user(file_text(files, opening)), assistant(ack)]


def lines(count: int, label: str = "line") -> str:
    """A text of ``count`` lines."""
    return "".join(f"{label} {number} of a text that is long enough to matter\n" for number in range(count))


def chat(*messages: Body, **more: object) -> Body:
    """A request."""
    return {"model": "m", **more, "messages": list(messages)}


def read(messages: Sequence[Body], encode: Encode = bytes_over_four) -> tuple[Message, ...]:
    """The messages, read by the core."""
    reader = MessageReader(TokenCounter(encode), RECOGNISERS)
    return tuple(reader.read(raw) for raw in elements(json.dumps(messages).encode()))


def view_of(*messages: Body, movable: bool = True, moving: Mapping[int, float] = NOTHING_MOVES) -> RecognisedRequest:
    """The view of a request; ``movable`` answers for candidates, ``moving`` are the proxy's own messages."""
    return recognise_request(Transcript(read(messages)), lambda *_: movable, moving)


def marks_in(body: Mapping[str, Any]) -> list[str]:
    """The places of the markers, as paths, in the provider's order."""
    found = [f"tools[{i}]" for i, each in enumerate(body.get("tools") or []) if _is_marked(each)]
    for index, message in enumerate(body["messages"]):
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        found += [f"{index}.{place}" for place, part in enumerate(parts) if _is_marked(part)]
        found += [f"{index}"] if _is_marked(message) else []
        calls = message.get("tool_calls") or []
        found += [f"{index}.call{place}" for place, call in enumerate(calls) if _is_marked(call)]
    return found


def _is_marked(holder: object) -> bool:
    return isinstance(holder, dict) and any(holder.get(key) is not None for key in MARK_KEYS)


@dataclass
class Talk:
    """One client, one planner, one route; every request is accepted and settled unless told otherwise."""

    profile: CacheProfile = TINY
    mode: Mode = Mode.TIER
    policy: str = "economic"
    route: Route = field(default_factory=lambda: Route(scope="team", name="m", model="m", profile=TINY))
    encode: Encode = bytes_over_four
    now: float = 1000.0
    options: PlannerOptions = field(default_factory=PlannerOptions)
    memory_bytes: int = 512 << 20
    planner: TierPlanner = field(init=False)
    results: list[PlanResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.route = replace(self.route, profile=self.profile)
        self.planner = TierPlanner(self.encode, RECOGNISERS, self.policy, self.options, memory_bytes=self.memory_bytes)

    def plan(self, body: Body | bytes) -> Plan:
        """A plan that is not carried out."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        plan = self.planner.plan(raw, self.route, self.mode, self.now)
        assert plan.surprise is None, repr(plan.surprise)
        return plan

    def send(self, body: Body | bytes, *, after_s: float = 10.0) -> Plan:
        """Send a request ``after_s`` seconds after the previous one. The upstream accepts and answers it."""
        self.now += after_s
        plan = self.plan(body)
        self.planner.on_accepted(plan, self.now)
        self.results.append(self.planner.on_completed(plan, None, self.now))
        return plan


def analysis_of(plan: Plan) -> PlanAnalysis:
    """The analysis of a planned request."""
    assert plan.in_flight is not None
    return plan.in_flight.analysis


def sent(plan: Plan) -> Body:
    """The body that is sent."""
    body = json.loads(plan.body)
    assert isinstance(body, dict)
    return body
