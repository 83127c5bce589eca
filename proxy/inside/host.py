"""Reads data of the LiteLLM in which the callback runs (its configuration file, its response cache, its providers), and
adds the callback's metrics to LiteLLM's.

The module ``litellm`` comes from the entry (``plugins/litellm_hook.py``); only the entry imports it.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.inside.incoming import StoodDown
from proxy.telemetry.metrics import Metrics
from proxy.upstream.litellm_.library import Library

_PROXY_SERVER = "litellm.proxy.proxy_server"
_PREFIX = "stratiform_"


class Host:
    """One LiteLLM. ``litellm`` is its module."""

    def __init__(self, litellm: Any) -> None:
        self._litellm = litellm
        self.route = Library(litellm).route

    def settings_path(self) -> Path | None:
        """The configuration file with which LiteLLM's proxy was started; None if it was started without one, or is used
        as a library."""
        path = getattr(sys.modules.get(_PROXY_SERVER), "user_config_file_path", None)
        return Path(path) if isinstance(path, str) and path else None

    def cache_key(self, arguments: Mapping[str, Any]) -> str | None:
        """The response cache's key of a request as it came; None if that cache is not used for the request.

        LiteLLM looks up an answer after the callback. Without a given key, it would compute the key from the layout,
        and equal requests would be found only while their layouts are equal. Raises StoodDown if that cache compares
        texts by their meaning, because a layout is another text.
        """
        cache, control = self._litellm.cache, arguments.get("cache")
        is_asked = cache is not None and arguments.get("caching") is not False
        if not is_asked or (isinstance(control, Mapping) and control.get("no-cache") is True):
            return None
        if "semantic" in str(getattr(cache, "type", "")):
            raise StoodDown("semantic-cache")
        given = arguments.get("cache_key")
        return given if isinstance(given, str) and given else str(cache.get_cache_key(**arguments))


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of our metrics; LiteLLM serves the metrics of the process itself."""
        return (family for family in self._metrics.registry.collect() if family.name.startswith(_PREFIX))

    def describe(self) -> Iterable[Metric]:
        """Nothing: no names are claimed, so that a second callback in the same process causes no conflict."""
        return ()


def export(metrics: Metrics) -> None:
    """Have the metrics served together with LiteLLM's own, by the default registry of prometheus_client.

    With ``PROMETHEUS_MULTIPROC_DIR``, every metric of a process, including ours, is in the files of that folder, and
    LiteLLM reads the folder (https://prometheus.github.io/client_python/multiprocess/).
    """
    REGISTRY.register(_Collector(metrics))
