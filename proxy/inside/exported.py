"""The callback's metrics where LiteLLM serves its own: in the default registry of prometheus_client.

With ``PROMETHEUS_MULTIPROC_DIR`` every metric of a process is in that folder's files, ours among them, and LiteLLM
reads the folder (https://prometheus.github.io/client_python/multiprocess/). Then there is nothing to do.
"""

from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.telemetry.metrics import Metrics

_PREFIX = "stratiform_"


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Every metric of ours; those of the process are LiteLLM's."""
        return (family for family in self._metrics.registry.collect() if family.name.startswith(_PREFIX))

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are not claimed, so that a second callback in one process stands in nobody's way."""
        return ()


def export(metrics: Metrics) -> None:
    """Have them served with LiteLLM's."""
    REGISTRY.register(_Collector(metrics))
