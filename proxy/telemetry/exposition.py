"""The text that Prometheus scrapes, written in pieces.

Ten thousand series take a tenth of a second to write. In one piece that would hold up every request that comes
meanwhile; so the event loop has its turn, and a moment of rest, after each half of a millisecond.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from proxy.tasks import in_turns
from proxy.telemetry.series import Series

_AT_ONCE: Final = 50
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class _Families:
    """Families of samples, as a registry."""

    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def pieces(series: Iterable[Series[Any]]) -> Iterator[bytes]:
    """The text of these metrics, piece by piece."""
    for one in series:
        yield generate_latest(_Families([Metric(one.name, one.text, one.type)]))
        found = list[str]()
        for labels, child in list(one.children()):
            found += _lines(dict(zip(one.label_names, labels, strict=True)), child.collect())
            if len(found) >= _AT_ONCE:
                yield "".join(found).encode()
                found.clear()
        yield "".join(found).encode()


def _lines(labels: Mapping[str, str], families: Iterable[Metric]) -> Iterator[str]:
    """The samples of one child of a metric, which knows no labels but its own."""
    own = [f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(labels.items())]
    for sample in (sample for family in families for sample in family.samples):
        if not sample.name.endswith("_created"):
            more = [f'{name}="{value}"' for name, value in sample.labels.items()]
            shown = f"{{{','.join(sorted(own + more) if more else own)}}}" if own or more else ""
            yield f"{sample.name}{shown} {floatToGoString(sample.value)}\n"  # type: ignore[no-untyped-call]


async def written(texts: Iterable[bytes]) -> bytes:
    """The pieces as one text, while the event loop does other work, too."""
    return b"".join(await in_turns(texts, 1))
