"""The forms in which a session with panels can be sent. System prompt, conversation and prompt are the same in all."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from proxy.demo.fidelity import Wanted
from proxy.demo.panels.session import RULES, Turn
from proxy.demo.sample import Message, Request, assistant, chat, system, user
from proxy.demo.tally import Sending

SEEN = "Thank you. I know the state of the project now."


class Form(StrEnum):
    """How a session is sent, and what the proxy then does with it."""

    UNTOUCHED = "context messages, as they come"
    """The panels as messages in front of the conversation, in the client's order; the proxy forwards them untouched."""
    CONTEXT = "context messages, planned"
    """The same messages; the proxy lays them out as far as it understands them."""
    PANELS = "live panels"
    """As structured context: the panels are sent beside the conversation, and the proxy puts them into it."""
    FREEZING = "live panels, freezing"
    """The same, and old parts of the conversation are frozen."""

    @property
    def has_panels(self) -> bool:
        """Whether the panels are sent as structured context."""
        return self in (Form.PANELS, Form.FREEZING)

    @property
    def headers(self) -> dict[str, str]:
        """What the client sends beside its body."""
        return {"x-stratiform-mode": "passthrough"} if self is Form.UNTOUCHED else {}


def sendings(form: Form, turns: Sequence[Turn], session: str) -> Iterator[Sending]:
    """The requests of one form."""
    for turn in turns:
        panels = {f"panel {panel.id}": panel.content for panel in turn.panels}
        wanted = Wanted(turn.conversation, panels, is_frozen=form is Form.FREEZING)
        yield Sending(Request(turn.at, _body(form, turn, session)), wanted)


def _body(form: Form, turn: Turn, session: str) -> dict[str, Any]:
    if not form.has_panels:
        return chat([system(RULES), *_shown(turn), *turn.conversation], stream=False, temperature=0)
    body = chat([system(RULES), *turn.conversation], stream=False, temperature=0)
    section = {"session": session, "panels": list(map(asdict, turn.panels)), "detach": form is Form.FREEZING}
    body["extra_body"] = {"stratiform": section}
    return body


def _shown(turn: Turn) -> list[Message]:
    """The messages of a client that shows all it has in a fixed order, each time anew. It tells the time, as such
    clients do, beside the state of the repository, which is another one in each turn anyway."""
    now = datetime.fromtimestamp(turn.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    times = {"git": f" (as of {now})"}
    shown = [user(f"# {panel.header}{times.get(panel.kind, '')}\n\n{panel.content}") for panel in turn.panels]
    return [*shown, assistant(SEEN)]
