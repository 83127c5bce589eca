"""Prompts of files: what front matter may say, and what is said about a mistake in it."""

import os
from pathlib import Path

import pytest

from proxy.prompts import Condition, Position, Prompt, Variable
from proxy.services.prompting.sources import (
    MOST_BYTES,
    SHIPPED,
    PromptFileError,
    Sources,
    markdown_files,
    read_file,
    read_prompt,
)
from tests.examples import sampled

PATH = Path("prompts/greeting.md")
WHOLE = """---
id: persona:ada
version: 3
description: How Ada speaks
position: system_suffix
priority: -5
profile: chat
conditions:
  - field: mission.kind
    operator: eq
    value: review
  - {field: target.name, operator: exists}
variables:
  - name: goal
    source: mission.goal
    required: true
    description: What is to be reached
  - {name: limits, default: [1, 2.5, null, {deep: true}]}
---

  Speak as Ada.

"""


def file_of(front: str, text: str = "A text") -> str:
    return f"---\n{front}\n---\n{text}\n"


def test_every_field_of_the_front_matter_is_read() -> None:
    prompt = read_prompt(PATH, WHOLE)
    assert (prompt.id, prompt.position, prompt.priority) == ("persona:ada", Position.SYSTEM_SUFFIX, -5)
    assert (prompt.profile, prompt.description, prompt.is_literal) == ("chat", "How Ada speaks", False)
    assert prompt.conditions == (Condition("mission.kind", "eq", "review"), Condition("target.name", "exists"))
    assert prompt.variables == (
        Variable("goal", "mission.goal", True, None, "What is to be reached"),
        Variable("limits", default=[1, 2.5, None, {"deep": True}]),
    )
    assert prompt.text == "  Speak as Ada."
    assert prompt.origin == str(PATH)


def test_a_prompt_is_called_after_its_file_and_has_priority_0_where_nothing_else_is_said() -> None:
    prompt = read_prompt(PATH, file_of("position: user"))
    assert (prompt.id, prompt.priority, prompt.conditions, prompt.variables) == ("greeting", 0, (), ())


def test_a_text_keeps_its_lines_and_loses_blank_lines_around_it_and_carriage_returns() -> None:
    prompt = read_prompt(PATH, "---\r\nposition: user\r\n---\r\n\r\none\r\n---\r\ntwo\r\n\r\n")
    assert prompt.text == "one\n---\ntwo"


@pytest.mark.parametrize("position", ["header", "acknowledgement", "legend", "own_call", "panels"])
def test_a_fixed_text_is_no_prompt(position: str) -> None:
    assert read_prompt(PATH, file_of(f"position: {position}")) is None


def test_a_position_that_no_prompt_has_is_a_fixed_text_where_it_comes_along_and_a_mistake_elsewhere() -> None:
    assert read_prompt(PATH, file_of("position: nowhere"), is_shipped=True) is None
    with pytest.raises(PromptFileError, match="'front matter.position' must be one of system_prefix, "):
        read_prompt(PATH, file_of("position: nowhere"))


MISTAKES = {
    "no front matter": ("A text", "there is no front matter"),
    "no end": ("---\nposition: user\nA text", "a line --- is missing"),
    "no text": ("---\nposition: user\n---\n \n", "there is no text"),
    "no position": (file_of("id: a"), "'front matter' needs a field 'position'"),
    "a position of another type": (file_of("position: [user]"), "position' must be a string, not an array"),
    "an unknown field": (file_of("position: user\nprio: 3"), "'front matter' has no field 'prio'"),
    "a field that is no string": (file_of("position: user\n3: 3"), "'front matter' cannot be read"),
    "an id with a blank": (file_of("position: user\nid: a b"), "id: must be"),
    "an empty id": (file_of('position: user\nid: ""'), "id: must be"),
    "an id of another type": (file_of("position: user\nid: 3"), "id' must be a string"),
    "a long id": (file_of(f"position: user\nid: {'a' * 129}"), "id: must be"),
    "a version that is no number": (
        file_of("position: user\nversion: 1.0"),
        "version' must be a whole number, not a number",
    ),
    "a priority that is no number": (
        file_of("position: user\npriority: yes"),
        "priority' must be a whole number, not a boolean",
    ),
    "a priority without end": (
        file_of("position: user\npriority: 99999999"),
        "priority' must be a whole number of at most 1000000",
    ),
    "a profile of another type": (file_of("position: user\nprofile: 3"), "profile' must be a string"),
    "conditions as a mapping": (
        file_of("position: user\nconditions: {a: 1}"),
        "conditions' must be an array, not an object",
    ),
    "a condition as a string": (
        file_of("position: user\nconditions: [a]"),
        r"conditions\[0\]' must be an object, not a string",
    ),
    "a condition without a field": (
        file_of("position: user\nconditions: [{operator: eq}]"),
        r"conditions\[0\]' needs a field 'field'",
    ),
    "a condition without an operator": (
        file_of("position: user\nconditions: [{field: mission.a}]"),
        r"conditions\[0\]' needs a field 'operator'",
    ),
    "a condition with a further field": (
        file_of("position: user\nconditions: [{field: mission.a, operator: exists, values: 1}]"),
        r"conditions\[0\]' has no field 'values'",
    ),
    "a date in a condition": (
        file_of("position: user\nconditions: [{field: mission.a, operator: eq, value: 2026-01-01}]"),
        r"conditions\[0\]: value: must be a value that JSON has",
    ),
    "a number that is none": (
        file_of("position: user\nvariables: [{name: a, default: .nan}]"),
        r"variables\[0\]: default: must be a value that JSON has",
    ),
    "a number without end": (
        file_of(f"position: user\nvariables: [{{name: a, default: {'9' * 40}}}]"),
        r"variables\[0\]: default: must be a value that JSON has",
    ),
    "a variable that no template can write": (file_of("position: user\nvariables: [{name: a-b}]"), "name: must be"),
    "a variable called as a root": (file_of("position: user\nvariables: [{name: mission}]"), "is a root"),
    "a variable twice": (file_of("position: user\nvariables: [{name: a}, {name: a}]"), "'a' stands twice"),
    "a source without a root": (file_of("position: user\nvariables: [{name: a, source: b.c}]"), "source: must begin"),
    "required as a text": (
        file_of('position: user\nvariables: [{name: a, required: "yes"}]'),
        "required' must be a boolean, not a string",
    ),
    "too many conditions": (
        file_of("position: user\nconditions: [" + "{field: mission.a, operator: exists}, " * 101 + "]"),
        "conditions' may have at most 100 elements",
    ),
    "front matter that is a list": (file_of("- a"), "'front matter' must be an object, not an array"),
    "no YAML": (file_of("position: [user"), "greeting.md:3:1: is not valid YAML"),
    "a field twice": (file_of("position: user\nposition: system"), "position: stands 2 times"),
    "a Python object": (file_of("position: !!python/name:os.system"), "greeting.md:2:11: is not valid YAML"),
    "values that multiply": (
        file_of("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 9))),
        "stands for more than 100000 values",
    ),
    "front matter nested without end": (file_of(f"position: {'[' * 500}"), "is nested too deeply"),
    "front matter without end": (file_of("position: user\n" + "# remark\n" * 4_000), "the front matter is longer than"),
    "a number of too many digits": (file_of(f"position: user\npriority: {'9' * 5000}"), "more than 100 characters"),
}


@pytest.mark.parametrize("mistake", sampled(MISTAKES, 2))
def test_a_mistake_is_told_with_the_file_and_the_field(mistake: str) -> None:
    text, message = MISTAKES[mistake]
    with pytest.raises(PromptFileError, match=message) as raised:
        read_prompt(PATH, text)
    assert str(PATH) in str(raised.value)


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.md", tmp_path / "binary.md"
    large.write_text(file_of("position: user", "x" * MOST_BYTES))
    binary.write_bytes(b"---\nposition: user\n---\n\xff\xfe")
    with pytest.raises(PromptFileError, match="large.md: the file is larger than"):
        read_file(large)
    with pytest.raises(PromptFileError, match="binary.md: the file is not UTF-8"):
        read_file(binary)
    with pytest.raises(PromptFileError, match=r"none.md: the file cannot be read \(No such file or directory\)"):
        read_file(tmp_path / "none.md")


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    file = tmp_path / "marked.md"
    file.write_bytes(b"\xef\xbb\xbf" + file_of("position: user").encode())
    prompt = read_file(file)
    assert prompt.text == "A text"


def prompts_in(folder: Path) -> list[Prompt]:
    sources = Sources((folder,))
    return [prompt for prompt in sources.read(sources.states(), {}).values() if prompt is not None]


def test_the_prompts_of_a_folder_stand_by_their_paths(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", "c/a.md", "B.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(file_of("position: user"))
    assert [prompt.origin for prompt in prompts_in(tmp_path)] == [
        str(tmp_path / name) for name in ("B.md", "a.md", "b.md", "c/a.md")
    ]


def test_what_is_no_prompt_is_passed_over(tmp_path: Path) -> None:
    for name in ("README.md", "notes.txt", ".hidden.md", ".git/a.md", "c/readme.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("words")
    assert prompts_in(tmp_path) == []


def test_a_link_to_a_file_is_read_and_a_link_to_a_folder_is_not(tmp_path: Path) -> None:
    mounted, data = tmp_path / "mounted", tmp_path / "data"
    mounted.mkdir()
    data.mkdir()
    (data / "a.md").write_text(file_of("position: user"))
    (mounted / "a.md").symlink_to(data / "a.md")
    (mounted / "again").symlink_to(mounted)
    assert [state.path for state in markdown_files(mounted)] == [mounted / "a.md"]
    assert [prompt.id for prompt in prompts_in(mounted)] == ["a"]


def test_the_state_of_a_file_changes_with_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("one")
    before = markdown_files(tmp_path)
    file.write_text("three")
    other = tmp_path / "b.txt"
    other.write_text("three")
    longer = markdown_files(tmp_path)
    os.replace(other, file)
    assert len({*before, *longer, *markdown_files(tmp_path)}) == 3


def test_a_folder_that_is_missing_or_too_deep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="none: the folder cannot be read"):
        prompts_in(tmp_path / "none")
    (tmp_path / "a/b/c/d/e/f/g/h").mkdir(parents=True)
    (tmp_path / "a/b/c/d/e/f/g/h/link").symlink_to(tmp_path)
    assert prompts_in(tmp_path) == []
    (tmp_path / "a/b/c/d/e/f/g/h/i").mkdir()
    with pytest.raises(PromptFileError, match="nested deeper than 8 levels"):
        prompts_in(tmp_path)


def test_the_prompts_that_come_along_are_read() -> None:
    assert "system_reminder" in {prompt.id for prompt in Sources((SHIPPED,)).snapshot().prompts}
