"""A client's body as arguments for litellm.

litellm takes its own settings (``api_base``, ``fallbacks``, ``callbacks``, credentials, ...) from the same name space
as the request's parameters. A client must not change these settings: it could send the operator's key to a host of its
choice. So only the parameters of OpenAI's API are passed as arguments. Every other field of the client goes into the
provider's body (``extra_body``). If litellm has no ``extra_body`` for a provider, the field is passed as a plain
argument, unless its name is a setting of litellm, or means a place or a credential.
"""

import re
from collections.abc import Mapping
from typing import Any

from proxy.engine.headers import ID_HEADERS
from proxy.errors import InvalidRequest
from proxy.ports import Deployment, Headers
from proxy.upstream.litellm_.library import Route, mapping

CHAT_FIELDS = frozenset(
    {
        "messages", "functions", "function_call", "temperature", "top_p", "n", "stream", "stream_options", "stop",
        "max_tokens", "max_completion_tokens", "modalities", "prediction", "audio", "presence_penalty",
        "frequency_penalty", "logit_bias", "user", "response_format", "seed", "tools", "tool_choice",
        "parallel_tool_calls", "logprobs", "top_logprobs", "reasoning_effort", "verbosity", "safety_identifier",
        "service_tier", "store", "prompt_cache_key", "prompt_cache_retention", "thinking", "web_search_options",
    }
)  # fmt: skip
EMBEDDING_FIELDS = frozenset({"input", "dimensions", "encoding_format", "user"})

# The types that litellm expects without a check while it translates. It fails on other types, where a provider would
# answer 400.
_ARRAYS = frozenset({"messages", "tools", "functions"})
_OBJECTS = frozenset(
    {"response_format", "stream_options", "thinking", "logit_bias", "prediction", "audio", "web_search_options"}
)
_NUMBERS = frozenset(
    {
        "temperature", "top_p", "n", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty",
        "seed", "top_logprobs",
    }
)  # fmt: skip

# The client's headers that have a meaning for a provider that litellm calls.
_FORWARDED_HEADERS = frozenset({"anthropic-beta", "openai-beta", "x-grok-conv-id"})

# litellm itself uses these arguments; it lists them for no provider, or only for some.
_ALWAYS_ARGUMENTS = frozenset({"messages", "input", "stream", "stream_options"})

# Words in a name that mean a place, a credential or a setting, as in aws_bedrock_runtime_endpoint, vertex_credentials,
# deployment_url. LiteLLM's own proxy keeps a list of such names (proxy/auth/auth_utils.py _BANNED_REQUEST_BODY_PARAMS);
# a pattern also covers future names.
_SETTING = re.compile(
    r"(^|_)(api|base|url|uri|endpoint|host|key|token|secret|credentials?|password|role|profile|region|project"
    r"|workspace|account|config|clients?|headers?|callbacks?|session|sts|ssl|identity|tenant|deployment)(_|$)"
)


def call_arguments(
    deployment: Deployment,
    body: Mapping[str, Any],
    route: Route,
    *,
    fields: frozenset[str] = CHAT_FIELDS,
    headers: Headers = (),
    api_key: str | None = None,
) -> dict[str, Any]:
    """The arguments of one litellm call. The client's values win over the operator's defaults."""
    arguments: dict[str, Any] = dict(deployment.params)
    extra_body: dict[str, Any] = dict(mapping(arguments.pop("extra_body", None)))
    # Providers that sign requests with their headers do not get the request's id.
    passing = _FORWARDED_HEADERS | ID_HEADERS if route.takes_key else _FORWARDED_HEADERS
    extra_headers = {
        **mapping(arguments.pop("extra_headers", None)),
        **{name: value for name, value in headers if name.lower() in passing},
        **dict(deployment.headers),
    }
    for name, value in body.items():
        if name == "model":
            continue
        _check_shape(name, value)
        if name == "messages" and not deployment.profile.caches_instructions:
            value = _as_items(value)
        if name in fields and _translated(name, route, arguments):
            arguments[name] = value
        elif route.extra_body:
            extra_body[name] = value
        elif name == "metadata":
            arguments.update(_user_metadata(value))
        else:
            arguments[_native(name, route)] = value
    arguments.update(model=deployment.model, timeout=deployment.timeout_s, num_retries=0)
    if "messages" in fields:
        arguments["_skip_mcp_handler"] = True  # otherwise a tool could name litellm's own gateway
    optional: dict[str, Any] = {
        "api_base": deployment.base_url, "api_key": deployment.api_key or api_key,
        "extra_body": extra_body, "extra_headers": extra_headers,
    }  # fmt: skip
    return arguments | {name: value for name, value in optional.items() if value}


def _as_items(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with the texts of system messages as parts. If litellm calls the Responses API instead, it turns a
    plain text into ``instructions``, which not every model caches. Parts stay an item of the input (seen by running
    1.109.1)."""
    return [
        {**one, "content": [{"type": "text", "text": one["content"]}]}
        if one.get("role") == "system" and isinstance(one.get("content"), str)
        else one
        for one in messages
    ]


def _check_shape(name: str, value: object) -> None:
    wanted = ""
    if name in _ARRAYS and not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        wanted = "an array of objects"
    elif name in _OBJECTS and not isinstance(value, Mapping):
        wanted = "an object"
    elif name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
        wanted = "a number"
    elif name == "stream" and not isinstance(value, bool):
        wanted = "true or false"
    if wanted and (value is not None or name == "messages"):
        raise InvalidRequest(f"'{name}' must be {wanted}", param=name, code="invalid_type")


def _translated(name: str, route: Route, arguments: Mapping[str, Any]) -> bool:
    """Whether the parameter is passed to litellm. It is not if litellm would refuse it and ``extra_body`` can carry
    it."""
    if name in route.fields or name in _ALWAYS_ARGUMENTS or not route.extra_body:
        return True
    # The operator may have configured how litellm treats the parameter.
    lists = (arguments.get("allowed_openai_params"), arguments.get("additional_drop_params"))
    return bool(arguments.get("drop_params")) or any(name in tuple(listed or ()) for listed in lists)


def _native(name: str, route: Route) -> str:
    if name in route.owned or name.startswith("_") or _SETTING.search(name.lower().replace("-", "_")):
        raise InvalidRequest(
            f"the parameter {name[:64]!r} cannot be passed to {route.provider}",
            param=name[:64],
            code="unknown_parameter",
        )
    return name


def _user_metadata(value: object) -> dict[str, Any]:
    """The part of ``metadata`` that is passed on. litellm reads its own settings from ``metadata``, so a provider other
    than OpenAI gets only the user id."""
    user = value.get("user_id") if isinstance(value, Mapping) else None
    return {"metadata": {"user_id": user}} if isinstance(user, str) else {}
