"""The cost of each form of a session, as the provider reported it."""

from proxy.core.money.prices import Price
from proxy.core.value import dataclass
from proxy.demo.structured.forms import GOALS, Form, sendings
from proxy.demo.structured.package import History
from proxy.demo.structured.session import session_files, turns
from proxy.demo.tally import FormTally
from proxy.replay.runner import Setting


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
    def file_count(self) -> int:
        """How many files the session has."""
        return len(session_files(self.history))


def comparison(history: History, setting: Setting, price: Price) -> Comparison:
    """A session in every form, before anything is sent."""
    steps, tallies = list(turns(history)), dict[Form, FormTally]()
    for form in Form:
        key = f"demo-{history.name}-{form.name.lower().replace('_', '-')}"
        made = tuple(sendings(form, steps, f"{history.name}-session"))
        marks = None if form.is_structured else setting.account()
        tallies[form] = FormTally(form, key, made, setting, price, marks=marks)
    return Comparison(history, tallies)
