"""The kinds of requests that a configuration tells apart, by model, team, key, persona and profile, and the prompts
that they can get."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import product
from os.path import commonprefix

from proxy.cli.prompts.setup import ANY, GivenContext, PromptSetup
from proxy.core.model_patterns import fitting, matches, matches_any
from proxy.core.prompts.assembler import PERSONA_PREFIX, assemble, chosen
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.prompt import Position, Prompt, PromptFailure
from proxy.core.prompts.terms import ClientWish, PromptRules, PromptTerms
from proxy.core.request.tokens import Encode
from proxy.core.value import dataclass, replace
from proxy.core.window.profile import WindowRules
from proxy.errors import ProxyError
from proxy.prompting.rules import Whose
from proxy.prompting.sources import Snapshot
from proxy.settings import ConfigError

MOST_VARIANTS = 5_000
"""A configuration that tells more kinds of requests apart is not examined."""
_FLAGS = (Position.TOOLS, Position.PLUGINS, Position.AGENTS)


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of request. ``models`` are models without any difference; the first one represents them. The team ""
    means any team without its own rules. ``persona`` and ``profile`` are the client's choices; "" means no choice."""

    models: tuple[str, ...]
    team: str = ""
    key_id: str = ""
    persona: str = ""
    profile: str = ""

    @property
    def model(self) -> str:
        return self.models[0]

    @property
    def label(self) -> str:
        more = f" and {len(self.models) - 1} more" if len(self.models) > 1 else ""
        named = (("team", self.team), ("key", self.key_id), ("persona", self.persona), ("profile", self.profile))
        words = [f"{what} {name}" for what, name in named if name]
        return ", ".join([f"{self.model}{more}" if self.model != ANY else "any model", *words])

    def view(self) -> dict[str, object]:
        return {
            "models": list(self.models), "team": self.team or None, "key": self.key_id or None,
            "persona": self.persona or None, "profile": self.profile or None,
        }  # fmt: skip


def terms_of(setup: PromptSetup, variant: Variant) -> PromptTerms:
    """The terms of such a request, as the proxy finds them. Raises Forbidden if clients may not choose the persona or
    the profile."""
    wish = ClientWish(persona=variant.persona, profile=variant.profile)
    terms, _ = setup.rules.terms_for(Whose(variant.model, variant.team, variant.key_id), wish)
    return terms


def variants(prompts: Iterable[Prompt], *setups: PromptSetup) -> Sequence[Variant]:
    """Every kind of request that some setup tells apart, with every persona and profile of ``prompts`` that its client
    may choose. Raises ConfigError if there are too many."""
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
    """The personas and profiles that clients may choose, besides those that they get without a choice."""
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
    """A key for the rules of a request: requests with equal signatures get the same prompts."""
    all_rules = _all_rules(setups)
    team = whose.team if any(whose.team in rules.teams for rules in all_rules) else ""
    key_id = whose.key_id if any(whose.key_id in rules.keys for rules in all_rules) else ""
    return (*_said_of(whose.model, setups), team, key_id)


def _all_rules(setups: Sequence[PromptSetup]) -> list[PromptRules | WindowRules]:
    return [rules for setup in setups for rules in (setup.rules.prompts, setup.rules.windows)]


def _models(setups: Sequence[PromptSetup]) -> list[tuple[str, ...]]:
    """The models. Models with the same rules are together."""
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    names = dict.fromkeys(name for setup in setups for name in (*setup.models, *setup.rules.prompts.models))
    for name in names or [ANY]:
        groups.setdefault(_said_of(name, setups), []).append(name)
    return [tuple(group) for group in groups.values()]


def _said_of(model: str, setups: Sequence[PromptSetup]) -> tuple[tuple[str, ...], ...]:
    """The patterns of each set of rules that match the model."""
    return tuple(tuple(fitting(rules.models, rules.names_of(model))) for rules in _all_rules(setups))


def _clients(setups: Sequence[PromptSetup]) -> list[tuple[str, str]]:
    """The pairs of team and key that have rules of their own, and one pair for any other team."""
    teams = dict.fromkeys(["", *(team for rules in _all_rules(setups) for team in rules.teams)])
    keys = dict.fromkeys(
        (setup.team_of(key_id), key_id) for setup in setups for rules in _all_rules([setup]) for key_id in rules.keys
    )
    return [*((team, "") for team in teams), *keys]


@dataclass(frozen=True, slots=True)
class Reach:
    """The prompts that requests can get. ``all_terms`` are all possible terms of requests. ``unused`` says why no
    request can get a prompt, by the prompt's id."""

    all_terms: tuple[tuple[Variant, PromptTerms], ...]
    unused: dict[str, str]


def reach(prompts: Sequence[Prompt], setup: PromptSetup) -> Reach:
    """The prompts that requests can get by the rules of a setup, whatever their context is. Raises ConfigError."""
    all_terms = tuple((variant, terms_of(setup, variant)) for variant in variants(prompts, setup))
    used = {prompt.id for _, terms in all_terms for one in _with_flags(terms) for prompt in chosen(prompts, one)}
    unused = {prompt.id: _why(prompt, [terms for _, terms in all_terms]) for prompt in prompts if prompt.id not in used}
    return Reach(all_terms, unused)


def _with_flags(terms: PromptTerms) -> Iterator[PromptTerms]:
    yield terms
    if terms.allowed.flags:
        yield replace(terms, tools=True, plugins=True, agents=True)


def _why(prompt: Prompt, all_terms: Sequence[PromptTerms]) -> str:
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


WHY: Mapping[str, str] = {
    "condition": "a condition does not hold",
    "bad_condition": "a condition cannot be evaluated",
    "render_error": "the template cannot be rendered",
    "blank": "the text is blank",
    "missing": "there is no such prompt",
}
"""The meaning of each reason for which a prompt is left out."""
_MISTAKES = frozenset({"bad_condition", "render_error", "missing"})
"""The reasons that are always mistakes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the composed texts, as counted on this machine."""

    system: int
    before_user: int
    after_user: int

    @classmethod
    def of(cls, composition: Composition, encode: Encode) -> "Sizes":
        inset = composition.inset
        return cls(encode(composition.system), encode(inset.before), encode(inset.after))

    @property
    def user(self) -> int:
        return self.before_user + self.after_user


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """A setup with its prompts; ``snapshot.version`` names it."""

    setup: PromptSetup
    snapshot: Snapshot

    def composition(self, variant: Variant, context: GivenContext, *, is_strict: bool = False) -> Composition:
        """The composition of such a request with this context. ``is_strict``: in strict mode, whatever the
        configuration says. Raises Forbidden and PromptFailure."""
        terms = terms_of(self.setup, variant)
        terms = replace(terms, strict=terms.strict or is_strict)
        return assemble(self.snapshot.prompts, terms, merged(terms.context, context), self.snapshot.templates.render)

    def mistake(self, variant: Variant, context: GivenContext) -> str:
        """The mistake of the first prompt that is left out by mistake, in words; "" if there is none. Raises
        Forbidden."""
        try:
            composition = self.composition(variant, context, is_strict=True)
        except PromptFailure as error:
            return str(error)
        return "; ".join(f"'{name}': {WHY[reason]}" for name, reason in mistakes(composition))


def mistakes(composition: Composition) -> Iterator[tuple[str, str]]:
    return ((name, reason) for name, reason in composition.skipped.items() if reason in _MISTAKES)


@dataclass(frozen=True, slots=True)
class Side:
    """The composition before, or after, the change. ``problem`` says what is wrong there, or is empty."""

    composition: Composition = Composition()
    sizes: Sizes = Sizes(0, 0, 0)
    problem: str = ""

    @property
    def texts(self) -> Mapping[str, str]:
        inset = self.composition.inset
        return {"system": self.composition.system, "before_user": inset.before, "after_user": inset.after}


@dataclass(frozen=True, slots=True)
class Difference:
    """The change for some kinds of requests, whose texts are the same on both sides. ``cases`` are these kinds, each
    with the name of the context that was given. ``kept_tokens`` is how much of the composed system text a session that
    is open at the change still finds in the cache; None: the change leaves the cached prefix as it is."""

    cases: tuple[tuple[Variant, str], ...]
    old: Side
    new: Side
    kept_tokens: int | None = None

    @property
    def is_changed(self) -> bool:
        return self.old.texts != self.new.texts or self.old.problem != self.new.problem

    def lines(self) -> Iterator[str]:
        for place, text in self.old.texts.items():
            before, after = text.splitlines(), self.new.texts[place].splitlines()
            yield from unified_diff(before, after, f"old {place}", f"new {place}", lineterm="")


def differences(
    old: PromptVersion, new: PromptVersion, contexts: Mapping[str, GivenContext], encode: Encode
) -> Sequence[Difference]:
    """The change for every kind of request that either side tells apart, in each of the contexts; kinds with the same
    texts are together. Raises ConfigError."""
    prompts = {prompt.id: prompt for prompt in (*old.snapshot.prompts, *new.snapshot.prompts)}
    found: dict[tuple[object, ...], Difference] = {}
    for variant in variants(prompts.values(), old.setup, new.setup):
        for name, context in contexts.items():
            one = difference(old, new, variant, context, encode)
            key = (*one.old.texts.values(), one.old.problem, *one.new.texts.values(), one.new.problem)
            known = found.get(key)
            cases = (*known.cases, (variant, name)) if known is not None else ((variant, name),)
            found[key] = Difference(cases, one.old, one.new, one.kept_tokens)
    return list(found.values())


def difference(
    old: PromptVersion, new: PromptVersion, variant: Variant, context: GivenContext, encode: Encode
) -> Difference:
    before, after = _side(old, variant, context, encode), _side(new, variant, context, encode)
    old_text, new_text = before.composition.system, after.composition.system
    kept_tokens = None if old_text == new_text else encode(commonprefix([old_text, new_text]))
    return Difference(((variant, ""),), before, after, kept_tokens)


def _side(version: PromptVersion, variant: Variant, context: GivenContext, encode: Encode) -> Side:
    try:
        composition = version.composition(variant, context)
    except ProxyError as error:
        return Side(problem=error.message)
    except PromptFailure as error:
        return Side(problem=f"the request is refused: {error}")
    wrong = "; ".join(f"'{name}' is left out: {WHY[reason]}" for name, reason in mistakes(composition))
    return Side(composition, Sizes.of(composition, encode), wrong)
