"""The sessions whose cost is guarded: the recorded ones, if at hand, those that the demo sends, and those made here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from proxy.kit.modes import Mode
from proxy.lab import Trace, read_trace, trace_name
from proxy.lab.demo.chats import samples
from proxy.lab.demo.tool_agent import NOUNS
from proxy.lab.replay.comparison import kind_of, own_order, prefix_share
from proxy.protocol.providers import PROFILES, CacheProfile
from proxy.protocol.request import Inset
from proxy.protocol.request.tokens import Encode
from proxy.upstream.embedded.provider import PromptReader
from tests.economics.made import (
    chat_page,
    environment_agent,
    made,
    notebook,
    panels,
    panels_agent,
    panels_frozen,
    readers,
    triage,
)  # fmt: skip
from tests.fidelity.recorded import trace_files

OPERATOR_TEXTS = "operator texts"
REMINDER = Inset(
    after="Close every block that you open. Copy the searched text exactly. Keep each block small, with an anchor that "
    "stands in the file once. Write no placeholders."
)
BACKGROUND = Inset(
    "About the shop:\n"
    + "".join(f"- A {noun} keeps its {field} when it is saved; say so where it cannot.\n" for noun, field in NOUNS)
)


@dataclass(frozen=True)
class Session:
    """A session by its name. ``origin`` is "" for a recorded one, whose class follows from its content. ``life_s`` is
    set where the provider forgets earlier than its rules say. ``inset`` are texts of an operator's around the newest
    user message."""

    name: str
    origin: str
    load: Callable[[], Trace]
    mode: Mode = Mode.TIER
    life_s: float = 0.0
    inset: Inset = Inset()

    def served(self, profile: CacheProfile) -> CacheProfile:
        """What the provider does, which the planner has to learn where it is not what the rules say."""
        return replace(profile, life_s=self.life_s, long_life_s=0.0) if self.life_s else profile


@lru_cache(maxsize=1)
def sessions() -> Mapping[str, Session]:
    """All sessions at hand, by name."""
    recorded = [Session(trace_name(path), "", partial(read_trace, path)) for path in trace_files()]
    demo = [Session(f"demo-{sample.name}", "demo", sample.trace) for sample in samples()]
    return {session.name: session for session in (*recorded, *demo, *_made())}


def _made() -> Iterator[Session]:
    for sample in made():
        yield Session(f"made-{sample.name}", "made", sample.trace)
    for sample in (panels(), panels_agent(), panels_frozen()):
        yield Session(f"made-{sample.name}", "live panels", sample.trace)
    for sample in (triage(), environment_agent(), readers()):
        yield Session(f"made-{sample.name}-mark", "mark only", sample.trace, mode=Mode.MARK)
    for sample in (notebook(), chat_page()):
        yield Session(f"made-{sample.name}-forgotten", "forgotten early", sample.trace, life_s=20.0)
    for sample in samples():
        yield Session(f"demo-{sample.name}-reminded", OPERATOR_TEXTS, sample.trace, inset=REMINDER)
    for sample in (chat_page(), environment_agent()):
        yield Session(f"made-{sample.name}-told", OPERATOR_TEXTS, sample.trace, inset=BACKGROUND)


@lru_cache(maxsize=4)
def trace_of(name: str) -> Trace:
    """The requests of a session."""
    return sessions()[name].load()


@lru_cache
def length_of(name: str) -> int:
    """Bytes of all its requests."""
    return sum(len(step.body) for step in trace_of(name).steps)


def class_of(name: str, encode: Encode) -> str:
    """The class in which a session's cost is averaged."""
    if origin := sessions()[name].origin:
        return origin
    reader = PromptReader(PROFILES["anthropic"], encode)
    return str(kind_of(prefix_share(*own_order(trace_of(name).steps, reader))))
