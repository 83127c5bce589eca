"""Snapshots: prompts that belong together, and the version that names them."""

from dataclasses import replace

import pytest

from proxy.core.prompts.failures import RenderError
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import ROOTS, Condition, Prompt, Variable
from proxy.prompting.files import PromptFileError
from proxy.prompting.snapshot import Snapshot
from tests.examples import for_every

GREETING = Prompt("greeting", Position.SYSTEM, "Hello {{ who }}", variables=(Variable("who"),), origin="a.md")
CHANGES = {
    "id": "welcome",
    "position": Position.USER,
    "text": "Hi {{ who }}",
    "priority": 1,
    "conditions": (Condition("mission.a", "exists"),),
    "variables": (Variable("who", default="you"),),
    "profile": "chat",
    "is_literal": True,
}


def test_a_snapshot_renders_its_prompts() -> None:
    context = {root: {} for root in ROOTS}
    assert Snapshot.of([GREETING]).templates.render(GREETING, context, {"who": "Ada"}) == "Hello Ada"


@for_every(CHANGES)
def test_the_version_changes_with_everything_that_may_change_what_is_composed(field: str) -> None:
    changed = replace(GREETING, **{field: CHANGES[field]})
    assert Snapshot.of([changed]).version != Snapshot.of([GREETING]).version


def test_the_version_changes_with_the_order_and_with_a_fragment() -> None:
    other = replace(GREETING, id="other")
    versions = {
        Snapshot.of(prompts, fragments).version
        for prompts in ([GREETING, other], [other, GREETING])
        for fragments in ({}, {"rules": "a"}, {"rules": "b"})
    }
    assert len(versions) == 6


def test_equal_prompts_have_an_equal_version_wherever_they_come_from() -> None:
    moved = replace(GREETING, origin="b.md", description="Says hello")
    assert Snapshot.of([moved], {"a": "1", "b": "2"}).version == Snapshot.of([GREETING], {"b": "2", "a": "1"}).version


def test_an_id_that_stands_twice_is_refused_with_both_files() -> None:
    with pytest.raises(PromptFileError, match=r"b\.md: id: 'greeting' is already the id of a\.md; .*'shipped: false'"):
        Snapshot.of([GREETING, replace(GREETING, origin="b.md")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ who", "line 1: "),
        ("\n{% include 'x' %}", "line 2: 'include' is not available"),
        ("{{ whom }}", "line 1: 'whom' is neither a root of the context nor a variable of the prompt"),
        ("\n{{ fragment('rules') }}", "line 2: there is no fragment 'rules'"),
    ],
)
def test_a_template_that_can_never_be_rendered_is_refused_with_its_file(text: str, why: str) -> None:
    with pytest.raises(PromptFileError, match=f"^a.md: {why}"):
        Snapshot.of([replace(GREETING, text=text)], {"others": ""})


def test_a_changed_text_under_the_same_id_is_rendered_as_it_is_now() -> None:
    context = {root: {} for root in ROOTS}
    before = Snapshot.of([GREETING])
    changed = replace(GREETING, text="Bye {{ who }}")
    after = Snapshot.of([changed], earlier=before)
    assert after.templates.render(changed, context, {"who": "Ada"}) == "Bye Ada"
    assert before.templates.render(GREETING, context, {"who": "Ada"}) == "Hello Ada"


def test_a_literal_text_is_never_a_template() -> None:
    literal = replace(GREETING, text="{{ nobody }} {% broken", is_literal=True)
    assert Snapshot.of([literal]).templates.render(literal, {}, {}) == "{{ nobody }} {% broken"


def test_a_text_that_no_template_of_the_snapshot_has_is_rendered_within_the_same_language() -> None:
    foreign = replace(GREETING, text="{{ who }}{{ ''.__class__ }}")
    with pytest.raises(RenderError, match="'__class__' is asked of something that is no object"):
        Snapshot.of().templates.render(foreign, {}, {"who": "Ada"})
