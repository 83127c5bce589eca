"""The different requests that a configuration tells apart: by model, team, key, persona and profile; and
which prompts some of them can get."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from proxy.cli.prompts.setup import ANY, PromptSetup
from proxy.core.model_patterns import fitting, matches, matches_any
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.rules import PromptRules
from proxy.core.prompts.selection import PERSONA_PREFIX, chosen
from proxy.core.prompts.terms import ClientWish, PromptTerms
from proxy.core.window.rules import WindowRules
from proxy.prompting.rules import Whose
from proxy.settings import ConfigError

MOST_VARIANTS = 5_000
"""A configuration that tells more kinds of requests apart is not looked through."""
_FLAGS = (Position.TOOLS, Position.PLUGINS, Position.AGENTS)


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of request. ``models`` are those for which nothing differs; they are represented by the first one. The
    team "" is any one that has no rules of its own. ``persona`` and ``profile`` are what the client asks for, "" for
    nothing."""

    models: tuple[str, ...]
    team: str = ""
    key_id: str = ""
    persona: str = ""
    profile: str = ""

    @property
    def model(self) -> str:
        """The model that stands for all of them."""
        return self.models[0]

    @property
    def label(self) -> str:
        """The variant in a few words."""
        more = f" and {len(self.models) - 1} more" if len(self.models) > 1 else ""
        named = (("team", self.team), ("key", self.key_id), ("persona", self.persona), ("profile", self.profile))
        words = [f"{what} {name}" for what, name in named if name]
        return ", ".join([f"{self.model}{more}" if self.model != ANY else "any model", *words])

    def view(self) -> dict[str, object]:
        """The variant as JSON values."""
        return {
            "models": list(self.models), "team": self.team or None, "key": self.key_id or None,
            "persona": self.persona or None, "profile": self.profile or None,
        }  # fmt: skip


def terms_of(setup: PromptSetup, variant: Variant) -> PromptTerms:
    """The terms of such a request, as the proxy finds them. Raises Forbidden where clients may not choose the persona
    or the profile."""
    wish = ClientWish(persona=variant.persona, profile=variant.profile)
    terms, _ = setup.rules.terms_for(Whose(variant.model, variant.team, variant.key_id), wish)
    return terms


def variants(prompts: Iterable[Prompt], *setups: PromptSetup) -> Sequence[Variant]:
    """Every kind of request that some setup tells apart, with every persona and profile of ``prompts`` that its client
    may choose. Raises ConfigError where there are too many."""
    registered = tuple(prompts)
    found: list[Variant] = []
    for models, (team, key_id) in product(_models(setups), _clients(setups)):
        plain = Variant(models, team, key_id)
        choices: dict[tuple[str, str], None] = {("", ""): None}
        for setup in setups:
            choices.update(dict.fromkeys(_choices(registered, setup, plain)))
        found += [Variant(models, team, key_id, persona, profile) for persona, profile in choices]
        if len(found) > MOST_VARIANTS:
            raise ConfigError([f"the configuration tells more than {MOST_VARIANTS} kinds of requests apart"])
    return found


def _choices(prompts: Iterable[Prompt], setup: PromptSetup, plain: Variant) -> Iterator[tuple[str, str]]:
    """The personas and profiles that clients may choose beside what they get without a choice."""
    terms = terms_of(setup, plain)
    personas, profiles = [""], [""]
    for prompt in prompts:
        persona = prompt.id.removeprefix(PERSONA_PREFIX)
        if persona != prompt.id and persona != terms.persona and matches_any(terms.allowed.personas, persona):
            personas.append(persona)
        windows = setup.rules.windows
        allowed = windows.allowed if prompt.profile in windows.profiles else terms.allowed.profiles
        if prompt.profile not in ("", terms.profile, *profiles) and matches_any(allowed, prompt.profile):
            profiles.append(prompt.profile)
    yield from product(personas, profiles)


def signature(whose: Whose, *setups: PromptSetup) -> tuple[object, ...]:
    """What the rules know of a request: requests with equal signatures get the same prompts."""
    all_rules = _all_rules(setups)
    team = whose.team if any(whose.team in rules.teams for rules in all_rules) else ""
    key_id = whose.key_id if any(whose.key_id in rules.keys for rules in all_rules) else ""
    return (*_said_of(whose.model, setups), team, key_id)


def _all_rules(setups: Sequence[PromptSetup]) -> list[PromptRules | WindowRules]:
    return [rules for setup in setups for rules in (setup.rules.prompts, setup.rules.windows)]


def _models(setups: Sequence[PromptSetup]) -> list[tuple[str, ...]]:
    """The models, those together of which the rules say the same."""
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    names = dict.fromkeys(name for setup in setups for name in (*setup.models, *setup.rules.prompts.models))
    for name in names or [ANY]:
        groups.setdefault(_said_of(name, setups), []).append(name)
    return [tuple(group) for group in groups.values()]


def _said_of(model: str, setups: Sequence[PromptSetup]) -> tuple[tuple[str, ...], ...]:
    """The patterns of each set of rules that the model is of."""
    return tuple(tuple(fitting(rules.models, rules.names_of(model))) for rules in _all_rules(setups))


def _clients(setups: Sequence[PromptSetup]) -> list[tuple[str, str]]:
    """The pairs of team and key of which some rule says something of its own, and any other team."""
    teams = dict.fromkeys([""])
    keys: dict[tuple[str, str], None] = {}
    for setup in setups:
        for rules in (setup.rules.prompts, setup.rules.windows):
            teams.update(dict.fromkeys(rules.teams))
            keys.update(dict.fromkeys((setup.team_of(key_id), key_id) for key_id in rules.keys))
    return [*((team, "") for team in teams), *keys]


@dataclass(frozen=True, slots=True)
class Reach:
    """``used`` are the ids of prompts that some request can get, by each of its terms in ``all_terms``; ``unused`` says
    of the others why."""

    all_terms: tuple[tuple[Variant, PromptTerms], ...]
    used: frozenset[str]
    unused: dict[str, str] = field(default_factory=dict)


def reach(prompts: Sequence[Prompt], setup: PromptSetup) -> Reach:
    """What requests can get by the rules of a setup, whatever their context is. Raises ConfigError."""
    all_terms = tuple((variant, terms_of(setup, variant)) for variant in variants(prompts, setup))
    used = {prompt.id for _, terms in all_terms for one in _with_flags(terms) for prompt in chosen(prompts, one)}
    unused = {prompt.id: _why(prompt, [terms for _, terms in all_terms]) for prompt in prompts if prompt.id not in used}
    return Reach(all_terms, frozenset(used), unused)


def _with_flags(terms: PromptTerms) -> Iterator[PromptTerms]:
    """The terms with the flags as they are, and as a client may set them."""
    yield terms
    if terms.allowed.flags:
        yield replace(terms, tools=True, plugins=True, agents=True)


def _why(prompt: Prompt, all_terms: Sequence[PromptTerms]) -> str:
    """Why no request gets the prompt."""
    if prompt.id.startswith(PERSONA_PREFIX):
        name = prompt.id.removeprefix(PERSONA_PREFIX)
        return f"the persona '{name}' is never chosen: no configuration names it, and no client may choose it"
    if not any(matches(pattern, prompt.id) for terms in all_terms for pattern in terms.use):
        return "no configuration uses it"
    if prompt.profile and all(terms.profile != prompt.profile for terms in all_terms):
        return f"the profile '{prompt.profile}' is never chosen"
    if prompt.position in _FLAGS and not any(getattr(terms, prompt.position.value) for terms in all_terms):
        return f"the flag '{prompt.position.value}' is never set"
    return "an override takes the place of the system text, or another setting rules it out, wherever it is used"
