"""What a random structured session costs: through the proxy, and in the other forms that its client could have sent."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.modes import Mode
from proxy.lab import Step
from proxy.lab.replay import COMPARED, ReplayedContexts
from proxy.lab.replay.command import assembler_maker
from proxy.planner import TierPlanner
from proxy.planner.shadow import most_regret
from proxy.protocol.providers import PROFILES, CacheProfile
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request.reader import Route
from proxy.services.context_assembler import ContextAssembler
from tests.economics.billing import Provider, tokens
from tests.economics.structured_sessions import Form, Spec, body_of, moments

RULES = ("anthropic", "openai", "anthropic", "vllm", "gemini", "groq", "deepseek", "minimax")
TOLERANCE = 1.01
LEARNING_REQUESTS = most_regret("economic")
"""What nobody can know in advance may cost so many times the longest request: how often things change, and whether the
client pauses. It is the planner's own allowance (``proxy/planner/README.md``)."""

_Sent = Sequence[tuple[float, bytes]]


@dataclass(frozen=True)
class Compared:
    """Costs in tokens at the plain input price. ``words`` is what of ``ours`` was paid for the words that the proxy
    adds to panels, prompts and files; ``others`` are the costs of the other forms, by name, and ``longest`` is the
    longest request."""

    name: str
    ours: float
    words: float
    others: Mapping[str, float]
    longest: int

    @property
    def best_name(self) -> str:
        """The cheapest other form."""
        return min(self.others, key=self.others.__getitem__)

    @property
    def best(self) -> float:
        """What the cheapest other form costs."""
        return self.others[self.best_name]

    @property
    def allowance(self) -> float:
        """What the session may cost beside the tolerance."""
        return self.words + LEARNING_REQUESTS * self.longest

    @property
    def excess(self) -> float:
        """By how much the session is dearer than it may be."""
        return self.ours - TOLERANCE * self.best - self.allowance

    def __str__(self) -> str:
        ratio, words, allowance = (part / self.best for part in (self.ours, self.words, self.allowance))
        return f"{self.name}: {ratio:.3f} of {self.best_name}, words {words:.3f}, allowance {allowance:.3f}"


def compared(spec: Spec, rules: str) -> Compared:
    """The session in every form, each in front of a provider of its own."""
    profile, session = PROFILES[rules], f"s{spec.seed}"
    sent = {form: _sent(spec, form) for form in Form}
    ours, longest = _proxied(sent.pop(Form.STRUCTURED), profile, session)
    others: dict[str, float] = {}
    for form, steps in sent.items():
        others[f"{form}, planned"] = _proxied(steps, profile, session)[0].cost
        for name in COMPARED:
            others[f"{form}, {name}"] = _marked(steps, profile, name)
    return Compared(f"{spec.seed} at {rules}", ours.cost, ours.words_cost, others, longest)


def _sent(spec: Spec, form: Form) -> _Sent:
    return [(moment.at, json.dumps(body_of(spec, form, moment)).encode()) for moment in moments(spec)]


def _marked(steps: _Sent, profile: CacheProfile, policy: str) -> float:
    """What the requests cost with markers by a fixed rule, past the proxy."""
    provider = Provider(profile)
    for at, body in steps:
        provider.send(COMPARED[policy](body, profile.dialect), at)
    return provider.cost


def _proxied(steps: _Sent, profile: CacheProfile, session: str) -> tuple[Provider, int]:
    """The provider behind the proxy, and the tokens of the longest request."""
    found, make = _parts()
    planner, contexts = TierPlanner(tokens, found, "economic"), ReplayedContexts(make())
    provider, longest = Provider(profile), 0
    route = Route(scope="t", name="m", model="m", profile=profile, hint=session)
    for at, body in steps:
        chat = contexts.assembled(Step(at, session, body), "t")
        if chat is None:
            plan = planner.plan(body, route, Mode.TIER, at)
        else:
            plan = contexts.plan(planner, chat, route, Mode.TIER, at)
        if plan.surprise is not None:
            raise plan.surprise
        usage = provider.send(plan.body, at)
        longest = max(longest, usage.prompt)
        planner.on_accepted(plan, at)
        planner.on_completed(plan, usage, at)
        if plan.counted is not None:
            plan.counted(usage)
    return provider, longest


@lru_cache(maxsize=1)
def _parts() -> tuple[list[Recogniser], Callable[[], ContextAssembler]]:
    manager = build_plugin_manager()
    return list(recognisers(manager)), assembler_maker(manager, tokens, "economic")
