"""The edits that every mode makes, spliced into the client's own bytes; and the operator's reminder."""

from collections.abc import Mapping

import orjson

from proxy.core.wire import ChatRequest, elements, join_members, members_of, value


def transport_edits(request: ChatRequest, model: str) -> Mapping[str, bytes | None]:
    """Top-level members to replace: the model's name at the upstream, usage asked for in streams, our own section."""
    changes: dict[str, bytes | None] = {}
    if model and model != request.model:
        changes["model"] = orjson.dumps(model)
    if request.stream and not request.wants_usage:
        options = request.members.get("stream_options")
        if options is None or bytes(options) == b"null":
            changes["stream_options"] = b'{"include_usage":true}'
        elif bytes(options).startswith(b"{"):
            changes["stream_options"] = join_members(members_of(options), {"include_usage": b"true"})
    if "stratiform" in request.members:
        changes["stratiform"] = None
    return changes


def original_body(request: ChatRequest, model: str) -> bytes:
    """The client's request with only these edits."""
    return request.edited(transport_edits(request, model))


def with_reminder(raw: bytes, reminder: str) -> bytes:
    """A user message with the operator's text behind the client's, two newlines between them."""
    members = members_of(raw)
    content = members.get("content")
    if content is None:
        return raw
    added = "\n\n" + reminder
    if bytes(content).startswith(b'"'):
        text = value(content)
        return join_members(members, {"content": orjson.dumps(f"{text}{added}")})
    parts = [bytes(part) for part in elements(content)]
    parts.append(orjson.dumps({"type": "text", "text": added}))
    return join_members(members, {"content": b"[" + b",".join(parts) + b"]"})
