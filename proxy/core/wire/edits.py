"""The edits that every mode makes, spliced into the client's own bytes."""

from collections.abc import Mapping

import orjson
from msgspec import Raw

from proxy.core.wire.json_body import ChatRequest, join_members, members_of, parse_members, splice


def transport_edits(request: ChatRequest, model: str, *, asks_usage: bool = True) -> Mapping[str, bytes | None]:
    """Top-level members to replace: the model's name at the upstream, usage asked for in streams (``asks_usage``: not
    every server takes that), our own section."""
    changes: dict[str, bytes | None] = {}
    if model and model != request.model:
        changes["model"] = orjson.dumps(model)
    if asks_usage and request.stream and not request.wants_usage:
        options = usage_asked(request.members.get("stream_options"))
        if options is not None:
            changes["stream_options"] = options
    if "stratiform" in request.members:
        changes["stratiform"] = None
    return changes


def usage_asked(options: Raw | None) -> bytes | None:
    """The client's ``stream_options`` such that they ask for usage; None where they are no object."""
    if options is None or bytes(options) == b"null":
        return b'{"include_usage":true}'
    if bytes(options).startswith(b"{"):
        return join_members(members_of(options), {"include_usage": b"true"})
    return None


def with_options(body: bytes, options: Raw | None) -> bytes:
    """A request that we edited with the client's own ``stream_options`` in it, or none where it had none."""
    return splice(body, parse_members(body), {"stream_options": None if options is None else bytes(options)})


def original_body(request: ChatRequest, model: str, *, asks_usage: bool = True) -> bytes:
    """The client's request with only these edits."""
    return request.edited(transport_edits(request, model, asks_usage=asks_usage))
