"""The edits that every mode makes, spliced into the client's own bytes."""

from collections.abc import Mapping

import orjson
from msgspec import Raw

from proxy.core.wire.json_body import Members, join_members, members_of, parse_members, splice


def transport_edits(members: Members, named: str, model: str, *, asks_usage: bool) -> Mapping[str, bytes | None]:
    """The top-level members to replace: the model's name at the upstream in place of the one that the client has
    ``named``, the request for usage, if the proxy ``asks_usage``, and the proxy's own section."""
    changes: dict[str, bytes | None] = {}
    if model and model != named:
        changes["model"] = orjson.dumps(model)
    if asks_usage and (options := usage_asked(members.get("stream_options"))) is not None:
        changes["stream_options"] = options
    if "stratiform" in members:
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
