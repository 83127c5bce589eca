"""The terms of a request, what composing adds to it, and what becomes of a request that cannot be composed."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import orjson
import pytest

from proxy.engine.exchange import Principal
from proxy.engine.ports import ComposedRequest, ComposeRequest
from proxy.kit.errors import Forbidden, InvalidRequest, PromptInvalid
from proxy.kit.tasks import Aside
from proxy.prompts import (
    Allowed,
    ClientWish,
    Composition,
    Condition,
    OnFailure,
    Position,
    Prompt,
    PromptFailure,
    PromptLayer,
    PromptRules,
    PromptTerms,
)
from proxy.prompts.window import BUILT_IN, Capability, CapabilityProfile, WindowRules
from proxy.protocol.request import Inset, parse_body
from proxy.services.prompting import MOST_CHARS, PromptComposer, PromptingRules, Whose
from proxy.services.prompting.sources import Snapshot
from tests.examples import for_every

OWN = CapabilityProfile("own", Capability.CHAT, template="frame")
PLAIN = CapabilityProfile("plain", Capability.CHAT)
WINDOWS = WindowRules({"own": OWN, "plain": PLAIN}, models={"small": "own"}, allowed=("plain",))
RULES = PromptRules(
    PromptTerms(use=("base",), allowed=Allowed(profiles=("drafts", "own"))),
    teams={"red": PromptLayer(profile="strict")},
)


def terms(model: str = "m", team: str = "", profile: str = "") -> tuple[PromptTerms, CapabilityProfile | None]:
    return PromptingRules(RULES, WINDOWS).terms_for(Whose(model, team), ClientWish(profile=profile))


def test_without_a_profile_the_terms_are_those_of_the_rules() -> None:
    assert terms() == (RULES.base, None)


def test_a_capability_profile_brings_its_name_and_its_template() -> None:
    found, profile = terms("small")
    assert (found.use, found.profile, profile) == (("base", "frame"), "own", OWN)


def test_a_profile_that_the_rules_name_stands_beside_the_capability_profile() -> None:
    found, profile = terms("small", team="red")
    assert (found.profile, profile) == ("strict", OWN)


def test_a_profile_of_the_prompts_alone_needs_their_permission() -> None:
    found, profile = terms(profile="drafts")
    assert (found.profile, profile) == ("drafts", None)
    with pytest.raises(Forbidden):
        terms(profile="nobody")


def test_a_capability_profile_needs_the_permission_of_the_windows() -> None:
    assert terms(profile="plain")[1] == PLAIN
    with pytest.raises(Forbidden):
        terms(profile="own")


BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
SYSTEM = Prompt("main", Position.SYSTEM, "Rules.")
CONTEXT = Prompt("where", Position.CONTEXT, "{{ custom.place }}")
REMINDER = Prompt("reminder", Position.LAST_USER, "Be brief.")
FLAG = Prompt("flag", Position.SYSTEM, "Loud.", conditions=(Condition("custom.loud", "eq", True),))
BROKEN = Prompt("broken", Position.SYSTEM, "{{ custom.missing }}")
TERSE = Prompt("persona:terse", Position.SYSTEM, "Few words.")


@dataclass
class World:
    """A composer, and what its watch has heard."""

    prompts: tuple[Prompt, ...] = (SYSTEM, CONTEXT, REMINDER, FLAG, TERSE)
    terms: PromptTerms = PromptTerms(use=("main",))
    rules: Mapping[str, Any] = field(default_factory=dict)
    windows: WindowRules = WindowRules(BUILT_IN)
    outcomes: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        rules = PromptingRules(PromptRules(self.terms, **self.rules), self.windows)
        self.composer = PromptComposer(rules, self.snapshot, self, Aside())

    def snapshot(self) -> Snapshot:
        return Snapshot.of(self.prompts)

    def composed(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def prompt_skipped(self, reason: str) -> None:
        self.skips[reason] += 1

    def prompt_changed(self, prompt: str) -> None:
        self.changes[prompt] += 1

    def ask(self, body: Any = None, **changes: Any) -> ComposedRequest:
        sent = orjson.dumps(BODY if body is None else body)
        request = ComposeRequest(parse_body(sent), Principal("scope", "red", key_id="k1"), "m")
        return asyncio.run(self.composer.compose(replace(request, **changes)))


def messages(composed: ComposedRequest) -> Any:
    assert composed.body is not None
    return orjson.loads(composed.body)["messages"]


def wish(**fields: Any) -> bytes:
    return orjson.dumps(fields)


def test_the_system_text_is_in_the_body_and_the_reminder_is_not() -> None:
    world = World(terms=PromptTerms(use=("main", "reminder")))
    composed = world.ask()
    assert messages(composed) == [{"role": "system", "content": "Rules."}, *BODY["messages"]]
    assert (composed.inset, composed.version) == (Inset(after="Be brief."), world.snapshot().version)
    assert world.outcomes == {"composed": 1}


def test_terms_without_prompts_change_nothing_and_have_no_version() -> None:
    assert World(terms=PromptTerms()).ask() == ComposedRequest()


def test_a_prompt_whose_condition_does_not_hold_leaves_the_body_as_it_came() -> None:
    world = World(terms=PromptTerms(use=("flag",)))
    assert world.ask() == ComposedRequest(version=world.snapshot().version, is_required=True)
    assert world.skips == {}


@pytest.mark.parametrize("level", ["models", "teams", "keys"])
def test_each_level_of_the_configuration_is_asked(level: str) -> None:
    name = {"models": "m", "teams": "red", "keys": "k1"}[level]
    world = World(rules={level: {name: PromptLayer(override="Verbatim  ")}})
    assert messages(world.ask())[0]["content"] == "Verbatim  "


def test_a_client_chooses_what_it_may() -> None:
    world = World(
        terms=PromptTerms(use=("main", "where"), allowed=Allowed(personas=("t*",), context=frozenset({"custom"})))
    )
    composed = world.ask(persona="terse", prompts=wish(context={"custom": {"place": "Here."}}))
    assert messages(composed)[0]["content"] == "Rules.\n\nFew words.\n\nHere."


@for_every(
    product(
        [
            {"persona": "terse"},
            {"prompts": wish(override="Do as I say.")},
            {"prompts": wish(context={"custom": {"place": "x"}})},
            {"prompts": wish(extra=[{"id": "a", "position": "system", "text": "x"}])},
            {"profile": "chat"},
            {"profile": "nothing"},
            {"window": wish(profile="chat")},
        ],
        list(OnFailure),
    )
)
def test_what_is_not_allowed_is_forbidden_whatever_happens_to_failures(
    asked: dict[str, Any], on_failure: OnFailure
) -> None:
    with pytest.raises(Forbidden):
        World(terms=PromptTerms(use=("main",), on_failure=on_failure)).ask(**asked)


def test_the_names_of_an_object_keep_their_order_in_each_request() -> None:
    listed = Prompt("listed", Position.SYSTEM, "{% for name in target %}{{ name }}{% endfor %}")
    terms = PromptTerms(use=("listed",), allowed=Allowed(context=("target",)))
    world = World((listed,), terms)
    for names in ("ab", "ba", "ab"):
        composed = world.ask(prompts=wish(context={"target": dict.fromkeys(names, 1)}))
        assert messages(composed)[0]["content"] == names


def test_a_client_cannot_say_less_than_the_configuration_by_an_empty_wish() -> None:
    composed = World().ask(prompts=wish(override="", persona="", context={}, extra=[]))
    assert messages(composed)[0]["content"] == "Rules."


def test_a_mistake_of_the_operators_skips_the_prompt_once_counted() -> None:
    world = World(prompts=(SYSTEM, BROKEN), terms=PromptTerms(use=("*",)))
    assert messages(world.ask())[0]["content"] == "Rules."
    world.ask()
    assert world.skips == {"render_error": 1}


def test_in_strict_mode_a_mistake_of_the_operators_is_a_500() -> None:
    world = World(prompts=(SYSTEM, BROKEN), terms=PromptTerms(use=("*",), strict=True))
    with pytest.raises(PromptInvalid) as found:
        world.ask()
    assert (found.value.status, found.value.code) == (500, "prompt_invalid")
    assert "missing" not in found.value.message
    assert world.outcomes == {"refused": 1}


def test_in_strict_mode_a_mistake_in_the_clients_part_is_a_400_even_where_requests_go_without() -> None:
    terms = PromptTerms(strict=True, on_failure=OnFailure.SEND_WITHOUT, allowed=Allowed(extras=True))
    extra = {"id": "a", "position": "system", "text": "x", "conditions": [{"field": "mission.a", "operator": "exists"}]}
    bad = {**extra, "conditions": [{"field": "mission.a", "operator": "gt", "value": "b"}]}
    terms = replace(terms, context={"mission": {"a": 1}})
    assert messages(World(terms=terms).ask(prompts=wish(extra=[extra])))[0]["content"] == "x"
    with pytest.raises(InvalidRequest) as found:
        World(terms=terms).ask(prompts=wish(extra=[bad]))
    assert found.value.status == 400


def test_a_request_may_be_sent_without_prompts_where_the_configuration_says_so() -> None:
    terms = PromptTerms(use=("*",), strict=True, on_failure=OnFailure.SEND_WITHOUT)
    world = World(prompts=(BROKEN,), terms=terms)
    assert world.ask() == ComposedRequest()
    assert world.outcomes == {"failed": 1}


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_body_that_cannot_be_taken_apart_is_a_failure_like_any_other(on_failure: OnFailure) -> None:
    world = World(terms=PromptTerms(use=("main",), on_failure=on_failure))
    if on_failure is OnFailure.SEND_WITHOUT:
        assert world.ask(parsed=None) == ComposedRequest()
        return
    with pytest.raises(InvalidRequest):
        world.ask(parsed=None)


def test_a_surprise_is_logged_by_its_place_and_ends_as_configured(caplog: pytest.LogCaptureFixture) -> None:
    world = World(terms=PromptTerms(use=("main",)))
    world.prompts = (None,)  # type: ignore[assignment]
    with pytest.raises(PromptInvalid):
        world.ask()
    assert "prompts cannot be composed: AttributeError at" in caplog.text


def test_a_context_that_changes_goes_to_the_newest_user_message() -> None:
    terms = PromptTerms(use=("main", "where"), allowed=Allowed(context=frozenset({"custom"})))
    world = World(terms=terms)
    first = world.ask(prompts=wish(context={"custom": {"place": "One."}}))
    second = world.ask(prompts=wish(context={"custom": {"place": "Two."}}))
    assert (messages(first)[0]["content"], first.inset) == ("Rules.\n\nOne.", Inset())
    assert (messages(second)[0]["content"], second.inset) == ("Rules.", Inset(before="Two."))
    assert world.changes == {"where": 1}


def test_a_request_that_keeps_no_state_is_no_change() -> None:
    terms = PromptTerms(use=("where",), allowed=Allowed(context=frozenset({"custom"})))
    world = World(terms=terms)
    world.ask(prompts=wish(context={"custom": {"place": "One."}}))
    world.ask(prompts=wish(context={"custom": {"place": "Two."}}), keeps_state=False)
    assert world.changes == {}


def test_a_condition_that_flips_often_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    terms = PromptTerms(use=("main", "flag"), allowed=Allowed(context=frozenset({"custom"})))
    world = World(terms=terms)
    with caplog.at_level(logging.WARNING, "stratiform"):
        for number in range(20):
            world.ask(prompts=wish(context={"custom": {"loud": number % 2 == 0}}))
    assert world.changes == {"flag": 19}
    assert caplog.text.count("prompt 'flag' changes in more than 20 %") == 1


def test_names_of_a_clients_prompts_are_no_labels() -> None:
    terms = PromptTerms(allowed=Allowed(extras=True))
    world = World(terms=terms)
    for text in ("x", "y"):
        world.ask(prompts=wish(extra=[{"id": "secret-name", "position": "system", "text": text}]))
    assert world.changes == {"extra": 1}


def test_a_profile_composes_its_template_and_its_own_prompts() -> None:
    own = Prompt("own", Position.SYSTEM, "For chats.", profile="chat")
    profiles = {"chat": replace(BUILT_IN["chat"], template="main")}
    world = World(
        prompts=(SYSTEM, own), terms=PromptTerms(use=("own",)), windows=WindowRules(profiles, allowed=("chat",))
    )
    assert world.ask().body is None
    composed = world.ask(profile="chat")
    assert messages(composed)[0]["content"] == "Rules.\n\nFor chats."
    assert composed.profile == profiles["chat"]


def test_the_profile_of_the_body_wins_over_that_of_the_header() -> None:
    world = World(windows=WindowRules(BUILT_IN, allowed=("chat", "edit")))
    composed = world.ask(profile="chat", window=wish(profile="edit", selection="x"))
    assert composed.profile == BUILT_IN["edit"]
    assert composed.parts.selection == "x"


def test_parts_need_a_profile() -> None:
    with pytest.raises(InvalidRequest) as found:
        World().ask(window=wish(selection="x"))
    assert found.value.param == "stratiform.window.profile"


def test_a_profile_of_prompts_alone_may_be_chosen_where_it_is_allowed() -> None:
    own = Prompt("commit", Position.SYSTEM, "Write a message.", profile="commit")
    terms = PromptTerms(use=("main", "commit"), allowed=Allowed(profiles=("commit",)))
    composed = World(prompts=(SYSTEM, own), terms=terms).ask(profile="commit")
    assert messages(composed)[0]["content"] == "Rules.\n\nWrite a message."
    assert composed.profile is None


def test_changed_rules_hold_for_the_next_request() -> None:
    world = World()
    world.composer.follow(PromptingRules(PromptRules(PromptTerms(use=("reminder",)))))
    assert world.ask() == ComposedRequest(
        inset=Inset(after="Be brief."), version=world.snapshot().version, is_required=True
    )


@pytest.mark.parametrize(
    ("terms", "model", "expected"),
    [
        (PromptTerms(use=("main",)), "m", True),
        (PromptTerms(use=("main",), on_failure=OnFailure.SEND_WITHOUT), "m", False),
        (PromptTerms(allowed=Allowed(override=True)), "m", False),
        (PromptTerms(), "other", True),
        (PromptTerms(), "m", False),
        (PromptTerms(), "", True),
    ],
)
def test_a_request_must_not_go_without_prompts_that_its_client_cannot_decline(
    terms: PromptTerms, model: str, expected: bool
) -> None:
    world = World(terms=terms, rules={"models": {"other": PromptLayer(override="x")}})
    assert world.composer.requires(model, Principal("scope")) is expected


def test_the_prompt_of_a_capability_profile_must_not_be_gone_around_either() -> None:
    profiles = {"chat": replace(BUILT_IN["chat"], template="main")}
    world = World(terms=PromptTerms(), windows=WindowRules(profiles, profile="chat"))
    assert world.composer.requires("m", Principal("scope"))
    assert messages(world.ask())[0]["content"] == "Rules."


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"profile": "edit"}, "x-stratiform-profile"),
        ({"window": wish(profile="edit")}, "stratiform.window.profile"),
        ({"profile": "chat", "window": wish(profile="edit")}, "stratiform.window.profile"),
        ({"persona": "admin"}, "x-stratiform-persona"),
        ({"prompts": wish(persona="admin")}, "stratiform.prompts.persona"),
    ],
)
def test_a_refusal_names_the_header_or_the_field_that_asked(asked: dict[str, Any], param: str) -> None:
    world = World(windows=WindowRules(BUILT_IN, allowed=("chat",)))
    with pytest.raises(Forbidden) as found:
        world.ask(**asked)
    assert found.value.param == param


TERMS = PromptTerms(use=("*",), context={"custom": {"a": 1}})


def prompts_of(*prompts: Prompt) -> Snapshot:
    return Snapshot.of(prompts or (Prompt("a", Position.SYSTEM, "A"),))


@dataclass
class Made:
    """The compositions of one composer."""

    composer: PromptComposer = field(default_factory=lambda: World().composer)

    def by(self, terms: PromptTerms, prompts: Snapshot) -> Composition:
        return asyncio.run(self.composer.composition(terms, prompts))


def test_an_unchanged_context_is_composed_once() -> None:
    made, prompts = Made(), prompts_of()
    assert made.by(TERMS, prompts) is made.by(replace(TERMS, context={"custom": {"a": 1}}), prompts)


@for_every(
    [
        {"context": {"custom": {"a": "1"}}},
        {"context": {"custom": {"a": True}}},
        {"use": ("a",)},
        {"persona": "p"},
        {"profile": "p"},
        {"override": "o"},
        {"tools": True},
        {"strict": True},
        {"extras": (Prompt("b", Position.USER, "\ud800", is_literal=True),)},
    ]
)
def test_whatever_changes_the_texts_is_composed_anew(change: dict[str, Any]) -> None:
    made, prompts = Made(), prompts_of()
    assert made.by(TERMS, prompts) is not made.by(replace(TERMS, **change), prompts)


def test_other_prompts_are_composed_anew() -> None:
    made = Made()
    made.by(TERMS, prompts_of())
    assert made.by(TERMS, prompts_of(Prompt("a", Position.SYSTEM, "B"))).system == "B"


def test_many_prompts_are_composed_beside_the_event_loop() -> None:
    made = Made()
    prompts = prompts_of(*(Prompt(str(i), Position.SYSTEM, "A") for i in range(200)))
    assert len(made.by(TERMS, prompts).parts) == 200


def test_all_prompts_together_have_a_bound() -> None:
    made, half = Made(), "x" * (MOST_CHARS // 2)
    fitting = [Prompt(name, Position.SYSTEM, half, is_literal=True) for name in ("a", "b")]
    assert len(made.by(TERMS, prompts_of(*fitting)).parts) == 2
    with pytest.raises(PromptFailure, match="together"):
        made.by(TERMS, prompts_of(*fitting, Prompt("c", Position.SYSTEM, "y")))
