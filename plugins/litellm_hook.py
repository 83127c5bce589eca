"""Stratiform inside a LiteLLM proxy: ``callbacks: ["plugins.litellm_hook.stratiform"]``.

This is only the entry, and the only module besides ``proxy.upstream.litellm_library`` that imports litellm.
``proxy.app.inside`` does the work. This module is not a plugin of Stratiform: LiteLLM loads it.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

_OURS, _FOUND = Path(__file__).resolve().parents[1] / "proxy", find_spec("proxy")
if _FOUND is None or Path(_FOUND.origin or "nothing").resolve().parent != _OURS:
    found = "nothing" if _FOUND is None else _FOUND.origin or _FOUND.submodule_search_locations
    raise ImportError(
        f"Python finds {found} for `proxy`, and not Stratiform's {_OURS}: rename it, or see to PYTHONPATH"
    )

from proxy.app.inside import Callback, Host, Work  # noqa: E402 - only once it is known to be ours


class StratiformLogger(CustomLogger):  # type: ignore[misc]  # litellm is not read by the type checker
    """Gives the functions of ``proxy.app.inside`` the names that LiteLLM calls."""

    def __init__(self) -> None:
        super().__init__()
        self._callback = Callback(Host(litellm))

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: object) -> dict[str, Any] | None:
        """Called for each attempt, retries and fallbacks included, with the deployment that is really called."""
        return await self._callback.before_attempt(kwargs, call_type)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: object, call_type: object
    ) -> None:
        """Called with each answer that is not a stream. The answer stays as it is."""
        await self._callback.after(Work.succeeded, request_data, response)

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: object,
        fallback_depth: int | None = None,
    ) -> None:
        """Called for each attempt that failed."""
        await self._callback.after(Work.failed, request_data, exception)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: object, start_time: object, end_time: object
    ) -> None:
        """Called at the end of each stream, also if its client has left, and for answers of the response cache."""
        await self._callback.after(Work.logged, kwargs, response_obj)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: object, start_time: object, end_time: object
    ) -> None:
        """Called if a stream breaks off, and once for a call of which an attempt failed."""
        await self._callback.after(Work.broken, kwargs)

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], user_api_key_dict: object, response: object, **_further: Any
    ) -> dict[str, str] | None:
        """Called before the answer goes out; for a stream, when it begins."""
        return await self._callback.after(Work.headers, data, response)


stratiform = StratiformLogger()
