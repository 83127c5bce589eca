"""The only place that imports litellm, on first use and in a thread: the import takes four to five seconds of CPU.

A client's body becomes arguments for litellm here (``call_arguments``).
litellm takes its own settings (``api_base``, ``fallbacks``, ``callbacks``, credentials, ...) from the same name space
as the request's parameters. A client must not change these settings: it could send the operator's key to a host of its
choice. So only the parameters of OpenAI's API are passed as arguments. Every other field of the client goes into the
provider's body (``extra_body``). If litellm has no ``extra_body`` for a provider, the field is passed as a plain
argument, unless its name is a setting of litellm, or means a place or a credential.
"""

import asyncio
import inspect
import logging
import os
import re
import sys
from collections.abc import Mapping
from functools import partialmethod
from typing import Any

from proxy.engine.headers import ID_HEADERS
from proxy.kit.errors import InvalidRequest, UpstreamLoading
from proxy.kit.lru import LastUsed
from proxy.kit.value import dataclass
from proxy.models import Deployment, Headers

# litellm reads these variables while it is imported. Offline: its catalogues come from the wheel, and nothing is
# fetched that the operator did not configure (litellm_core_utils/offline_mode.py, get_model_cost_map.py). PRODUCTION:
# no .env file is loaded without the operator's knowledge (_process_defaults.py). Values that the operator has set stay.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",
}

# Providers whose handler accepts unknown fields in ``extra_body`` although they are not in litellm's list of providers
# called through the OpenAI SDK (litellm/utils.py add_provider_specific_params_to_optional_params, main.py
# _complete_openrouter).
_EXTRA_BODY_PROVIDERS = frozenset({"openai", "azure", "openrouter", "text-completion-openai", "bigmodel"})

_KEY_PROVIDERS = frozenset({"openai", "anthropic", "openrouter"})

_MOST_ROUTES = 1024
# The retry-after time for a client that asks for a model before litellm is loaded: about the time that loading takes.
_LOADING_S = 5
_WARM_MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-4o")


@dataclass(frozen=True, slots=True)
class LitellmRoute:
    """How litellm serves a model. ``fields`` are the OpenAI parameters that it translates for the provider.

    ``extra_body``: further fields are passed under that name and merged into the provider's body. Otherwise they are
    plain arguments, and ``owned`` are the names that litellm itself would obey. ``takes_key``: the provider is called
    with one key, which a client's own key can replace. Other providers have credentials of several parts, or a role.
    """

    provider: str
    fields: frozenset[str]
    extra_body: bool
    owned: frozenset[str]
    takes_key: bool = True


class Library:
    """litellm, imported on first use. There is one import, even if many calls ask for it at once. ``obstacle`` is not
    empty while ``warm`` runs, and from then on if it has failed."""

    def __init__(self, module: Any = None) -> None:
        """``module``: litellm, if the caller has already imported and configured it."""
        self.obstacle = ""
        self._module = module
        self._importing = asyncio.Lock()
        self._has_warmed = self._is_warming = False
        # Clients choose the names that match a wildcard, so only a bounded number of them is remembered.
        self._routes: LastUsed[tuple[str, str, str], LitellmRoute] = LastUsed(_MOST_ROUTES)

    async def module(self) -> Any:
        """The imported and configured litellm. The event loop goes on while it is imported. While ``warm`` runs,
        callers do not wait: it raises UpstreamLoading."""
        if self._is_warming:
            raise UpstreamLoading("litellm is being loaded: try again", headers={"retry-after": str(_LOADING_S)})
        return await self._imported()

    async def _imported(self) -> Any:
        if self._module is None:
            async with self._importing:
                if self._module is None:
                    self._module = await asyncio.to_thread(_import_litellm)
        return self._module

    async def warm(self) -> bool:
        """Import litellm and run one mock answer, so that the first real call does not pay for either. Only the first
        call of this method does that; the result says whether it was this one."""
        if self._has_warmed:
            return False
        self._has_warmed = self._is_warming = True
        self.obstacle = "litellm is not loaded yet"
        try:
            await asyncio.to_thread(_mock_answers, await self._imported())
        finally:
            self._is_warming = False
        self.obstacle = ""
        return True

    def route(self, deployment: Deployment) -> LitellmRoute:
        """The route of a deployment. litellm must have been imported. Raises litellm's error for unknown models."""
        key = (deployment.model, deployment.base_url, str(deployment.params.get("custom_llm_provider") or ""))
        if (found := self._routes.find(key)) is None:
            found = _route(self._module, *key)
            self._routes.put(key, found)
        return found

    async def aclose(self) -> None:
        """Close the HTTP clients that litellm keeps. It makes new ones if it is used again."""
        if self._module is None:
            return
        await self._module.close_litellm_async_clients()
        self._module.in_memory_llm_clients_cache.flush_cache()
        # Claude's streams use a client that is kept in the module, not in that cache (_lazy_imports.py).
        if (client := vars(self._module).pop("module_level_aclient", None)) is not None:
            await client.close()


def _import_litellm() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import aiohttp
    import httpx
    import litellm

    litellm.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:
        # litellm's warnings quote requests (an image's address, a part of a message). The operator may ask for them.
        litellm.verbose_logger.setLevel(logging.CRITICAL)
    litellm.drop_params = False
    litellm.num_retries = 0
    # For some providers, litellm fetches addresses in a client's messages. This forbids private networks.
    litellm.user_url_validation = True
    # Only the planner places markers.
    litellm.enable_anthropic_prompt_caching = False
    # Otherwise litellm cuts a model off that writes the same chunk a hundred times
    # (streaming_handler.raise_on_model_repetition).
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize
    httpx.AsyncClient.follow_redirects = property(_follows_redirects, lambda *_: None)  # type: ignore[assignment]
    # litellm's own handler on aiohttp (aiohttp_openai) leaves out what its transport under httpx says.
    aiohttp.ClientSession.post = partialmethod(aiohttp.ClientSession.post, allow_redirects=False)  # type: ignore[method-assign,assignment]
    for callbacks in (litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback):
        callbacks.clear()
    return litellm


def _follows_redirects(_client: object) -> bool:
    """Whatever litellm wants: it would send the prompt, and most providers' keys, to wherever a provider points."""
    return False


def _mock_answers(litellm: Any) -> None:
    messages = [{"role": "user", "content": "warm"}]
    for model in _WARM_MODELS:
        litellm.completion(model=model, messages=messages, mock_response="warm", api_key="none", num_retries=0)


def _route(litellm: Any, model: str, base_url: str, provider: str) -> LitellmRoute:
    from litellm.llms.openai_like.json_loader import JSONProviderRegistry
    from litellm.types.utils import all_litellm_params

    name, provider, _, _ = litellm.get_llm_provider(
        model=model, api_base=base_url or None, custom_llm_provider=provider or None
    )
    fields = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider) or ()
    through_sdk = provider in litellm.openai_compatible_providers or JSONProviderRegistry.exists(provider)
    return LitellmRoute(
        provider=provider,
        fields=frozenset(fields),
        extra_body=through_sdk or provider in _EXTRA_BODY_PROVIDERS,
        owned=frozenset({*all_litellm_params, *inspect.signature(litellm.acompletion).parameters, "extra_body"}),
        takes_key=through_sdk or provider in _KEY_PROVIDERS,
    )


def dumped(value: object) -> Mapping[str, Any]:
    """The members of an object of litellm, such as its usage, or of a plain mapping in its place; empty for anything
    else."""
    dump = getattr(value, "model_dump", None)
    return mapping(dump(exclude_none=True, warnings=False) if dump is not None else value)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, Mapping) else {}


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
    route: LitellmRoute,
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
    plain text into ``instructions`` before 1.110, which not every model caches. Parts stay an item of the input (seen
    by running 1.109.1 and 1.110.2)."""
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


def _translated(name: str, route: LitellmRoute, arguments: Mapping[str, Any]) -> bool:
    """Whether the parameter is passed to litellm. It is not if litellm would refuse it and ``extra_body`` can carry
    it."""
    if name in route.fields or name in _ALWAYS_ARGUMENTS or not route.extra_body:
        return True
    # The operator may have configured how litellm treats the parameter.
    lists = (arguments.get("allowed_openai_params"), arguments.get("additional_drop_params"))
    return bool(arguments.get("drop_params")) or any(name in tuple(listed or ()) for listed in lists)


def _native(name: str, route: LitellmRoute) -> str:
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
