"""What each form of a session has cost, as the provider reported it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from proxy.core.money.prices import Price, input_cost, uncached_cost
from proxy.core.response.usage import Usage
from proxy.demo.client import NO_HEADERS
from proxy.demo.structured.fidelity import losses
from proxy.demo.structured.forms import GOALS, Form, Sending, sendings
from proxy.demo.structured.history import History
from proxy.demo.structured.session import session_files, turns
from proxy.replay.account import Account
from proxy.replay.baselines import SYSTEM_LAST, system_and_last
from proxy.replay.runner import Setting
from proxy.replay.totals import Total


@dataclass(slots=True)
class FormTally:
    """One form of a session so far. ``usd`` is the cost of its prompts and ``uncached_usd`` their cost without a cache;
    ``marked_usd`` is the cost of an editor's requests with markers on the system prompt and the last message, sent
    past the proxy. ``uploaded`` are the bytes of the bodies that the client has sent."""

    history: History
    form: Form
    sendings: Sequence[Sending]
    setting: Setting
    price: Price
    total: Total = field(default_factory=Total)
    usd: float = 0.0
    uncached_usd: float = 0.0
    marked_usd: float = 0.0
    uploaded: int = 0
    requests: int = 0
    losses: list[str] = field(default_factory=list)
    _marked: Account = field(init=False)

    def __post_init__(self) -> None:
        self._marked = self.setting.account()

    @property
    def key(self) -> str:
        """The client's key: each form of each session is an account of its own."""
        return f"demo-{self.history.name}-{self.form.name.lower().replace('_', '-')}"

    @property
    def headers(self) -> Mapping[str, str]:
        """What the client sends beside its bodies."""
        return NO_HEADERS

    @property
    def cost(self) -> float:
        """The input cost so far, in tokens at the plain price."""
        return self.total.cost(self.setting.profile)

    def add(self, sending: Sending, usage: Usage, sent: bytes) -> None:
        """A request was answered: ``usage`` is what was reported, ``sent`` what had reached the provider. Raises
        ValueError where the provider refuses an editor's request with plain markers."""
        self.requests += 1
        self.total.add(usage)
        self.usd += input_cost(usage, self.price)
        self.uncached_usd += uncached_cost(usage, self.price)
        body = {**sending.request.body}
        body.update(body.pop("extra_body", {}))
        raw = orjson.dumps(body)
        self.uploaded += len(raw)
        if not self.form.is_structured:
            bill = self._marked.send(system_and_last(raw, self.setting.profile.dialect), sending.request.at)
            if bill is None:
                raise ValueError(f"the provider refused request {self.requests} of {self.key} as {SYSTEM_LAST}")
            self.marked_usd += input_cost(bill, self.price)
        self.losses += [f"request {self.requests}: {text}" for text in losses(sending, sent)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All forms of one session."""

    history: History
    tallies: dict[Form, FormTally]

    def ratio(self, form: Form) -> float | None:
        """The form's cost as a share of the one that it is compared with; None before anything was sent."""
        if form not in GOALS:
            return None
        other = self.tallies[GOALS[form][0]].cost
        return self.tallies[form].cost / other if other else None

    def is_reached(self, form: Form) -> bool:
        """Whether a form costs no more than it may. One that is compared with nothing may cost anything."""
        ratio = self.ratio(form)
        return form not in GOALS or (ratio is not None and ratio <= GOALS[form][1])

    @property
    def losses(self) -> list[str]:
        """What is wrong in any request, with the form in front."""
        return [f"{tally.key}: {text}" for tally in self.tallies.values() for text in tally.losses]

    @property
    def file_count(self) -> int:
        """How many files the session has."""
        return len(session_files(self.history))


def comparison(history: History, setting: Setting, price: Price) -> Comparison:
    """A session in every form, before anything is sent."""
    steps = list(turns(history))
    made = {form: tuple(sendings(form, steps, f"{history.name}-session")) for form in Form}
    return Comparison(history, {form: FormTally(history, form, sent, setting, price) for form, sent in made.items()})
