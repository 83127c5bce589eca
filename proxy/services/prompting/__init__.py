"""The operator's prompts around the pure core: registry, templates, and composing.

``sources`` reads Markdown files with front matter, and makes a snapshot of the folders, plugins and fragments, which
never changes and has a version; its registry follows the files beside the event loop. It replaces the old snapshot by a
new one, or keeps the old one if a file is broken. Its templates are written in the ``language``, which is Jinja's
within bounds.

``proxy.prompts`` has the part that needs neither files nor templates.

This file composes the prompts into requests (``engine.ports.Composer``). The engine calls it for each chat request. It
finds the terms of the request, and remembers what it has composed by them.

The rules of the configuration, and the choices that they leave to clients, decide which prompts and which context
window a request gets. Then the prompts are composed, and written into the request. A failure does what the
configuration says: the request is refused, or sent without prompts.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, structs

from proxy.engine.exchange import Principal
from proxy.engine.ports import ComposedRequest, ComposeRequest
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest, PromptInvalid, ProxyError
from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.tasks import LARGE_BYTES, Aside, place_of
from proxy.kit.value import dataclass, digest, replace
from proxy.prompts import (
    VOLATILE_SHARE,
    ClientWish,
    Composition,
    OnFailure,
    Prompt,
    PromptFailure,
    PromptRules,
    PromptTerms,
    Seen,
    Steadiness,
    client_terms,
    merged,
)
from proxy.prompts.assembler import PERSONA_PREFIX, assemble, checked_persona, read_wish
from proxy.prompts.window import CapabilityProfile, WindowRules, read_parts
from proxy.protocol.access import matches_any
from proxy.protocol.request import Inset, ParsedBody, check_spelling, takes_inset, with_system
from proxy.protocol.wire import unknown_name
from proxy.protocol.wire.json_body import Unreadable

if TYPE_CHECKING:
    from proxy.services.prompting.sources import Snapshot


_PROFILE_HEADER = "x-stratiform-profile"


class Whose(NamedTuple):
    """The subject of the rules: the model that a request names, and the team and the id of its key."""

    model: str
    team: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class PromptingRules:
    """The rules of a configuration for prompts and context windows. A reload makes new rules."""

    prompts: PromptRules = PromptRules()
    windows: WindowRules = WindowRules()

    @property
    def is_empty(self) -> bool:
        """Whether they hold for no request."""
        return self.prompts.is_empty and self.windows.is_empty

    @property
    def may_compose(self) -> bool:
        """Whether any request may get a prompt of the registry."""
        templates = (profile.template for profile in self.windows.profiles.values())
        return not self.prompts.is_empty or (any(templates) and not self.windows.is_empty)

    def terms_for(self, whose: Whose, wish: ClientWish | None = None) -> tuple[PromptTerms, CapabilityProfile | None]:
        """The terms of the request, and the profile of its context window; None: it has none. If there is a capability
        profile with the name that a client asks for, it is meant. Otherwise the name is a profile of the prompts alone.
        Raises Forbidden for what the client may not choose."""
        terms = self.prompts.terms_for(*whose)
        if wish is None:
            profile = self.windows.profile_for(*whose)
            return _with_profile(terms, profile), profile
        wanted = wish.profile or ""
        is_prompts_own = wanted not in self.windows.profiles and (
            wanted == terms.profile or matches_any(terms.allowed.profiles, wanted)
        )
        param = _PROFILE_HEADER if "profile" in wish.by_header else "stratiform.window.profile"
        profile = self.windows.profile_for(*whose, "" if is_prompts_own else wanted, param)
        asked = client_terms(terms, replace(wish, profile=wanted if is_prompts_own else None))
        return _with_profile(asked, profile), profile


def _with_profile(terms: PromptTerms, profile: CapabilityProfile | None) -> PromptTerms:
    """The terms for requests of a capability profile, which may have a prompt of its own."""
    if profile is None:
        return terms
    use = (*terms.use, profile.template) if profile.template else terms.use
    return replace(terms, use=use, profile=terms.profile or profile.name)


_MOST_BYTES = 32 << 20
MOST_CHARS = 1 << 20
"""The greatest length of all texts of a composition together. The bounds of templates hold for each text alone."""
# With more prompts than this, a new composition is made beside the event loop.
_MANY = 50


def _weight(composition: Composition) -> int:
    return 1_000 + sum(200 + 2 * len(part.text) for part in composition.parts)


def _fingerprint(terms: PromptTerms) -> bytes:
    """The parts of the terms on which a composition depends, the order of names in objects included. Texts may hold
    halves of surrogate pairs."""
    said = [
        terms.use, terms.persona, terms.profile, terms.override, terms.tools, terms.plugins, terms.agents,
        terms.context, terms.extras, terms.strict, terms.own_context,
    ]  # fmt: skip
    return json.dumps(said, default=_plain).encode()


def _plain(one: Prompt | Struct | Mapping[str, object]) -> dict[str, object]:
    return asdict(one) if isinstance(one, Prompt) else structs.asdict(one) if isinstance(one, Struct) else dict(one)


_log = logging.getLogger("stratiform")

_MOST_TOLD = 1_000
# The bytes of each of the first two messages that identify a conversation without a name.
_OPENING_BYTES = 4_096
# The reasons that are worth a warning. A condition that does not hold is not.
_MISTAKES: Mapping[str, str] = {
    "bad_condition": "one of its conditions cannot be evaluated",
    "render_error": "its template cannot be rendered in this context",
}


class PromptComposer:
    """Implements ``engine.ports.Composer``."""

    def __init__(
        self, rules: PromptingRules, snapshot: "Callable[[], Snapshot]", metrics: Metrics, aside: Aside
    ) -> None:
        """``rules`` hold for all requests that begin before a reload replaces them. ``snapshot`` gives the prompts that
        are in force. It is called only if the rules may compose any."""
        self.follow(rules)
        self._snapshot = snapshot
        self._metrics = metrics
        self._aside = aside
        self._known: Bounded[bytes, Composition] = Bounded(_MOST_BYTES, _weight)
        self._steadiness = Steadiness()
        self._told: LastUsed[str, bool] = LastUsed(_MOST_TOLD)

    def follow(self, rules: PromptingRules) -> None:
        """From now on, these rules hold."""
        self.rules, self.has_rules = rules, not rules.is_empty

    async def compose(self, request: ComposeRequest) -> ComposedRequest:
        said = (request.prompts or b"", request.window or b"")
        terms, plain = await self._aside.run_large(sum(map(len, said)), partial(self._asked, request))
        if terms.is_empty:
            return plain
        try:
            has_parts = plain.parts is not None and plain.parts.has_any
            body, found, version = await self._with_prompts(request, terms, has_parts=has_parts)
        except ProxyError:
            raise
        except Exception as error:  # noqa: BLE001 - the configuration decides how every failure is treated
            self._failed(terms, error)
            return plain
        self._metrics.composed("composed")
        return replace(plain, body=body, inset=found, version=version, is_required=terms.on_failure is OnFailure.REFUSE)

    def requires(self, model: str, principal: Principal) -> bool:
        rules = self.rules
        models = (model,) if model else ("", *rules.prompts.models, *rules.windows.models)
        all_terms = (rules.terms_for(Whose(one, principal.team, principal.key_id))[0] for one in models)
        is_refused = (not terms.is_empty and terms.on_failure is OnFailure.REFUSE for terms in all_terms)
        return rules.may_compose and any(is_refused)

    def window(self, model: str, principal: Principal, wished: str) -> CapabilityProfile | None:
        windows, who = self.rules.windows, (principal.team, principal.key_id)
        models = (model,) if model else ("", *windows.models)
        return next(filter(None, (windows.profile_for(one, *who, wished, _PROFILE_HEADER) for one in models)), None)

    def _asked(self, request: ComposeRequest) -> tuple[PromptTerms, ComposedRequest]:
        """The terms of the request, and the request without prompts. Raises InvalidRequest, Forbidden."""
        who = request.principal
        whose = Whose(request.model, who.team, who.key_id)
        if not request.asks_anything:
            terms, profile = self.rules.terms_for(whose)
            return terms, ComposedRequest(profile=profile)
        wish = read_wish(request.prompts) if request.prompts is not None else ClientWish()
        parts = read_parts(request.window) if request.window is not None else None
        persona = checked_persona(request.persona, "x-stratiform-persona") if request.persona else ""
        by_body = {"persona": wish.persona or "", "profile": (parts.profile or "") if parts is not None else ""}
        asked = replace(
            wish,
            persona=by_body["persona"] or persona,
            profile=by_body["profile"] or request.profile,
            by_header=frozenset(name for name, said in by_body.items() if not said),
        )
        terms, profile = self.rules.terms_for(whose, asked)
        self._check_names(asked, terms)
        if parts is not None and parts.has_any and profile is None:
            raise InvalidRequest(
                "the request names parts of its context window and has no capability profile: name one",
                param="stratiform.window.profile",
                code="missing_field",
            )
        return terms, ComposedRequest(profile=profile, parts=parts)

    def _check_names(self, asked: ClientWish, terms: PromptTerms) -> None:
        """Raises InvalidRequest for a persona or a profile that the client may choose and that does not exist."""
        prompts = (*(self._snapshot().prompts if self.rules.may_compose else ()), *asked.extras)
        may_choose, allowed = self.rules.windows.may_choose, terms.allowed
        personas = {one.id.removeprefix(PERSONA_PREFIX) for one in prompts if one.id.startswith(PERSONA_PREFIX)}
        profiles = {one.profile for one in prompts if one.profile} | self.rules.windows.profiles.keys()
        if asked.persona and asked.persona not in personas:
            raise unknown_name("persona", asked.persona, (n for n in personas if matches_any(allowed.personas, n)))
        if asked.profile and asked.profile not in profiles:
            known = (n for n in profiles if may_choose(n) or matches_any(allowed.profiles, n))
            raise unknown_name("profile", asked.profile, known)

    async def _with_prompts(
        self, request: ComposeRequest, terms: PromptTerms, *, has_parts: bool
    ) -> tuple[bytes | None, Inset, str]:
        """The body with the system text in it, the texts that are put around its newest user message, and the version
        of the prompts. Raises PromptFailure, Unreadable, InvalidRequest."""
        snapshot = self._snapshot()
        composition = await self.composition(terms, snapshot)
        if composition.is_empty:
            return None, Inset(), snapshot.version
        if request.parsed is None:
            raise Unreadable("the body cannot be taken apart")
        seen = Seen()
        if request.keeps_state:
            # A conversation is known by the name that its client gives it, or else by its beginning.
            hint = request.principal.session_hint.encode("utf-8", "surrogatepass")
            size = len(request.parsed.body)
            opening = digest(b"hint", hint) if hint else await self._aside.run_large(size, _opening, request.parsed)
            seen = self._steadiness.seen(request.principal.scope, opening, composition)
            if seen.changed:
                own = {prompt.id for prompt in snapshot.prompts} - {extra.id for extra in terms.extras}
                self._tell(seen, own)
        system, inset = composition.placed(seen.at_tail)
        work = partial(_written, request.parsed, system, inset, has_parts=has_parts)
        body, inset = await self._aside.run_large(len(request.parsed.body), work)
        return body, inset, snapshot.version

    async def composition(self, terms: PromptTerms, snapshot: "Snapshot") -> Composition:
        """The composition by these terms, which is made once and then remembered for a time. Raises PromptFailure if it
        is too long, or if a prompt fails under strict terms."""
        name = digest(snapshot.version.encode(), _fingerprint(terms))
        if (known := self._known.get(name)) is not None:
            self._known.used(name)
            return known
        work = partial(assemble, snapshot.prompts, terms, merged(terms.context), snapshot.templates.render)
        # The values of clients decide how long patterns and loops take; the operator's own texts say little about it.
        is_long = terms.is_of_client or len(snapshot.prompts) > _MANY
        size = LARGE_BYTES if is_long else sum(len(prompt.text) for prompt in snapshot.prompts)
        composition = await self._aside.run_large(size, work)
        if sum(len(part.text) for part in composition.parts) > MOST_CHARS:
            longest = max(composition.parts, key=lambda part: len(part.text))
            raise PromptFailure(
                longest.id,
                is_client=terms.is_of_client,
                why=f"the prompts have more than {MOST_CHARS} characters together",
            )
        self._tell_skipped(composition, terms)
        self._known.put(name, composition)
        return composition

    def _tell_skipped(self, composition: Composition, terms: PromptTerms) -> None:
        extras = {extra.id for extra in terms.extras}
        mistakes = {prompt: reason for prompt, reason in composition.skipped.items() if reason in _MISTAKES}
        for prompt, reason in mistakes.items():
            self._metrics.prompt_skipped(reason)
            if prompt not in extras:
                self._warn(f"{reason}:{prompt}", "prompt %r is left out of requests: %s", prompt, _MISTAKES[reason])

    def _tell(self, seen: Seen, own: set[str]) -> None:
        """Report the prompts that break caches. ``own`` are the ids of the operator's prompts. Names that clients
        choose are neither labels nor logged, and they may come from the conversation's previous request."""
        for name in seen.changed:
            self._metrics.prompt_changed(name if name in own else "extra")
        for name in own.intersection(seen.volatile):
            self._warn(
                f"volatile:{name}",
                "prompt %r changes in more than %d %% of the requests of conversations: each change has everything "
                "behind it written to the provider's cache again",
                name,
                round(100 * VOLATILE_SHARE),
            )

    def _warn(self, key: str, message: str, *values: object) -> None:
        if self._told.find(key) is None:
            self._told.put(key, True)
            _log.warning(message, *values)

    def _failed(self, terms: PromptTerms, error: Exception) -> None:
        """Log and count a failure. Raises InvalidRequest or PromptInvalid if the request is refused for it, which is
        always so if the mistake is the client's."""
        is_client = isinstance(error, PromptFailure) and error.is_client
        if isinstance(error, PromptFailure) and not is_client:
            self._warn(f"failed:{error.prompt_id}", "prompt %r cannot be composed: %s", error.prompt_id, error.why)
        elif not isinstance(error, (PromptFailure, Unreadable)):
            _log.error("prompts cannot be composed: %s", place_of(error))
        if terms.on_failure is OnFailure.SEND_WITHOUT and not is_client:
            self._metrics.composed("failed")
            return
        self._metrics.composed("refused")
        if isinstance(error, PromptFailure) and is_client:
            raise InvalidRequest(str(error), param="stratiform.prompts", code="prompt_invalid") from error
        if isinstance(error, Unreadable):
            raise InvalidRequest(
                "the operator's prompts belong into this request, and its messages cannot be taken apart",
                param="messages",
                code="prompt_invalid",
            ) from error
        raise PromptInvalid("the operator's prompts cannot be composed for this request") from error


def _opening(parsed: ParsedBody) -> bytes:
    first = (bytes(memoryview(raw)[:_OPENING_BYTES]) for raw in islice(parsed.raws(), 2))
    return digest(b"opening", *first)


def _written(parsed: ParsedBody, system: str, inset: Inset, *, has_parts: bool) -> tuple[bytes | None, Inset]:
    """The body with the system text (None if there is no such text), and the texts that must still be put around the
    newest user message. If no user message can have them, they are part of the system text: they are also sent if a
    client asks in another role, or without a text. Raises Unreadable, InvalidRequest."""
    check_spelling(parsed)
    if inset and not (has_parts or takes_inset(parsed)):
        system, inset = "\n\n".join(filter(None, (system, inset.before, inset.after))), Inset()
    return (with_system(parsed, system) if system else None), inset
