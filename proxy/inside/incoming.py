"""Reads LiteLLM's arguments of one call: who sends it, in which session, what is asked, and of which deployment.

LiteLLM writes who sends a request into ``metadata``, and on some paths into ``litellm_metadata``, where the client's
own ``metadata`` stands beside it. Only one of the two is LiteLLM's. A scope is therefore made of both: whoever writes
another's identity into his own half gets a scope that nobody else has.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from proxy.access.authentication import session_hint
from proxy.access.directory import DEFAULT_TEAM
from proxy.core.modes import Mode
from proxy.core.providers import CacheProfile
from proxy.engine.chat import MODE_HEADER
from proxy.ports import Principal
from proxy.upstream.litellm_.arguments import CHAT_FIELDS
from proxy.upstream.litellm_.library import mapping

_HOLDERS = ("metadata", "litellm_metadata")
_MOST_CHARS = 256
# What orjson would write in its own way, and no reader would get back as it was.
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class NotJson(Exception):
    """A value that has no form in JSON, or another one than the same value again."""


def principal_of(arguments: Mapping[str, Any]) -> Principal:
    """Who sends the request, by LiteLLM's identities: team, key and user. Of a key LiteLLM tells the hash alone."""
    told = [mapping(arguments.get(holder)) for holder in _HOLDERS]
    whole = [_text(one, "user_api_key_team_id", "user_api_key_hash", joined=True) for one in told]
    scope = hashlib.blake2b("\0".join(["litellm", *whole]).encode("utf-8", "replace"), digest_size=16).hexdigest()
    mine = told[0] if "user_api_key_hash" in told[0] else told[1]
    return Principal(
        scope=scope,
        team=_text(mine, "user_api_key_team_alias", "user_api_key_team_id") or DEFAULT_TEAM,
        session_hint=session_hint(headers_of(arguments)),
        virtual=True,
        key_id=_text(mine, "user_api_key_hash"),
        user=_text(mine, "user_api_key_user_id", "user_api_key_end_user_id"),
    )


def headers_of(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """The client's headers, by their names in lower case."""
    found = mapping(mapping(arguments.get("proxy_server_request")).get("headers"))
    return {name.lower(): value for name, value in found.items() if isinstance(name, str) and isinstance(value, str)}


def mode_of(arguments: Mapping[str, Any], allowed: Mode) -> Mode:
    """The mode of the request: its header may lower what is allowed. What is no mode lowers nothing."""
    asked = headers_of(arguments).get(MODE_HEADER)
    try:
        return min(allowed, Mode.parse(asked)) if asked else allowed
    except ValueError:
        return allowed


def body_of(arguments: Mapping[str, Any], profile: CacheProfile) -> bytes:
    """The request as OpenAI's JSON, as far as layouts depend on it. Raises NotJson."""
    breaking = profile.breaking
    breaks = {*breaking.before_tools, *breaking.before_system, *breaking.before_messages}
    names = CHAT_FIELDS | breaks | {"model", "cache_control"}
    try:
        # None says nothing: LiteLLM does not send it.
        return orjson.dumps({n: v for n, v in arguments.items() if n in names and v is not None}, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson from error


def injected_marks(arguments: Mapping[str, Any]) -> int:
    """How many markers LiteLLM's injection points of the deployment will add, at most."""
    points, messages = arguments.get("cache_control_injection_points"), arguments.get("messages")
    if not isinstance(points, list) or not isinstance(messages, list):
        return 0
    roles = [mapping(message).get("role") for message in messages]
    at_index = [mapping(point).get("index") is not None or mapping(point).get("role") is None for point in points]
    return sum(1 if is_one else roles.count(mapping(p)["role"]) for p, is_one in zip(points, at_index, strict=True))


def _text(told: Mapping[str, Any], *names: str, joined: bool = False) -> str:
    """The first of these values that is a text; or all of them, told apart."""
    found = [value[:_MOST_CHARS] if isinstance(value := told.get(name), str) else "" for name in names]
    return "\0".join(found) if joined else next(filter(None, found), "")
