"""The sessions whose cost is guarded: the recorded ones, if at hand, and those that the demo sends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from proxy.core.providers import PROFILES
from proxy.core.request.tokens import Encode
from proxy.demo.samples import samples
from proxy.replay.baselines import as_sent
from proxy.replay.comparison import kind_of
from proxy.replay.limits.classes import prefix_share
from proxy.replay.limits.segments import Bagger
from proxy.replay.prompts import PromptReader
from proxy.replay.trace import Trace, read_trace, trace_name
from tests.fidelity.recorded import trace_files


@dataclass(frozen=True)
class Session:
    """A session by its name. ``origin`` is "" for a recorded one, whose class follows from its content."""

    name: str
    origin: str
    load: Callable[[], Trace]


@lru_cache(maxsize=1)
def sessions() -> Mapping[str, Session]:
    """All sessions at hand, by name."""
    recorded = [Session(trace_name(path), "", partial(read_trace, path)) for path in trace_files()]
    demo = [Session(f"demo-{sample.name}", "demo", sample.trace) for sample in samples()]
    return {session.name: session for session in (*recorded, *demo)}


@lru_cache(maxsize=4)
def trace_of(name: str) -> Trace:
    """The requests of a session."""
    return sessions()[name].load()


def class_of(name: str, encode: Encode) -> str:
    """The class in which a session's cost is averaged."""
    if origin := sessions()[name].origin:
        return origin
    reader = PromptReader(PROFILES["anthropic"], encode)
    sent = [(step.at, as_sent(step.body, reader.profile.dialect)) for step in trace_of(name).steps]
    bagger = Bagger(reader)
    prompts = [(at, reader.prompt(body)) for at, body in sent]
    return str(kind_of(prefix_share(prompts, [bagger.bag(body, at) for at, body in sent])))
