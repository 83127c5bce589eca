"""The one place that imports litellm, on first use and in a thread: the import takes four to five seconds of CPU."""

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from proxy.core.lru import LastUsed
from proxy.core.value import dataclass
from proxy.errors import UpstreamLoading
from proxy.ports import Deployment

# Read by litellm while it is imported. Offline: its catalogues come from the wheel, nothing is fetched that the
# operator did not configure (litellm_core_utils/offline_mode.py, get_model_cost_map.py). PRODUCTION: no .env file is
# loaded behind the operator's back (_process_defaults.py). What the operator has set stays.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",
}

# Providers whose handler takes unknown fields in ``extra_body`` though they are not in litellm's list of providers
# called through the OpenAI SDK (litellm/utils.py add_provider_specific_params_to_optional_params, main.py
# _complete_openrouter).
_EXTRA_BODY_PROVIDERS = frozenset({"openai", "azure", "openrouter", "text-completion-openai", "bigmodel"})

_KEY_PROVIDERS = frozenset({"openai", "anthropic", "openrouter"})

_MOST_ROUTES = 1024
_LOADING_S = 5
"""When a client is told to come back that asks for a model before litellm is loaded: about how long that takes."""
_WARM_MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-4o")


@dataclass(frozen=True, slots=True)
class Route:
    """How litellm serves a model. ``fields`` are the OpenAI parameters that it translates for the provider.

    ``extra_body`` says whether further fields are merged into the provider's body under that name; elsewhere they are
    plain arguments, and ``owned`` are the names that litellm itself would obey. ``takes_key``: the provider is called
    with one key, for which a client's own can stand; others have credentials of several parts, or a role.
    """

    provider: str
    fields: frozenset[str]
    extra_body: bool
    owned: frozenset[str]
    takes_key: bool = True


class Library:
    """litellm, imported on first use. One import however many calls ask for it at once."""

    def __init__(self, module: Any = None) -> None:
        """``module``: litellm, where somebody else has imported and configured it."""
        self._module = module
        self._importing = asyncio.Lock()
        self._is_warming = False
        # A wildcard's names are the clients' choice: the memory of them is bounded.
        self._routes: LastUsed[tuple[str, str, str], Route] = LastUsed(_MOST_ROUTES)

    async def module(self) -> Any:
        """The imported and configured litellm. The event loop goes on while it is imported. While ``warm`` runs nobody
        is kept waiting: raises UpstreamLoading."""
        if self._is_warming:
            raise UpstreamLoading("litellm is being loaded: try again", headers={"retry-after": str(_LOADING_S)})
        return await self._imported()

    async def _imported(self) -> Any:
        if self._module is None:
            async with self._importing:
                if self._module is None:
                    self._module = await asyncio.to_thread(_import_litellm)
        return self._module

    async def warm(self) -> None:
        """Import litellm and run one mock answer, so that the first real call does not pay for either."""
        self._is_warming = True
        try:
            await asyncio.to_thread(_mock_answers, await self._imported())
        finally:
            self._is_warming = False

    def route(self, deployment: Deployment) -> Route:
        """How a deployment is served. litellm must have been imported. Raises litellm's error for unknown models."""
        key = (deployment.model, deployment.base_url, str(deployment.params.get("custom_llm_provider") or ""))
        if (found := self._routes.find(key)) is None:
            found = _route(self._module, *key)
            self._routes.put(key, found)
        return found

    async def aclose(self) -> None:
        """Close the HTTP clients that litellm keeps; it makes new ones where it is used again."""
        if self._module is None:
            return
        await self._module.close_litellm_async_clients()
        self._module.in_memory_llm_clients_cache.flush_cache()
        # Claude's streams go through a client that stands in the module, not in that cache (_lazy_imports.py).
        if (client := vars(self._module).pop("module_level_aclient", None)) is not None:
            await client.close()


def _import_litellm() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import litellm

    litellm.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:
        # Its warnings quote requests (an image's address, a part of a message); the operator may ask for them.
        litellm.verbose_logger.setLevel(logging.CRITICAL)
    litellm.drop_params = False
    litellm.num_retries = 0
    # Addresses in a client's messages are fetched by litellm for some providers: never from private networks.
    litellm.user_url_validation = True
    # Markers are placed by the planner, or not at all.
    litellm.enable_anthropic_prompt_caching = False
    # Else a model that writes the same chunk a hundred times is cut off (streaming_handler.raise_on_model_repetition).
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize
    for callbacks in (litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback):
        callbacks.clear()
    return litellm


def _mock_answers(litellm: Any) -> None:
    messages = [{"role": "user", "content": "warm"}]
    for model in _WARM_MODELS:
        litellm.completion(model=model, messages=messages, mock_response="warm", api_key="none", num_retries=0)


def _route(litellm: Any, model: str, base_url: str, provider: str) -> Route:
    from litellm.llms.openai_like.json_loader import JSONProviderRegistry
    from litellm.types.utils import all_litellm_params

    name, provider, _, _ = litellm.get_llm_provider(
        model=model, api_base=base_url or None, custom_llm_provider=provider or None
    )
    fields = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider) or ()
    through_sdk = provider in litellm.openai_compatible_providers or JSONProviderRegistry.exists(provider)
    return Route(
        provider=provider,
        fields=frozenset(fields),
        extra_body=through_sdk or provider in _EXTRA_BODY_PROVIDERS,
        owned=frozenset({*all_litellm_params, *inspect.signature(litellm.acompletion).parameters, "extra_body"}),
        takes_key=through_sdk or provider in _KEY_PROVIDERS,
    )


def keys_in_environment(litellm: Any, model: str) -> bool:
    """Whether litellm finds the provider's credentials in the environment, as its users are used to."""
    found: Mapping[str, object] = litellm.validate_environment(model=model)
    return bool(found["keys_in_environment"])


def mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping; else an empty one."""
    return value if isinstance(value, Mapping) else {}
