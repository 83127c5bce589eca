"""Every Prometheus metric, named once, and the text that Prometheus scrapes.

The values of labels are bounded, so that names that clients may choose cannot make a metric grow without end: no
client, key or session is ever a label, and names that clients may choose (models that match a wildcard) become
``other`` beyond a limit.

The text is written in pieces. Ten thousand series take a tenth of a second to write. In one piece, this would delay
every request that comes meanwhile. So the event loop has its turn, and a moment of rest, after each half of a
millisecond.

A ``Metrics`` belongs to one app and has its own registry. Its public members are called when something happens: with
the values of the labels, and with ``by`` if the increase is not one. A metric without a label is called with a number.
Counters cannot fall, so the savings and losses of plans are in two counters: saved - lost is the net saving.

``SharedMetrics`` combines the metrics of several workers: each writes its own into files of one folder, and any of them
reads all. The names of a worker's files contain its slot, not its process id. A worker that replaces a dead one goes on
counting where the dead one stopped, so that no counter falls and the folder does not grow.
(https://prometheus.github.io/client_python/multiprocess/)
"""

import asyncio
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from operator import add
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from proxy import __version__
from proxy.kit.modes import Edit, Reason
from proxy.kit.resilience import Kind
from proxy.kit.secrets import without_keys
from proxy.kit.tasks import in_turns
from proxy.models import Deployment
from proxy.planner.candidates import UNMARKED
from proxy.planner.record import KINDS
from proxy.planner.shadow import Deviation
from proxy.protocol.response.outcome import UNTOLD
from proxy.protocol.response.panel_answer import PanelCallOutcome
from proxy.protocol.response.refusal import ContextRefusalOutcome
from proxy.protocol.response.usage import Usage

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


FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which prometheus_client looks for the folder. It must be set before the first metric is made."""


class SharedMetrics:
    """The folder, seen from one worker. ``begin`` must be called before the worker's first metric is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, slot: int) -> None:
        """From now on, this process counts for that slot."""
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
        (self._folder / f"{slot}.pid").write_text(str(os.getpid()), encoding="ascii")

    def died(self, slot: int) -> None:
        """Remove the gauges of a dead worker, such as its exchanges under way. Its counters stay."""
        (self._folder / f"{slot}.pid").unlink(missing_ok=True)
        mark_process_dead(slot, path=str(self._folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        """The metrics of all workers, added up."""
        yield from MultiProcessCollector(None, path=str(self._folder)).collect()  # type: ignore[no-untyped-call]
        processes: dict[str, list[Metric]] = {}
        for file in sorted(self._folder.glob("*.pid")):
            with suppress(FileNotFoundError, ValueError):  # the worker may have died, or not have written the id yet
                pid = int(file.read_text(encoding="ascii"))
                for family in ProcessCollector(registry=None, pid=lambda pid=pid: pid).collect():  # type: ignore[misc]
                    processes.setdefault(family.name, []).append(family)
        # CPU time, memory and files of all workers together, and the start time of the first worker.
        for name, (first, *others) in processes.items():
            merge = min if name == "process_start_time_seconds" else add
            for other in others:
                pairs = zip(first.samples, other.samples, strict=True)
                first.samples = [Sample(ours.name, ours.labels, merge(ours.value, its.value)) for ours, its in pairs]
            yield first


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


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format"""

_PREFIX = "stratiform_"
_EXPECTED_SERIES = 1000
UNRECOGNISED = "unrecognised"
"""The label of clients whose texts no recogniser knows."""
_MOST_CLIENTS = 7
# For a metric whose last label is one of these: the number of series beyond which new values of the label become
# ``other``. With all other series that 20 models and 20 teams can have at once, a proxy then has fewer than 10,000
# series (tests/unit/engine/telemetry/test_metrics.py).
_MOST_TOLD = {"client": 600, "cause": 300}
_STATUSES = frozenset(
    ["200", "400", "401", "403", "404", "408", "413", "422", "429", "499", "500", "502", "503", "504", "529"]
)

ERROR_KINDS = (
    "timeout", "unavailable", "broken-off", "rate-limited", "quota", "unauthorized", "rejected", "server-error",
    "circuit-open", "loading",
)  # fmt: skip
"""How an upstream call can fail."""
RETRIED_KINDS = get_args(Kind)
"""The failures after which another attempt may follow."""
NO_PROFILE = "none"
"""The label of requests without a window profile."""
_BREAKER_STATES = {"closed": 0, "half-open": 1, "open": 2}
_RELOADED = ("changed", "unchanged", "broken")
_KINDS = ("read", "write", "uncached", "output")
_TIERS = ("L0", "L1", "L2", "L3", "active")
_SEGMENTS = ("1", "2", "3", "4", UNMARKED)

_OVERHEAD_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_FIRST_BYTE_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_RATIO = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_TOKENS = (0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


# How the values of several workers are combined in one gauge.
_Across = Literal["livesum", "livemax", "livemostrecent"]


Starts = Iterable[tuple[str, ...]]
S = TypeVar("S", bound=Series[Any])


def _status_label(status: str) -> str:
    """The status itself if upstreams commonly answer with it, or else its class (``4xx``)."""
    return status if status in _STATUSES else f"{status[:1]}xx"


class Metrics:
    """The metrics of one app. ``deployments`` and ``teams`` are those of the configuration; they never become
    ``other``.

    ``shared`` is the source of the metrics of all workers, including this one. None: there are no other workers.
    """

    def __init__(
        self,
        deployments: Collection[Deployment] = (),
        teams: Collection[str] = (),
        shared: SharedMetrics | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self._process = ProcessCollector(registry=self.registry)
        self._series: list[Series[Any]] = []
        self._shared = shared
        self._labellings: Mapping[str, Labelling] = {
            "model": BoundedNames(deployment.name for deployment in deployments),
            "team": BoundedNames(teams),
            "deployment": BoundedNames(),
            "client": BoundedNames([UNRECOGNISED], _MOST_CLIENTS),
            "status": _status_label,
        }
        self.remaining: Callable[[], Mapping[str, tuple[float, float]]] = dict
        """For each team: the rest of its budget (USD, negative if overdrawn), and when the budget begins again (unix
        seconds). It is called whenever the metrics are read."""
        # Series that are expected for each model are shown from 0 on, because ``increase()`` ignores the value that a
        # series has when it first appears.
        kinds = len(_KINDS) + len(ERROR_KINDS) + len(RETRIED_KINDS) + len(Deviation) + 2 * len(KINDS) + 1
        is_small = len(deployments) * (kinds + 7 * len(teams)) <= _EXPECTED_SERIES
        self._expected, self._teams = tuple(deployments) if is_small else (), tuple(teams)
        self._models = [deployment.name for deployment in self._expected]
        self._define_traffic()
        self._define_money()
        self._define_plans()
        self._define_caches()
        self._define_prompts()
        self._define_trouble()

    def _define_traffic(self) -> None:
        self.requests = self._counter(
            "requests_total", "Exchanges ended.", "model", "mode", "status", "transport",
            starts=((one.name, one.mode.name.lower(), "200", one.transport.value) for one in self._expected),
        )  # fmt: skip
        self._tokens = self._counter(
            "tokens_total", "Tokens as billed, by kind.", "model", "kind", "client",
            starts=product(self._models, _KINDS, [UNRECOGNISED]),
        )  # fmt: skip
        self._hit_ratio = self._histogram(
            "hit_ratio", "Prompt tokens read from the cache, as a share of the prompt.", _RATIO, "model",
            starts=zip(self._models),
        )  # fmt: skip
        self.overhead = self._histogram(
            "overhead_seconds", "Time spent in the proxy before the request was forwarded.", _OVERHEAD_S
        ).child().observe  # fmt: skip
        self.first_byte = self._histogram(
            "time_to_first_byte_seconds", "From the request's arrival to the first byte of the answer.",
            _FIRST_BYTE_S, "model", starts=zip(self._models),
        )  # fmt: skip
        in_flight = self._alone("in_flight", "Exchanges under way.", "livesum")
        self.began, self.ended = in_flight.inc, in_flight.dec
        self._gauge("build_info", "1, labelled with the version.", "version").child(__version__).set(1)

    def _define_money(self) -> None:
        models, teams, bases = self._models, self._teams, ("shadow", "reported")
        self.cost = self._counter(
            "cost_usd_total", "What the exchanges cost.", "model", "team", "client",
            starts=product(models, teams, [UNRECOGNISED]),
        )  # fmt: skip
        self.input_cost = self._counter(
            "input_cost_usd_total", "The prompts' part of the cost.", "model", "team", starts=product(models, teams)
        )
        self.uncached_cost = self._counter(
            "uncached_input_cost_usd_total", "What the prompts would have cost without any cache.", "model", "team",
            starts=product(models, teams),
        )  # fmt: skip
        self._saved = self._counter(
            "saved_usd_total", "Saved against the client's own layout, where ours was cheaper.",
            "model", "team", "basis", starts=product(models, teams, bases),
        )  # fmt: skip
        self._lost = self._counter(
            "lost_usd_total", "Lost against the client's own layout, where ours was dearer.",
            "model", "team", "basis", starts=product(models, teams, bases),
        )  # fmt: skip
        self.arm_cost = self._counter(
            "holdout_input_cost_usd_total", "The prompts' cost, by the hold-out's arm.", "model", "arm"
        )
        self.arm_uncached_cost = self._counter(
            "holdout_uncached_input_cost_usd_total", "What these would have cost without any cache.", "model", "arm"
        )
        self.unpriced = self._counter("unpriced_requests_total", "Exchanges of a model without a price.", "model")
        self.usage_missing = self._counter("usage_missing_total", "Answers without a usage report.", "model")
        self._budget = self._gauge(
            "budget_remaining_usd", "What is left of a team's budget.", "team", across_workers="livemostrecent"
        )
        self._budget_end = self._gauge(
            "budget_window_end_seconds", "When that budget begins anew.", "team", across_workers="livemostrecent"
        )
        self.budget_rejected = self._counter("budget_rejections_total", "Requests refused for a spent budget.", "team")
        self.soft_limit_passed = self._counter(
            "soft_limits_total", "Requests sent beyond a budget's soft limit.", "team"
        )
        self.overran = self._counter(
            "budget_overrun_usd_total", "Cost beyond what was reserved under a hard limit.", "team"
        )
        self.rate_limited = self._counter("rate_limited_total", "Requests refused for a rate limit.", "team", "unit")
        self.notified = self._counter("notices_total", "Notices to webhooks, by what became of them.", "outcome")
        self.refreshed = self._counter(
            "keep_alive_total", "Refreshes of prefixes, by what became of them.", "team", "outcome"
        )
        self.refresh_cost = self._counter("keep_alive_cost_usd_total", "What refreshes cost.", "model", "team")

    def _define_plans(self) -> None:
        self._tier_tokens = self._counter(
            "tier_tokens_total", "Tokens of context pieces by their tier.", "tier", starts=zip(_TIERS)
        )
        self._segment_tokens = self._counter(
            "segment_tokens_total", "Prompt tokens between markers.", "segment", starts=zip(_SEGMENTS)
        )
        self.moved = self._counter(
            "tier_moves_total", "Pieces that changed their tier.", "source", "target",
            starts=product(_TIERS, (*_TIERS, "removed")),
        )  # fmt: skip
        self._reasons = self._counter(
            "plan_reasons_total", "Plans by their reason.", "mode", "reason", starts=product(["tier"], Reason)
        )
        self.assembled = self._counter(
            "assemblies_total", "Requests with structured context, by how they were assembled.", "assembly"
        )
        self.compacted = self._counter(
            "compactions_total", "Compactions of conversations, by what became of them.", "outcome"
        )
        self.item_skipped = self._counter(
            "assembly_skipped_items_total", "Items of structured context that were not shown.", "reason"
        )
        self.panel_calls = self._counter(
            "panel_calls_total", "Calls of the tool that shows a panel, by what became of them.", "outcome",
            starts=zip(PanelCallOutcome),
        )  # fmt: skip
        self.context_refused = self._counter(
            "context_refusals_total", "Requests that an upstream refused as too large for the context window.",
            "profile", "outcome", starts=product([NO_PROFILE], ContextRefusalOutcome),
        )  # fmt: skip
        self.panels = self._counter(
            "panels_total", "Live panels shown, by kind; same or new: as in the request before.", "kind", "state"
        )
        self.edited = self._counter(
            "edited_messages_total", "Messages and panels that were edited as a client or the operator asked for it.",
            "edit", starts=zip(Edit),
        )  # fmt: skip
        self.empty_tiers = self._counter("assembly_empty_tiers_total", "Tiers L0 to L3 in which nothing stood.")

    def _define_caches(self) -> None:
        self.prediction = self._histogram(
            "prediction_error_tokens", "Predicted minus reported cache reads, as a distance; over or under.",
            _TOKENS, "side", starts=[("over",), ("under",)],
        )  # fmt: skip
        self.deviation = self._counter(
            "cache_deviations_total", "Reported cache use beside what was expected, by kind; and the provider's cause.",
            "model", "kind", "cause", starts=product(self._models, map(str, Deviation), [UNTOLD]),
        )  # fmt: skip

        self.broke = self._counter(
            "cache_breaks_total", "Requests that were read from the cache less than they could have been.",
            "model", "kind", starts=product(self._models, KINDS),
        )  # fmt: skip
        self.break_cost = self._counter(
            "cache_break_usd_total", "What these breaks have cost.", "model", "kind",
            starts=product(self._models, KINDS),
        )  # fmt: skip
        self.break_agreed = self._counter(
            "cache_break_causes_total", "Causes that a provider told, beside ours.", "model", "agreement"
        )

    def _define_prompts(self) -> None:
        self.composed = self._counter(
            "composed_requests_total", "Requests for which prompts are configured, by what became of these.", "outcome"
        )
        self.prompt_skipped = self._counter(
            "skipped_prompts_total", "Prompts that were left out of compositions for a mistake.", "reason"
        )
        self.prompt_changed = self._counter(
            "prompt_changes_total", "Prompts whose text in the system text changed within a conversation.", "prompt"
        )
        self._prompt_set = self._alone(
            "prompt_set_version", "The version of the prompts, as a number.", "livemostrecent"
        )

    def _define_trouble(self) -> None:
        self.upstream_error = self._counter(
            "upstream_errors_total", "Upstream calls that failed.", "model", "kind",
            starts=product(self._models, ERROR_KINDS),
        )  # fmt: skip
        self.retried_original = self._counter(
            "retries_original_total", "Refused rewrites retried with the client's original."
        )
        self.retried = self._counter(
            "retries_total", "Failed attempts that another one followed.", "model", "kind",
            starts=product(self._models, RETRIED_KINDS),
        )  # fmt: skip
        self._breaker = self._gauge("breaker_state", "0 closed, 1 half-open, 2 open: no calls.", "deployment")
        self.disconnected = self._counter("client_disconnects_total", "Clients that hung up before the answer's end.")
        self.store_failed = self._counter("store_errors_total", "Calls of the store that failed.", "operation")
        self.store_is_away = self._alone("store_away", "1 while the store does not answer.", "livemax").set
        self.store_is_exchanged = self._alone(
            "store_exchanged", "1 while the store was emptied or exchanged and nobody has accepted it.", "livemax"
        ).set
        self.spooled = self._alone("spool_pending", "Settlements that wait for the store.", "livesum").set
        self.settlement_lost = self._counter("settlements_lost_total", "Settlements that nothing could keep.")
        self.replayed = self._counter("spool_replayed_total", "Settlements that the store got later.")
        self.reservations_expired = self._counter(
            "reservations_expired_total", "Reservations of dead workers, billed as they stood."
        )
        self.clock_stepped = self._counter("clock_steps_total", "Steps of the machine's clock that were held back.")
        self.clock_is_held_back = self._alone(
            "clock_held_back_seconds", "How far the clock is ahead of the time that budgets go by.", "livemostrecent"
        ).set
        self.clock_is_off_store = self._alone(
            "clock_off_store_seconds", "How far the clock is ahead of the store's, if not alike.", "livemostrecent"
        ).set
        self.plugin_failed = self._counter("plugin_errors_total", "Plugin failures, contained.", "plugin", "hook")
        self.plugin_reached = self._counter(
            "plugin_bounds_total", "Texts that stayed whole at a bound.", "plugin", "bound"
        )
        self.plugin_switched_off = self._counter("plugins_switched_off_total", "Plugins that were too slow.", "plugin")
        self.callback_stood_down = self._counter(
            "callback_stand_downs_total", "Requests inside LiteLLM that went as they came, unplanned.", "reason"
        )
        self.prompts_reloaded = self._counter(
            "prompt_reloads_total", "Changes of prompts' files.", "outcome", starts=zip(_RELOADED)
        )

    def _counter(self, name: str, text: str, *labels: str, starts: Starts = ()) -> Counters:
        """A counter that is called with the values of its labels. The series of ``starts`` are shown from the start."""
        return self._known(Counters, Counter(_PREFIX + name, text, labels, registry=self.registry), labels, starts)

    def _gauge(self, name: str, text: str, *labels: str, across_workers: _Across = "livemax") -> Series[Gauge]:
        gauge = Gauge(_PREFIX + name, text, labels, registry=self.registry, multiprocess_mode=across_workers)
        return self._known(Series[Gauge], gauge, labels)

    def _alone(self, name: str, text: str, across_workers: _Across) -> Gauge:
        """A gauge without a label."""
        return self._gauge(name, text, across_workers=across_workers).child()

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str, starts: Starts = ()
    ) -> Series[Histogram]:
        histogram = Histogram(_PREFIX + name, text, labels, registry=self.registry, buckets=buckets)
        return self._known(Series[Histogram], histogram, labels, starts)

    def _known(self, kind: Callable[..., S], metric: object, labels: Sequence[str], starts: Starts = ()) -> S:
        """Register the metric with its labels, and make the children that it has from the start."""
        most_told = _MOST_TOLD.get(labels[-1], math.inf) if labels else math.inf
        found = kind(metric, labels, [self._labellings.get(label, str) for label in labels], most_told)
        self._series.append(found)
        for given in starts if labels else [()]:
            found.child(*given)
        return found

    def pieces(self) -> Iterator[bytes]:
        """The metrics of this process as text, in pieces."""
        self._show_budgets()
        yield generate_latest(self._process)
        yield from pieces(self._series)

    async def rendered(self) -> bytes:
        """The text that Prometheus scrapes; its content type is ``CONTENT_TYPE``. The event loop does other work
        meanwhile. The metrics of several workers are added up in a thread."""
        if self._shared is None:
            return b"".join(await in_turns(self.pieces(), 1))
        self._show_budgets()
        return await asyncio.to_thread(generate_latest, self._shared)

    def _show_budgets(self) -> None:
        for team, (usd, until) in self.remaining().items():
            self._budget.child(team).set(usd)
            self._budget_end.child(team).set(until)

    def tokens(self, model: str, usage: Usage, client: str = UNRECOGNISED) -> None:
        """Count the tokens of an exchange. ``client`` is the recogniser that knows the client. A prompt without
        reported usage has its own kind ("estimated"), and the hit ratio does not count it."""
        if usage.estimated:
            self._tokens(model, "estimated", client, by=usage.prompt)
            self._tokens(model, "output", client, by=usage.output)
            return
        for kind, count in zip(_KINDS, (usage.read, usage.write, usage.plain, usage.output), strict=True):
            if count > 0:
                self._tokens(model, kind, client, by=count)
        if usage.prompt > 0:
            self._hit_ratio.child(model).observe(usage.read / usage.prompt)

    def saved(self, model: str, team: str, basis: str, usd: float) -> None:
        """Count the saving of a plan compared with the client's own layout; negative: a loss. ``basis`` is shadow,
        reported or observed.

        ``observed`` is what mode observe would have saved; in fact nothing was saved.
        """
        (self._saved if usd >= 0 else self._lost)(model, team, basis, by=abs(usd))

    def plan(self, mode: str, reason: str, tier_tokens: Mapping[str, int], segment_tokens: Mapping[str, int]) -> None:
        """Count a plan that was made."""
        self._reasons(mode, reason)
        for segment, count in segment_tokens.items():
            if count > 0:
                self._segment_tokens(segment if segment in _SEGMENTS else UNMARKED, by=count)
        for tier, count in tier_tokens.items():
            if count > 0:
                self._tier_tokens(tier, by=count)

    def prompt_set(self, version: str) -> None:
        """Set the version of the prompts. Its first hexadecimal digits become a number of at most 48 bits."""
        self._prompt_set.set(int(version[:12] or "0", 16))

    def breaker(self, deployment: str, state: str) -> None:
        """Set the new state of a deployment's circuit breaker."""
        self._breaker.child(deployment).set(_BREAKER_STATES[state])
