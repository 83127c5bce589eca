"""Metrics whose label values are bounded, so that names that clients may choose cannot make a metric grow without end.

This module also writes the text that Prometheus scrapes, in pieces. Ten thousand series take a tenth of a second to
write. In one piece, this would delay every request that comes meanwhile. So the event loop has its turn, and a moment
of rest, after each half of a millisecond.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from proxy.core.secrets.redaction import without_keys

OTHER = "other"
"""The value that stands for all names beyond the bound."""
_MOST_NAMES = 200

M = TypeVar("M", Counter, Gauge, Histogram)
Labelling = Callable[[str], str]


class Series(Generic[M]):
    """A metric with its labels. There is one labelling for each label, which turns the given value into the label's
    value. Beyond ``most_told`` series, the last label of every new series is ``other``.

    The ``children`` are kept in a dict by the values of the labels, because ``labels()`` validates and locks on every
    call.
    """

    __slots__ = ("_labellings", "_metric", "_most_told", "children", "label_names", "name", "text", "type")

    def __init__(
        self, metric: M, label_names: Iterable[str], labellings: Iterable[Labelling], most_told: float = math.inf
    ) -> None:
        self._metric: M = metric
        self._most_told = most_told
        self._labellings = tuple(labellings)
        self.children: dict[tuple[str, ...], M] = {}
        self.label_names = tuple(label_names)
        (described,) = metric.describe()
        self.name, self.text, self.type = described.name, described.documentation, described.type

    def child(self, *given: str) -> M:
        """The child with these values of the labels."""
        if (child := self.children.get(given)) is not None:
            # In almost all cases, the given values are the label values.
            return child
        pairs = zip(self._labellings, given, strict=True)
        labels: tuple[str, ...] = tuple([labelling(value) for labelling, value in pairs])
        if len(self.children) >= self._most_told and labels not in self.children:
            labels = (*labels[:-1], OTHER)
        if (child := self.children.get(labels)) is None:
            child = self.children[labels] = self._metric.labels(*labels) if labels else self._metric
        return child


class Counters(Series[Counter]):
    """A counter with its labels. It is called to count something. An increase that is negative or not finite is left
    out: a counter that was once increased by NaN stays NaN."""

    __slots__ = ()

    def __call__(self, *given: str, by: float = 1.0) -> None:
        if 0.0 <= by < math.inf:
            (self.children.get(given) or self.child(*given)).inc(by)  # the lookup mostly saves a call of ``child``


class BoundedNames:
    """A bounded set of label values: the values known from the start, then the first new ones, then ``other``."""

    __slots__ = ("_most", "_names")

    def __init__(self, known: Iterable[str] = (), most: int = _MOST_NAMES) -> None:
        self._names = {name: name for name in known}
        self._most = max(most, len(self._names))

    def __call__(self, name: str) -> str:
        if (kept := self._names.get(name)) is not None:
            return kept
        if len(self._names) >= self._most:
            return OTHER
        return self._names.setdefault(name, without_keys(name) or OTHER)


class Source(Protocol):
    """A source of samples: this process's registry, or all workers' (``proxy.telemetry.multiprocess``)."""

    def collect(self) -> Iterable[Metric]:
        """Every family with its samples."""
        ...


_AT_ONCE: Final = 50
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def pieces(series: Iterable[Series[Any]]) -> Iterator[bytes]:
    """The text of these metrics, piece by piece."""
    for one in series:
        name = one.name + ("_total" if one.type == "counter" else "")
        text = one.text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {text}\n# TYPE {name} {one.type}\n".encode()
        found = list[str]()
        for labels, child in list(one.children.items()):
            found += _lines(dict(zip(one.label_names, labels, strict=True)), child.collect())
            if len(found) >= _AT_ONCE:
                yield "".join(found).encode()
                found.clear()
        yield "".join(found).encode()


def _lines(labels: Mapping[str, str], families: Iterable[Metric]) -> Iterator[str]:
    """The lines of one child of a metric. ``labels`` are the child's labels, which its own samples do not contain."""
    own = [f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(labels.items())]
    for sample in (sample for family in families for sample in family.samples):
        if not sample.name.endswith("_created"):
            more = [f'{name}="{value}"' for name, value in sample.labels.items()]
            shown = f"{{{','.join(sorted(own + more) if more else own)}}}" if own or more else ""
            yield f"{sample.name}{shown} {floatToGoString(sample.value)}\n"  # type: ignore[no-untyped-call]
