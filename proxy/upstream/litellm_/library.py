"""The only place that imports litellm, on first use and in a thread: the import takes four to five seconds of CPU."""

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
_LOADING_S = 5
"""The retry-after time for a client that asks for a model before litellm is loaded: about the time that loading
takes."""
_WARM_MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-4o")


@dataclass(frozen=True, slots=True)
class Route:
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
    """litellm, imported on first use. There is one import, even if many calls ask for it at once."""

    def __init__(self, module: Any = None) -> None:
        """``module``: litellm, if the caller has already imported and configured it."""
        self._module = module
        self._importing = asyncio.Lock()
        self._is_warming = False
        # Clients choose the names that match a wildcard, so only a bounded number of them is remembered.
        self._routes: LastUsed[tuple[str, str, str], Route] = LastUsed(_MOST_ROUTES)

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

    async def warm(self) -> None:
        """Import litellm and run one mock answer, so that the first real call does not pay for either."""
        self._is_warming = True
        try:
            await asyncio.to_thread(_mock_answers, await self._imported())
        finally:
            self._is_warming = False

    def route(self, deployment: Deployment) -> Route:
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


def dumped(value: object) -> Mapping[str, Any]:
    """The members of an object of litellm, such as its usage, or of a plain mapping in its place; empty for anything
    else."""
    dump = getattr(value, "model_dump", None)
    return mapping(dump(exclude_none=True, warnings=False) if dump is not None else value)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, Mapping) else {}
