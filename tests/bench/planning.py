"""Planning alone, in this process: what a request of 100,000 tokens takes to parse, to count, and to plan."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.modes import Mode, Reason
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import quick
from proxy.services import local_encode
from tests.bench import bodies
from tests.bench.bodies import Session

SIZE = 400_000
_REPEATS = 6
_GAP_S = 20.0
_RELAID = frozenset({Reason.KEPT, Reason.ORDERED})


@dataclass(slots=True)
class Times:
    """CPU milliseconds of each request, in parallel lists."""

    parse_ms: list[float] = field(default_factory=list)
    count_ms: list[float] = field(default_factory=list)
    plan_ms: list[float] = field(default_factory=list)

    def at(self, share: float) -> tuple[float, float, float]:
        """The quantile of each part."""
        parts = (sorted(part) for part in (self.parse_ms, self.count_ms, self.plan_ms))
        parse, count, plan = (part[min(len(part) - 1, int(len(part) * share))] if part else 0.0 for part in parts)
        return parse, count, plan


class _Clocked:
    """An encoding whose work is timed."""

    def __init__(self, encode: Callable[[str], int]) -> None:
        self._encode = encode
        self.spent_s = 0.0

    def __call__(self, text: str) -> int:
        began = time.thread_time()
        try:
            return self._encode(text)
        finally:
            self.spent_s += time.thread_time() - began


def measure(traces: Path | None) -> dict[str, Times]:
    """Times of requests that only append, and of requests that are laid out anew; the first two of a session are left
    out: nothing is known of it then."""
    found = {"appends": Times(), "re-laid": Times()}
    encode = _Clocked(local_encode())
    for session in _sessions(traces):
        planner = TierPlanner(quick(encode), recognisers(build_plugin_manager()))
        _run(planner, encode, session, found)
    return found


def _sessions(traces: Path | None) -> Iterator[Session]:
    for seed in range(_REPEATS):
        yield bodies.agent(seed, SIZE, 12, stream=False)
        yield bodies.files(seed, SIZE, 12, stream=False)
    for recorded in bodies.recorded(traces, SIZE, count=8, most=6) if traces else ():
        yield recorded.session(0)


def _run(planner: TierPlanner, encode: _Clocked, session: Session, found: dict[str, Times]) -> None:
    route = Route(scope="bench", name="m", model="m", profile=PROFILES["anthropic"])
    now = 0.0
    for index, body in enumerate(session.bodies):
        encode.spent_s = 0.0
        began = time.thread_time()
        parsed = planner.reader.parse(body)
        planner.reader.read(parsed)
        read = time.thread_time()
        counted_s = encode.spent_s
        incoming = planner.read(parsed, route, Mode.TIER, now)
        plan = incoming if isinstance(incoming, Plan) else planner.decide(incoming).written()
        ended = time.thread_time()
        planner.on_accepted(plan, now)
        planner.on_completed(plan, None, now)
        now += _GAP_S
        if index < session.warm:
            continue
        times = found["re-laid" if plan.reason in _RELAID else "appends"]
        times.parse_ms.append((read - began - counted_s) * 1000)
        times.count_ms.append(encode.spent_s * 1000)
        times.plan_ms.append((ended - read - (encode.spent_s - counted_s)) * 1000)
