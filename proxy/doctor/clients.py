"""What is found about each client: its calls, its cache, its losses."""

from collections import Counter
from dataclasses import dataclass, field, replace

from proxy.core.caches.prompt import BillSum
from proxy.core.diagnosis.breaks import Break
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage
from proxy.doctor.readers.call import Call, Gap

_CULPRITS = 5_000
_MODELS = 100
# A longer pause lies between two logs.
_LONGEST_PAUSE_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """What breaks are added up by. ``sign`` is what a line evidently is, empty where it is nothing that is known."""

    kind: str
    piece: str
    piece_kind: str
    line: int
    sign: str
    is_waste: bool


@dataclass(slots=True)
class Loss:
    """What one culprit has cost so far, in requests, tokens and USD."""

    breaks: int = 0
    lost: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class Client:
    """One client.

    ``bodies`` are the calls whose requests are kept for a replay, and ``size`` their bytes; ``chats`` are all that ask
    for a chat completion. ``told`` calls have a usage, and ``unpriced`` ones a model of an unknown price. ``usd`` is
    what the prompts have cost whose usage is told. ``largest`` is the largest prompt of each session, added up.
    ``agreed`` of ``compared`` breaks have the cause that the provider itself has named. ``span_s`` are the seconds that
    the log covers, and ``last`` is the time of the last call. ``keys`` are the fields by which the providers of these
    calls keep a conversation on one machine, empty for a provider that has none. ``notes`` are sentences on what is not
    known, besides the gaps; ``modes_untold`` says why nothing is replayed, where it is not that nothing was kept.
    """

    bodies: list[Call] = field(default_factory=list)
    size: int = 0
    chats: int = 0
    gaps: Counter[Gap] = field(default_factory=Counter)
    calls: int = 0
    told: int = 0
    sessions: int = 0
    unpriced: int = 0
    models: Counter[str] = field(default_factory=Counter)
    usage: BillSum = field(default_factory=BillSum)
    usd: float = 0.0
    largest: int = 0
    compared: int = 0
    agreed: int = 0
    span_s: float = 0.0
    last: float | None = None
    losses: dict[Culprit, Loss] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    modes_untold: str = ""

    def count(self, model: str, at: float | None, usage: Usage | None, usd: float | None) -> None:
        """Count one call, in the order of time. ``usd`` is the cost of its prompt, None where the model's price is not
        known."""
        self.calls += 1
        if model in self.models or len(self.models) < _MODELS:
            self.models[model] += 1
        if at is not None:
            pause_s = 0.0 if self.last is None else at - self.last
            self.span_s += pause_s if pause_s < _LONGEST_PAUSE_S else 0.0
            self.last = at
        self.unpriced += usd is None
        if usage is not None:
            self.told += 1
            self.usage.add(usage)
            self.usd += usd or 0.0

    def lose(self, broken: Break, sign: str = "", cause: str = UNTOLD) -> None:
        """Count a break. ``cause`` is what the provider calls it."""
        culprit = Culprit(
            str(broken.kind), broken.culprit, broken.culprit_kind, broken.line, sign, is_waste=broken.is_waste
        )
        if culprit not in self.losses and len(self.losses) >= _CULPRITS:
            culprit = replace(culprit, piece="", line=0, sign="")
        loss = self.losses.setdefault(culprit, Loss())
        loss.breaks += 1
        loss.lost += broken.lost
        loss.usd += broken.usd
        if cause != UNTOLD and broken.expected_cause:
            self.compared += 1
            self.agreed += cause == broken.expected_cause
