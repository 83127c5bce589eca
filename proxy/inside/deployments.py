"""The deployment that LiteLLM calls, as the planner knows deployments: its cache rules, its price, and its mode."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from proxy.app.factories import listed_model, price_source
from proxy.core.lru import LastUsed
from proxy.core.modes import Mode
from proxy.core.money.prices import PriceMap
from proxy.deployments.table import deployment_of
from proxy.ports import Deployment, Transport
from proxy.settings import ModelEntry, Settings
from proxy.upstream.litellm_.library import mapping

_MOST = 1024
_SWITCH = "stratiform"
_PARAMS = ("model", "api_base", "base_url", "custom_llm_provider")


class Deployments:
    """Finds them by LiteLLM's arguments. ``told`` is told once of an entry that is not understood."""

    def __init__(self, settings: Settings, prices: PriceMap, told: Callable[[str], None]) -> None:
        self._settings = settings
        self._price_of = price_source(prices)
        self._told = told
        self._known: LastUsed[tuple[str, ...], Deployment | None] = LastUsed(_MOST)

    def find(self, arguments: Mapping[str, Any]) -> Deployment | None:
        """The deployment that is called; None where ``model_info.stratiform: false`` switches it off, or where its
        entry is not understood."""
        info, metadata = mapping(arguments.get("model_info")), mapping(arguments.get("metadata"))
        group = metadata.get("model_group") or mapping(arguments.get("litellm_metadata")).get("model_group")
        params = [str(arguments.get(name) or "") for name in _PARAMS]
        key = (str(info.get("id") or ""), str(group or params[0]), *params)
        if key not in self._known:
            self._known.put(key, self._made(key[0], key[1], arguments, info))
        return self._known.find(key)

    def _made(
        self, model_id: str, name: str, arguments: Mapping[str, Any], info: Mapping[str, Any]
    ) -> Deployment | None:
        switch = info.get(_SWITCH)
        if switch is False:
            return None
        # Prices that an entry has for itself stand among LiteLLM's arguments.
        params = {n: v for n, v in arguments.items() if (n in _PARAMS or "_cost" in n) and v}
        try:
            given = {"model_name": name, "litellm_params": params, "model_info": dict(info)}
            entry = ModelEntry.model_validate(given)
            problems: list[str] = []
            listed = listed_model(entry, "model_info", self._settings, problems)
            mode = min(listed.mode, Mode.parse(switch)) if isinstance(switch, str) else listed.mode
        except (ValidationError, ValueError) as error:
            self._told(f"model_info of {name}: {type(error).__name__}; its requests go as they came")
            return None
        if listed.salts_cache:
            problems.append(f"model_info of {name}: cache_salt is without effect here; its teams share a cache")
        for problem in problems:
            self._told(problem)
        found = deployment_of(replace(listed, transport=Transport.LITELLM, mode=mode), self._price_of)
        return replace(found, id=model_id or found.id)
