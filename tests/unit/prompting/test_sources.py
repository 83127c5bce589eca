"""Where prompts come from, and in which order they are registered."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pluggy
import pytest

from proxy.core.prompts.prompt import ROOTS, Condition, Position, Prompt, RenderError, Variable
from proxy.hookspecs import PROJECT, Hooks, hookimpl
from proxy.prompting.files import MOST_BYTES, PromptFileError
from proxy.prompting.sources import Fragment, Snapshot, Sources, registered_fragments, texts_of
from tests.examples import for_every


class Plugin:
    """A plugin with prompts."""

    def __init__(self, *prompts: Any) -> None:
        self.prompts = prompts

    @hookimpl
    def register_prompts(self) -> list[Prompt]:
        return list(self.prompts)


def manager_of(*prompts: Any, plugins: Iterable[object] = ()) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    for plugin in (Plugin(*prompts), *plugins):
        manager.register(plugin)
    return manager


def folder_of(place: Path, **texts: str) -> Path:
    place.mkdir()
    for name, text in texts.items():
        (place / f"{name}.md").write_text(f"---\nposition: system\n---\n{text}\n")
    return place


def test_prompts_are_registered_by_folder_by_path_and_then_by_plugin(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "z", d="1", c="2"), folder_of(tmp_path / "a", b="3")
    sources = Sources.of([first, second], is_shipped=False, manager=manager_of(Prompt("a", Position.USER, "4")))
    snapshot = sources.snapshot()
    assert [prompt.id for prompt in snapshot.prompts] == ["c", "d", "b", "a"]
    assert snapshot.prompts[-1].origin == "a plugin"


def test_the_prompts_that_come_along_are_registered_first_or_not_at_all(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", mine="1")
    ids = [prompt.id for prompt in Sources.of([folder], manager=manager_of()).snapshot().prompts]
    assert "system_reminder" in ids
    assert ids[-1] == "mine"
    assert [prompt.id for prompt in Sources((folder,)).snapshot().prompts] == ["mine"]


def test_an_id_of_a_prompt_that_comes_along_is_refused_with_both_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", system_reminder="1")
    with pytest.raises(PromptFileError, match=r"mine/system_reminder\.md: .*prompts/system_reminder\.md; .*shipped"):
        Sources.of([folder], manager=manager_of()).snapshot()


def test_a_file_of_the_operators_may_not_stand_in_an_unknown_position(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine")
    (folder / "a.md").write_text("---\nposition: sytem\n---\ntext\n")
    with pytest.raises(PromptFileError, match=r"a\.md: 'front matter.position' must be one of"):
        Sources.of([folder], manager=manager_of()).snapshot()


@for_every(
    [
        ("text", "a plugin registers something that is no prompt"),
        (Prompt("a b", Position.USER, "text"), "a plugin: id: must be"),
        (Prompt("a", Position.USER, "text", origin="my_plugin", variables=(Variable("range x"),)), "my_plugin: variab"),
        (Prompt("a", Position.USER, "text", variables=(Variable("custom"),)), "'custom' is a root"),
        (Prompt("a", Position.USER, "text", variables=(Variable("a"), Variable("a"))), "'a' stands twice"),
        (Prompt("a", Position.USER, "text", conditions=(Condition("time.now", "exists"),)), r"conditions\[0\]: the fi"),
        (Prompt("a", Position.USER, "{% include 'b' %}"), "a plugin: line 1: 'include' is not available"),
        (Prompt("a", Position.USER, "\ud800"), "a plugin: something is no text"),
    ]
)
def test_a_plugins_prompt_is_held_to_the_rules_of_files(prompt: object, why: str) -> None:
    with pytest.raises(PromptFileError, match=why):
        Sources.of([], is_shipped=False, manager=manager_of(prompt)).snapshot()


def test_files_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    sources = Sources((folder_of(tmp_path / "mine", a="1", b="2"),))
    states = sources.states()
    known = sources.read(states, {})
    for state in states:
        state.path.unlink()
    assert sources.read(states, known) == known
    with pytest.raises(PromptFileError, match=r"a\.md: the file cannot be read"):
        sources.read(states, {})


def test_a_folder_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", a="1")
    sources = Sources((folder, folder))
    assert len(sources.states()) == 1
    assert [prompt.id for prompt in sources.snapshot().prompts] == ["a"]


class FragmentPlugin:
    """A plugin with fragments."""

    def __init__(self, **fragments: Fragment) -> None:
        self.fragments = fragments

    @hookimpl
    def register_fragments(self) -> dict[str, Callable[[], str]]:
        return self.fragments


def install(folder: Path, module: str, code: str, entry_points: str) -> None:
    """A package as pip leaves it in a folder."""
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[stratiform.fragments]\n{entry_points}\n")


def test_fragments_of_plugins_and_of_entry_points_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "codes_of_errors", "def text():\n    return 'E1, E2'\n", "error-codes = codes_of_errors:text")
    monkeypatch.syspath_prepend(tmp_path)
    found = registered_fragments(
        manager_of(plugins=[FragmentPlugin(rules=lambda: "Be kind."), FragmentPlugin(tools=lambda: "")])
    )
    assert texts_of(found) == {"rules": "Be kind.", "tools": "", "error-codes": "E1, E2"}


@pytest.mark.parametrize("target", ["codes_of_none:text", "codes_of_none", "codes_that_break:text"])
def test_an_entry_point_that_cannot_be_loaded_is_told_by_its_name(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "codes_that_break", "raise RuntimeError('secret')\n", f"error-codes = {target}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PromptFileError, match=r"'error-codes' cannot be loaded \(\w+\)$"):
        registered_fragments(manager_of())


def test_a_module_is_no_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "codes_alone", "", "error-codes = codes_alone")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PromptFileError, match="'error-codes' is nothing that can be called"):
        registered_fragments(manager_of())


def test_a_fragment_that_stands_twice_is_refused() -> None:
    with pytest.raises(PromptFileError, match="'rules' is registered twice"):
        registered_fragments(manager_of(plugins=[FragmentPlugin(rules=str), FragmentPlugin(rules=str)]))


@pytest.mark.parametrize("name", ["", "a b", "{{ x }}", "a" * 129])
def test_a_fragment_without_a_name_that_templates_can_write_is_refused(name: str) -> None:
    with pytest.raises(PromptFileError, match="a name must be"):
        registered_fragments(manager_of(plugins=[FragmentPlugin(**{name: str})]))


def fails() -> str:
    raise ValueError("the secret text")


@pytest.mark.parametrize(
    ("fragment", "why"),
    [
        (fails, r"'rules' fails \(ValueError\)"),
        (lambda: None, "'rules' gives no text"),
        (lambda: b"text", "'rules' gives no text"),
        (lambda needed: needed, r"'rules' fails \(TypeError\)"),
        (lambda: "x" * (MOST_BYTES + 1), "'rules' gives more than"),
    ],
)
def test_a_fragment_that_gives_no_text_is_told_by_its_name(fragment: Fragment, why: str) -> None:
    with pytest.raises(PromptFileError, match=why) as raised:
        texts_of({"rules": fragment})
    assert "secret" not in str(raised.value)


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
    assert Snapshot.of([literal]).prompts == (literal,)


def test_a_text_that_no_template_of_the_snapshot_has_is_rendered_within_the_same_language() -> None:
    foreign = replace(GREETING, text="{{ who }}{{ ''.__class__ }}")
    with pytest.raises(RenderError, match="'__class__' is asked of something that is no object"):
        Snapshot.of().templates.render(foreign, {}, {"who": "Ada"})
