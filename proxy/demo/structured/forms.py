"""The forms in which a turn can be sent, and the cost of each. System prompt, history and prompt are the same in all
forms."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from proxy.client import Context
from proxy.core.money.prices import Price
from proxy.core.value import dataclass
from proxy.demo.editor_chat import FILES_ACK, RULES, shown
from proxy.demo.fidelity import Wanted
from proxy.demo.sample import assistant, chat, system, user
from proxy.demo.structured.package import History
from proxy.demo.structured.session import Turn, session_files, turns
from proxy.demo.tally import FormTally, Sending
from proxy.replay.runner import Setting


class Form(StrEnum):
    """The way in which a turn is sent, and the files in it."""

    EDITOR_ALL = "editor, all files"
    """As messages of an editor chat, with the full text of every file of the session."""
    FULL_ALL = "structured, all files"
    """As structured context: the same full texts, no symbols."""
    SYMBOLS = "structured, symbols"
    """As structured context: the full text of the selected files, and the symbols of the others."""
    EDITOR_SELECTED = "editor, selected"
    """As messages of an editor chat, with the full text of the selected files. The others are not shown."""
    FULL_SELECTED = "structured, selected"
    """As structured context: the same full texts. The other files are not shown."""

    @property
    def is_structured(self) -> bool:
        """Whether the request has a section of structured context."""
        return self in (Form.FULL_ALL, Form.SYMBOLS, Form.FULL_SELECTED)


GOALS: Mapping[Form, tuple[Form, float]] = {
    Form.FULL_ALL: (Form.EDITOR_ALL, 1.0),
    Form.SYMBOLS: (Form.EDITOR_ALL, 0.7),
    Form.FULL_SELECTED: (Form.EDITOR_SELECTED, 1.0),
}
"""For each structured form: the form that it is compared with, and the largest share of that form's cost that it may
cost."""


def sendings(form: Form, turns: Sequence[Turn], session: str) -> Iterator[Sending]:
    """The requests of one form. A structured form sends each content once, and from then on its digest."""
    context, has_all = Context(session, use_repo_map=form is Form.SYMBOLS), form in (Form.EDITOR_ALL, Form.FULL_ALL)
    for turn in turns:
        full = {path: turn.files[path] for path in (turn.files if has_all else turn.selected)}
        # Only an editor chat shows its files in messages.
        files = [user(shown(full)), assistant(FILES_ACK)] if full and not form.is_structured else []
        body = chat([system(RULES), *turn.done, *files, user(turn.prompt)], stream=False, temperature=0)
        if form.is_structured:
            body["extra_body"] = {"stratiform": _section(context, turn.files if form is Form.SYMBOLS else full, full)}
        hidden = {path: text for path, text in turn.files.items() if path not in full}
        yield Sending(turn.at, body, Wanted([*turn.done, user(turn.prompt)], full, hidden))


def _section(context: Context, shown: Mapping[str, str], full: Mapping[str, str]) -> dict[str, Any]:
    """The value of ``stratiform`` for the files of a turn, as the helper for clients writes it."""
    for file in context.body()["files"]:
        if file["path"] not in shown:
            context.hide(file["path"])
    for path, text in shown.items():
        if path in full:
            context.select(path, text)
        else:
            context.show(path, text)
    body = context.body()
    context.delivered(body)
    return body


@dataclass(frozen=True, slots=True)
class Comparison:
    """All forms of one session."""

    history: History
    tallies: dict[Form, FormTally]

    def ratio(self, form: Form) -> float | None:
        """The form's cost as a share of the form that it is compared with; None before anything was sent."""
        if form not in GOALS:
            return None
        other = self.tallies[GOALS[form][0]].cost
        return self.tallies[form].cost / other if other else None

    def is_reached(self, form: Form) -> bool:
        """Whether a form costs no more than it may. A form that is not compared with another may cost anything."""
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
