"""What providers refuse in a conversation, each rule as it is said by the provider, checked on what litellm sends."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Body = Mapping[str, Any]
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PLAIN_ID = re.compile(r"[a-zA-Z0-9]{9}")


def anthropic_faults(body: Body) -> Iterator[str]:
    """Faults of a request of the Messages API."""
    messages = [(message["role"], message["content"]) for message in body["messages"]]
    calls = [[b["id"] for b in content if b["type"] == "tool_use"] for _, content in messages]
    results = [[b["tool_use_id"] for b in content if b["type"] == "tool_result"] for _, content in messages]
    yield from _pairing([role for role, _ in messages], calls, results)
    for role, content in messages:
        kinds = [block["type"] for block in content]
        if kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
            yield "`tool_result` blocks must come first"
        if any(block["type"] == "text" and not block["text"].strip() for block in content):
            yield "text content blocks must be non-empty"
        if role == "assistant" and any("cache_control" in block and block["type"] != "text" for block in content):
            yield "a marker on a thinking block, which is refused, or on a call, which the planner never means"
        if any("cache_control" in str(block["content"]) for block in content if block["type"] == "tool_result"):
            yield "`cache_control` may not be specified within `tool_result.content`"
    if any(calls) and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if str(body).count("'cache_control'") > 4:
        yield "A maximum of 4 blocks with cache_control may be provided"
    if body.get("thinking") and any(calls):
        last = max(i for i, ids in enumerate(calls) if ids)
        behind = [role for role, _ in messages[last + 1 :]]
        if behind == ["user"] and messages[last][1][0]["type"] != "thinking":
            yield "a final `assistant` message must start with a thinking block"


def bedrock_faults(body: Body) -> Iterator[str]:
    """Faults of a request of Converse."""
    messages = [(message["role"], message["content"]) for message in body["messages"]]
    if messages[0][0] != "user":
        yield "A conversation must start with a user message."
    calls = [[b["toolUse"]["toolUseId"] for b in content if "toolUse" in b] for _, content in messages]
    results = [[b["toolResult"]["toolUseId"] for b in content if "toolResult" in b] for _, content in messages]
    yield from _pairing([role for role, _ in messages], calls, results)
    if any(not block["text"].strip() for _, content in messages for block in content if "text" in block):
        yield "The text field in the ContentBlock object is blank."
    if any(calls) and not body.get("toolConfig"):
        yield "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    if str(body).count("'cachePoint'") > 4:
        yield "more than four cache points"


def gemini_faults(body: Body) -> Iterator[str]:
    """Faults of a request of generateContent."""
    turns = [(turn["role"], turn["parts"]) for turn in body["contents"]]
    before = ""
    open_calls = 0
    for role, parts in turns:
        calls = sum("function_call" in part for part in parts)
        answers = sum("function_response" in part for part in parts)
        if calls and before != "user":
            yield "function call turn comes immediately after a user turn or after a function response turn"
        if answers != open_calls:
            yield "the number of function response parts is equal to the number of function call parts"
        if any(not part.get("text", "x") for part in parts):
            yield "a part without text"
        before, open_calls = role, calls
    if turns[-1][0] != "user":
        yield "the last turn is not the user's"


def mistral_faults(body: Body) -> Iterator[str]:
    """Faults of a chat request."""
    messages: Sequence[Body] = body["messages"]
    for before, after in zip(messages, messages[1:], strict=False):
        if (before["role"], after["role"]) in {("tool", "user"), ("user", "tool")}:
            yield f"Unexpected role '{after['role']}' after role '{before['role']}'"
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    ids += [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    yield from (f"Tool call id was {each}" for each in ids if not _PLAIN_ID.fullmatch(each))
    if messages[-1]["role"] not in {"user", "tool"}:
        yield "Expected last role User or Tool"
    if "cache_control" in str(body):
        yield "Extra inputs are not permitted"


def _pairing(roles: Sequence[str], calls: Sequence[Sequence[str]], results: Sequence[Sequence[str]]) -> Iterator[str]:
    if any(before == after for before, after in zip(roles, roles[1:], strict=False)):
        yield "roles must alternate"
    if roles[-1] != "user":
        yield "the last message is not the user's"
    named = [each for ids in calls for each in ids]
    if len(set(named)) != len(named):
        yield "`tool_use` ids must be unique"
    yield from (f"not an id: {each}" for each in named if not _ID.fullmatch(each))
    for made, answered in zip([[], *calls], [*results, []], strict=True):
        if sorted(made) != sorted(answered):
            yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {made}, {answered}"
