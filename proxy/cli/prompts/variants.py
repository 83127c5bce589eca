"""What the actions of ``stratiform prompts`` share.

The setup is a configuration with its folders, or folders alone, now or at a revision of Git; files hold the contexts of
requests. ``variants`` are the kinds of requests that a configuration tells apart, by model, team, key, persona and
profile; ``reach`` tells which prompts they can get. The compositions of two versions are compared at the end. The bill
is an estimate of what the change would have cost for the requests in the ledger.

Each request pays for the growth of the composed texts. In the system text, the price is that of a cache read if the
request found something in the cache, and that of a fresh prompt if it did not. Around the newest user message, it is
the price of a fresh prompt. A fresh prompt is written to the cache if the traffic has cache writes; else it costs the
input price.

Each session that is open at the change has its prefix written again once, from the changed token on. The cost is that
of the tokens that a request usually finds in the cache, without the tokens in front of the changed one, at the price of
a fresh prompt instead of a read.

The ledger knows no sessions. A session is estimated to begin with a user's first request, with a request that comes
more than an hour after the one before, or with a request that finds nothing in the cache.
"""

import argparse
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from functools import cached_property, partial
from io import BytesIO
from itertools import product
from os.path import commonprefix
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import orjson

from proxy.app import factories, foundation
from proxy.app.settings import ConfigError, Settings, load
from proxy.cli import add_json, fail
from proxy.cli.admin_client import DEFAULT_CONFIG, config_or_default
from proxy.hookspecs import build_plugin_manager
from proxy.kit.errors import ProxyError
from proxy.kit.value import dataclass, field, replace
from proxy.prompts import (
    FLAGS,
    ROOTS,
    Allowed,
    ClientWish,
    Composition,
    Json,
    Prompt,
    PromptFailure,
    PromptRules,
    PromptTerms,
    merged,
)
from proxy.prompts.assembler import PERSONA_PREFIX, assemble, chosen
from proxy.protocol.access import fitting, matches, matches_any
from proxy.protocol.prices import Price
from proxy.protocol.request.tokens import Encode
from proxy.services.prompting import PromptingRules, Whose
from proxy.services.prompting.sources import (
    FileState,
    PromptFileError,
    Snapshot,
    Sources,
    markdown_files,
    read_file,
    texts_of,
)
from proxy.teams.authentication import DEFAULT_TEAM

T = TypeVar("T")

GivenContext = Mapping[str, Mapping[str, Json]]
"""A context in the form of a file: an object for some of the roots."""

ANY = "*"
"""The name that stands for any model without a rule."""
_ALL = PromptingRules(
    PromptRules(
        base=PromptTerms(
            use=(ANY,),
            tools=True,
            plugins=True,
            agents=True,
            allowed=Allowed(True, True, True, personas=(ANY,), profiles=(ANY,), context=frozenset(ROOTS)),
        )
    )
)


@dataclass(frozen=True)
class PromptSetup:
    """``folders`` are in the order in which their prompts are registered, after the shipped ones if ``has_shipped``.
    ``models`` and ``keys`` are the names that a configuration knows. ``settings`` is None if there are only folders;
    then every prompt is composed, and clients may ask for everything."""

    folders: tuple[Path, ...] = ()
    has_shipped: bool = False
    rules: PromptingRules = _ALL
    models: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """The team of each key, by the key's id."""
    settings: Settings | None = None

    @cached_property
    def snapshot(self) -> Snapshot:
        """The prompts as a proxy would use them. Its version names them. Raises ConfigError."""
        return self._sources().snapshot()

    def readable(self) -> tuple[list[Prompt], list[str], Mapping[str, str]]:
        """All prompts that can be read, even if two have the same id, the problems with the others, and the fragments.
        Raises ConfigError if a plugin registers something that is not a prompt."""
        sources, problems = self._sources(), list[str]()
        folders = [_read(partial(markdown_files, folder), list[FileState](), problems) for folder in sources.folders]
        found = [_read(partial(read_file, state.path), None, problems) for states in folders for state in states]
        fragments = _read(partial(texts_of, sources.fragments or {}), dict[str, str](), problems)
        return [*filter(None, found), *sources.prompts], problems, fragments

    def team_of(self, key_id: str) -> str:
        return self.keys.get(key_id, DEFAULT_TEAM)

    def composition(self, variant: "Variant", context: GivenContext, *, is_strict: bool = False) -> Composition:
        """The composition of such a request with this context. ``is_strict``: in strict mode, whatever the
        configuration says. Raises Forbidden and PromptFailure."""
        terms = terms_of(self, variant)
        terms = replace(terms, strict=terms.strict or is_strict)
        return assemble(self.snapshot.prompts, terms, merged(terms.context, context), self.snapshot.templates.render)

    def mistake(self, variant: "Variant", context: GivenContext) -> str:
        """The mistake of the first prompt that is left out by mistake, in words; "" if there is none. Raises
        Forbidden."""
        try:
            composition = self.composition(variant, context, is_strict=True)
        except PromptFailure as error:
            return str(error)
        return "; ".join(f"'{name}': {WHY[reason]}" for name, reason in mistakes(composition))

    def _sources(self) -> Sources:
        return Sources.of(self.folders, is_shipped=self.has_shipped, manager=build_plugin_manager())


def _read(read: Callable[[], T], instead: T, problems: list[str]) -> T:
    """The value that is read. A failure is added to ``problems``, and ``instead`` is returned."""
    try:
        return read()
    except PromptFileError as error:
        problems.append(str(error))
        return instead


def add_setup(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where prompts are read, and how the command prints")
    group.add_argument(
        "--config", type=Path, metavar="FILE",
        help=f"the configuration that says whose requests get which prompts (default: {DEFAULT_CONFIG})",
    )  # fmt: skip
    group.add_argument(
        "--folder", type=Path, action="append", default=[], metavar="FOLDER",
        help="read the prompts of this folder, in the place of the folders of the configuration; may be repeated",
    )  # fmt: skip
    add_json(group)


def setup_of(arguments: argparse.Namespace) -> PromptSetup:
    if arguments.folder:
        return setup_at(arguments.config, arguments.folder)
    return setup_at(config_or_default(arguments.config, "use --config FILE or --folder FOLDER"))


def setup_at(config: Path | None, folders: Sequence[Path] = ()) -> PromptSetup:
    """The setup of a configuration, of folders, or of both. With both, the rules come from the configuration, and the
    prompts from the folders. Raises ConfigError."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError([f"{folder}: is no folder"])
    if config is None:
        return PromptSetup(tuple(folders))
    settings = load(config)
    table = factories.model_table(settings, factories.price_map(settings))
    return PromptSetup(
        tuple(folders or settings.prompt_folders),
        settings.stratiform.prompts.shipped,
        foundation.rules_of(settings, table.spellings),
        models=tuple(dict.fromkeys([*table.names(), *table.patterns()])),
        keys={key.id: key.team for key in foundation.declared(settings).keys},
        settings=settings,
    )


def add_contexts(parser: argparse.ArgumentParser, several: str) -> None:
    """Add the option that names files with contexts. ``several`` says how more than one file is used."""
    parser.add_argument(
        "--context", type=Path, action="append", default=[], metavar="FILE",
        help=f"a JSON object with what a request brings, by root ({', '.join(ROOTS)}); may be repeated: {several}",
    )  # fmt: skip


def read_context(file: Path) -> GivenContext:
    """The context of a file. Ends the command if the file does not hold a context."""
    try:
        content = orjson.loads(file.read_bytes())
    except OSError as error:
        fail(f"{file}: cannot be read: {error.strerror}")
    except orjson.JSONDecodeError as error:
        fail(f"{file}: is no JSON: {error}")
    if not isinstance(content, dict) or not all(isinstance(values, dict) for values in content.values()):
        fail(f"{file}: must be an object that has an object for each root")
    for root in content:
        if root not in ROOTS:
            fail(f"{file}: '{root}' is no root of the context; there are {', '.join(ROOTS)}")
    return content


HELP = "a folder of prompts, a configuration, or REVISION:PATH for either of them at a revision of Git"
_GIT_S = 60.0


@contextmanager
def opened(place: str, config: Path | None) -> Iterator[PromptSetup]:
    """The setup at a place, for as long as the block lasts. The rules for a folder are those of ``config``. Raises
    ConfigError."""
    with TemporaryDirectory(prefix="stratiform-") as folder:
        path = Path(place)
        if not path.exists():
            revision, _, inner = place.partition(":")
            if not inner:
                raise ConfigError([f"{place}: there is no such file or folder; {HELP}"])
            path = _checked_out(revision, inner, Path(folder))
        yield setup_at(config, [path]) if path.is_dir() else setup_at(path)


def _checked_out(revision: str, path: str, folder: Path) -> Path:
    """Write a folder of a revision, or for a file the whole revision, into ``folder``. Returns the new place of the
    path. The path is relative to the working directory. Raises ConfigError."""
    if revision.startswith("-"):
        raise ConfigError([f"{revision}: is no revision"])
    top = Path(_git(Path(), "rev-parse", "--show-toplevel").decode().strip())
    try:
        inside = PurePosixPath(Path(path).resolve().relative_to(top.resolve()).as_posix())
    except ValueError:
        raise ConfigError([f"{revision}:{path}: lies outside of the repository {top}"]) from None
    is_folder = _git(top, "cat-file", "-t", f"{revision}:{inside}").strip() == b"tree"
    content = BytesIO(_git(top, "archive", "--format=tar", revision, *([str(inside)] if is_folder else [])))
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(folder, filter=_safe)
    return folder / inside


def _safe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """A filter for files that may be written. Links that lead out of the repository are left out."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _git(folder: Path, *arguments: str) -> bytes:
    """The output of Git. Raises ConfigError."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=_GIT_S, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError([f"git {arguments[0]} does not work here ({type(error).__name__})"]) from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError([f"git {arguments[0]}: {lines[-1] if lines else 'failed'}"])
    return done.stdout


MOST_VARIANTS = 5_000
"""A configuration that tells more kinds of requests apart is not examined."""


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
    def label(self) -> str:
        model = "any model" if self.models[0] == ANY else self.models[0]
        more = f" and {len(self.models) - 1} more" if len(self.models) > 1 else ""
        named = (("team", self.team), ("key", self.key_id), ("persona", self.persona), ("profile", self.profile))
        return ", ".join([f"{model}{more}", *(f"{what} {name}" for what, name in named if name)])

    def view(self) -> dict[str, object]:
        return {
            "models": list(self.models), "team": self.team or None, "key": self.key_id or None,
            "persona": self.persona or None, "profile": self.profile or None,
        }  # fmt: skip


def terms_of(setup: PromptSetup, variant: Variant) -> PromptTerms:
    """The terms of such a request, as the proxy finds them. Raises Forbidden if clients may not choose the persona or
    the profile."""
    whose = Whose(variant.models[0], variant.team, variant.key_id)
    return setup.rules.terms_for(whose, ClientWish(persona=variant.persona, profile=variant.profile))[0]


def variants(prompts: Collection[Prompt], *setups: PromptSetup) -> Sequence[Variant]:
    """Every kind of request that some setup tells apart, with every persona and profile of ``prompts`` that its client
    may choose. Raises ConfigError if there are too many."""
    all_rules = [rules for setup in setups for rules in (setup.rules.prompts, setup.rules.windows)]
    # Models are together if the same patterns of each set of rules match them.
    groups: dict[object, list[str]] = {}
    names = dict.fromkeys(name for setup in setups for name in (*setup.models, *setup.rules.prompts.models))
    for name in names or [ANY]:
        said = tuple(tuple(fitting(rules.models, rules.names_of(name))) for rules in all_rules)
        groups.setdefault(said, []).append(name)
    # The pairs of team and key that have rules of their own, and one pair for any other team.
    teams = dict.fromkeys(["", *(team for rules in all_rules for team in rules.teams)])
    keys = dict.fromkeys(
        (setup.team_of(key_id), key_id)
        for setup in setups
        for rules in (setup.rules.prompts, setup.rules.windows)
        for key_id in rules.keys
    )
    clients = [*((team, "") for team in teams), *keys]
    found: list[Variant] = []
    for models, (team, key_id) in product(map(tuple, groups.values()), clients):
        plain = Variant(models, team, key_id)
        choices = dict.fromkeys(choice for setup in setups for choice in _choices(prompts, setup, plain))
        found += [replace(plain, persona=persona, profile=profile) for persona, profile in choices]
        if len(found) > MOST_VARIANTS:
            raise ConfigError([f"the configuration tells more than {MOST_VARIANTS} kinds of requests apart"])
    return found


def _choices(prompts: Iterable[Prompt], setup: PromptSetup, plain: Variant) -> Iterator[tuple[str, str]]:
    """The personas and profiles that clients may choose; first none of either, which gives them the configured ones."""
    terms = terms_of(setup, plain)
    personas, profiles = [""], [""]
    for prompt in prompts:
        persona = prompt.id.removeprefix(PERSONA_PREFIX)
        if persona != prompt.id and persona != terms.persona and matches_any(terms.allowed.personas, persona):
            personas.append(persona)
        windows = setup.rules.windows
        allowed = windows.allowed if prompt.profile in windows.profiles else terms.allowed.profiles
        if prompt.profile not in (terms.profile, *profiles) and matches_any(allowed, prompt.profile):
            profiles.append(prompt.profile)
    yield from product(personas, profiles)


@dataclass(frozen=True, slots=True)
class PromptReach:
    """The prompts that requests can get. ``all_terms`` are all possible terms of requests. ``unused`` says why no
    request can get a prompt, by the prompt's id."""

    all_terms: tuple[tuple[Variant, PromptTerms], ...]
    unused: dict[str, str]


def reach(prompts: Sequence[Prompt], setup: PromptSetup) -> PromptReach:
    """The prompts that requests can get by the rules of a setup, whatever their context is. Raises ConfigError."""
    all_terms = tuple((variant, terms_of(setup, variant)) for variant in variants(prompts, setup))
    # A flag that is set only lets more prompts be composed.
    widest = [
        replace(terms, tools=True, plugins=True, agents=True) if terms.allowed.flags else terms
        for _, terms in all_terms
    ]
    used = {prompt.id for terms in widest for prompt in chosen(prompts, terms)}
    return PromptReach(all_terms, {prompt.id: _why(prompt, widest) for prompt in prompts if prompt.id not in used})


def _why(prompt: Prompt, all_terms: Sequence[PromptTerms]) -> str:
    persona = prompt.id.removeprefix(PERSONA_PREFIX)
    if persona != prompt.id:
        return f"the persona '{persona}' is never chosen: no configuration names it, and no client may choose it"
    if not any(matches(pattern, prompt.id) for terms in all_terms for pattern in terms.use):
        return "no configuration uses it"
    if prompt.profile and all(terms.profile != prompt.profile for terms in all_terms):
        return f"the profile '{prompt.profile}' is never chosen"
    if prompt.position in FLAGS and not any(getattr(terms, prompt.position.value) for terms in all_terms):
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
# The reasons that are always mistakes.
_MISTAKES = frozenset({"bad_condition", "render_error", "missing"})


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
class TextDifference:
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
    old: PromptSetup, new: PromptSetup, contexts: Mapping[str, GivenContext], encode: Encode
) -> Sequence[TextDifference]:
    """The change for every kind of request that either side tells apart, in each of the contexts; kinds with the same
    texts are together. Raises ConfigError."""
    prompts = {prompt.id: prompt for prompt in (*old.snapshot.prompts, *new.snapshot.prompts)}
    found: dict[tuple[object, ...], TextDifference] = {}
    for variant in variants(prompts.values(), old, new):
        for name, context in contexts.items():
            one = difference(old, new, variant, context, encode)
            key = (*one.old.texts.values(), one.old.problem, *one.new.texts.values(), one.new.problem)
            cases = found[key].cases if key in found else ()
            found[key] = replace(one, cases=(*cases, (variant, name)))
    return list(found.values())


def difference(
    old: PromptSetup, new: PromptSetup, variant: Variant, context: GivenContext, encode: Encode
) -> TextDifference:
    before, after = _side(old, variant, context, encode), _side(new, variant, context, encode)
    texts = [before.composition.system, after.composition.system]
    kept_tokens = None if texts[0] == texts[1] else encode(commonprefix(texts))
    return TextDifference(((variant, ""),), before, after, kept_tokens)


def _side(setup: PromptSetup, variant: Variant, context: GivenContext, encode: Encode) -> Side:
    try:
        composition = setup.composition(variant, context)
    except ProxyError as error:
        return Side(problem=error.message)
    except PromptFailure as error:
        return Side(problem=f"the request is refused: {error}")
    wrong = "; ".join(f"'{name}' is left out: {WHY[reason]}" for name, reason in mistakes(composition))
    return Side(composition, Sizes.of(composition, encode), wrong)


DAYS = 30
"""How many days of the ledger are read."""
_PAUSE_S = 3600.0
_CACHE_LIFE_S = 300.0
_SUMMED = ("read_tokens", "write_5m_tokens", "write_1h_tokens", "cost_usd")
_TOTALS = ("requests_usd", "once_usd", "once_usd_at_most")


@dataclass(slots=True)
class Traffic:
    """The requests of the ledger, summed up by model, team and key. Besides the ledger's own sums it has the number of
    ``requests``, the number of ``warm`` ones (they found something in the cache), the number of ``sessions``, and how
    long the sessions were open (``open_s``, in seconds)."""

    by_whose: dict[Whose, Counter[str]] = field(default_factory=dict)
    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry. Entries come in their order. An entry without an answer of a model, such as a refusal or an
        embedding, does not count."""
        if entry["status"] != 200 or not entry["output_tokens"]:
            return
        whose = Whose(entry["model"], entry["team"], entry["key_id"])
        at, last = entry["at"], self._last.get((*whose, entry["user"]))
        self._last[(*whose, entry["user"])] = at
        is_first = last is None or at - last > _PAUSE_S or not entry["read_tokens"]
        open_s = _CACHE_LIFE_S if is_first or last is None else at - last
        of_one = self.by_whose.setdefault(whose, Counter())
        of_one.update({name: entry[name] for name in _SUMMED})
        of_one.update({"requests": 1, "warm": entry["read_tokens"] > 0, "sessions": is_first, "open_s": open_s})


def estimated(
    traffic: Traffic, change: Callable[[Whose], TextDifference], price_of: Callable[[str], Price | None]
) -> dict[str, Any]:
    """The bill of the change for this traffic, as JSON values: a line for each model, team and key, the most expensive
    first, and the sums of all. ``change`` gives the difference for the requests of a model, team and key. ``price_of``
    gives the price of a model's tokens.

    A line has the cost of the changed size of all requests, and the cost for one session that meets the change (both
    None if the price is not known). It also has the one-time cost for the sessions that are open at a usual time, and
    the most that it costs, if every session meets the change."""
    lines = []
    for whose, of_one in sorted(traffic.by_whose.items(), key=lambda pair: (-pair[1]["cost_usd"], pair[0])):
        one, price = change(whose), price_of(whose.model)
        system_tokens = one.new.sizes.system - one.old.sizes.system
        user_tokens = one.new.sizes.user - one.old.sizes.user
        requests_usd = session_usd = None
        if price is not None:
            short, long = of_one["write_5m_tokens"], of_one["write_1h_tokens"]
            fresh = price.write_1h if long > short else price.write_5m if short else price.input
            warm, requests = of_one["warm"], of_one["requests"]
            of_system = warm * price.read + (requests - warm) * fresh
            requests_usd = system_tokens * of_system + user_tokens * requests * fresh
            found = of_one["read_tokens"] / warm if warm else 0.0
            lost = 0.0 if one.kept_tokens is None else max(0.0, found - one.kept_tokens)
            session_usd = lost * max(0.0, fresh - price.read)
        open_sessions = of_one["open_s"] / (DAYS * 86400.0)
        lines.append({
            "model": whose.model, "team": whose.team, "key": whose.key_id,
            "requests": of_one["requests"], "sessions": of_one["sessions"], "open_sessions": open_sessions,
            "spent_usd": of_one["cost_usd"], "system_tokens": system_tokens, "user_tokens": user_tokens,
            "requests_usd": requests_usd, "session_usd": session_usd,
            "once_usd": (session_usd or 0.0) * open_sessions,
            "once_usd_at_most": (session_usd or 0.0) * of_one["sessions"],
        })  # fmt: skip
    return {
        **{name: sum(line[name] or 0.0 for line in lines) for name in _TOTALS},
        "requests_without_price": sum(line["requests"] for line in lines if line["requests_usd"] is None),
        "lines": lines,
    }
