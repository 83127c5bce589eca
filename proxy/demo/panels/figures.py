"""The forms in which a session with panels can be sent, and the cost that each of them may have.

System prompt, conversation and prompt are the same in all forms.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from proxy.core.money.prices import Price
from proxy.core.value import dataclass
from proxy.demo.fidelity import Wanted
from proxy.demo.panels.session import RULES, Pace, Turn, turns
from proxy.demo.sample import Message, assistant, chat, system, user
from proxy.demo.tally import FormTally, Sending
from proxy.replay.runner import Setting

SEEN = "Thank you. I know the state of the project now."


class Form(StrEnum):
    """The way in which a session is sent, and in which the proxy then handles it."""

    UNTOUCHED = "context messages, as they come"
    """The panels as messages in front of the conversation, in the client's order; the proxy forwards them untouched."""
    CONTEXT = "context messages, planned"
    """The same messages. The proxy lays them out as far as it understands them."""
    PANELS = "live panels"
    """As structured context: the panels are sent separately from the conversation, and the proxy puts them into it."""
    FREEZING = "live panels, freezing"
    """The same as ``PANELS``, and old parts of the conversation are frozen."""

    @property
    def has_panels(self) -> bool:
        """Whether the panels are sent as structured context."""
        return self in (Form.PANELS, Form.FREEZING)


def sendings(form: Form, turns: Sequence[Turn], session: str) -> Iterator[Sending]:
    """The requests of one form."""
    for turn in turns:
        panels = {f"panel {panel.id}": panel.content for panel in turn.panels}
        wanted = Wanted(turn.conversation, panels, is_frozen=form is Form.FREEZING)
        yield Sending(turn.at, _body(form, turn, session), wanted)


def _body(form: Form, turn: Turn, session: str) -> dict[str, Any]:
    if not form.has_panels:
        return chat([system(RULES), *_shown(turn), *turn.conversation], stream=False, temperature=0)
    body = chat([system(RULES), *turn.conversation], stream=False, temperature=0)
    section = {"session": session, "panels": list(map(asdict, turn.panels)), "detach": form is Form.FREEZING}
    body["extra_body"] = {"stratiform": section}
    return body


def _shown(turn: Turn) -> list[Message]:
    """The messages of a client that shows all of its panels in a fixed order, each time anew. Like such clients, it
    tells the time. The time is next to the state of the repository, which changes with each turn anyway."""
    now = datetime.fromtimestamp(turn.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    times = {"git": f" (as of {now})"}
    shown = [user(f"# {panel.header}{times.get(panel.kind, '')}\n\n{panel.content}") for panel in turn.panels]
    return [*shown, assistant(SEEN)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A session, the forms in which it is sent, and the goals for live panels. They may cost at most ``most_share`` of
    the same requests without a cache, and ``most_ratio`` of each other form. After ten turns, at least ``least_read``
    of the prompt tokens must be read from the cache. At most ``most_live`` messages may follow the frozen ones. No
    prompt may have more than ``most_prompt`` tokens. 0: there is no such goal."""

    name: str
    words: str
    pace: Pace
    forms: tuple[Form, ...]
    most_share: float = 0.0
    most_ratio: float = 0.0
    least_read: float = 0.0
    most_live: int = 0
    most_prompt: int = 0


WINDOW_TOKENS = 200_000
"""The most tokens that the demo's model reads (https://platform.claude.com/docs/en/about-claude/models/overview)."""

_ALL, _TWO = (Form.UNTOUCHED, Form.CONTEXT, Form.PANELS), (Form.UNTOUCHED, Form.PANELS)
SCENARIOS = (
    Scenario("chat", "60 turns, eight panels", Pace(60), _ALL, most_share=0.25, most_ratio=0.5),
    Scenario("pauses", "the same, two pauses beyond the life", Pace(60, pause_every=20), _TWO, most_ratio=0.5),
    Scenario("loops", "12 turns of 3 to 8 calls each", Pace(12, has_calls=True), _ALL, most_share=0.25, most_ratio=0.5),
    Scenario(
        "long",
        "300 turns, frozen",
        Pace(300, most_pasted=2),
        (Form.FREEZING,),
        least_read=0.85,
        most_live=80,
        most_prompt=WINDOW_TOKENS,
    ),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal, and the value that the session has reached. ``bound`` says whether ``found`` must be at most or at
    least ``wanted``."""

    words: str
    found: float
    wanted: float
    bound: str = "at most"

    @property
    def is_reached(self) -> bool:
        """Whether the goal is reached."""
        return self.found <= self.wanted if self.bound == "at most" else self.found >= self.wanted


@dataclass(frozen=True, slots=True)
class Comparison:
    """All forms of one session."""

    scenario: Scenario
    tallies: Mapping[Form, FormTally]

    def goals(self) -> Iterator[Goal]:
        """The goals of live panels, after everything was sent."""
        scenario = self.scenario
        ours = next(tally for form, tally in self.tallies.items() if form.has_panels)
        if scenario.most_share:
            yield Goal("of no caching", ours.usd / ours.uncached_usd, scenario.most_share)
        for form, tally in self.tallies.items():
            if scenario.most_ratio and form is not ours.form:
                yield Goal(f"of '{form}'", ours.usd / tally.usd, scenario.most_ratio)
        if scenario.least_read:
            yield Goal("read after ten turns", ours.late.hit_rate, scenario.least_read, "at least")
        if scenario.most_live:
            yield Goal("live messages", ours.most_live, scenario.most_live)
        if scenario.most_prompt:
            yield Goal("tokens of the longest prompt", ours.most_prompt, scenario.most_prompt)


def comparison(scenario: Scenario, setting: Setting, price: Price) -> Comparison:
    """A session in every form, before anything is sent."""
    steps, tallies = list(turns(scenario.pace)), dict[Form, FormTally]()
    for form in scenario.forms:
        key = f"demo-panels-{scenario.name}-{form.name.lower()}"
        made = tuple(sendings(form, steps, f"{scenario.name}-session"))
        headers = {"x-stratiform-mode": "passthrough"} if form is Form.UNTOUCHED else {}
        tallies[form] = FormTally(form, key, made, setting, price, headers)
    return Comparison(scenario, tallies)
