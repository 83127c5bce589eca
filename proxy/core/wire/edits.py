"""The edits that every mode makes, spliced into the client's own bytes."""

from collections.abc import Mapping

import orjson
from msgspec import Raw

from proxy.core.wire.json_body import ChatRequest, join_members, members_of, parse_members, splice


def transport_edits(request: ChatRequest, model: str, *, asks_usage: bool = True) -> Mapping[str, bytes | None]:
    """The top-level members to replace: the model's name at the upstream, the request for usage in streams
    (``asks_usage``: not every server accepts it), and the proxy's own section."""
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
    """The client's ``stream_options``, changed to ask for usage. None if they are no object."""
    if options is None or bytes(options) == b"null":
        return b'{"include_usage":true}'
    if bytes(options).startswith(b"{"):
        return join_members(members_of(options), {"include_usage": b"true"})
    return None


def with_options(body: bytes, options: Raw | None) -> bytes:
    """A request that the proxy has edited, with the client's own ``stream_options`` restored. If the client sent none,
    it has none."""
    return splice(body, parse_members(body), {"stream_options": None if options is None else bytes(options)})


def original_body(request: ChatRequest, model: str, *, asks_usage: bool = True) -> bytes:
    """The client's request with only these edits."""
    return request.edited(transport_edits(request, model, asks_usage=asks_usage))
