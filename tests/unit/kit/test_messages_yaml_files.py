"""Files that would take all time or memory are refused, with their place; ordinary anchors go on working."""

from pathlib import Path

import pytest

from proxy.app.settings import ConfigError, load
from proxy.kit.messages import MOST_BYTES, MOST_NODES, Environment, read_yaml
from tests.examples import sampled

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x0: 1}\n" + "".join(
    f"{after}: &{after} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "a list in itself": ("x: 1\na: &a [*a]\n", ":2:4: contains itself"),
    "a mapping in itself": ("stratiform: &a\n  x: {y: *a}\n", ":1:13: contains itself"),
    "a mapping merged into itself": ("a: &a\n  <<: *a\n", ":1:4: contains itself"),
    "each in the other": ("a: &a [&b [*a], *b]\n", ":1:4: contains itself"),
    "a mapping that is its own key": ("? &a {? *a : 1}\n: 1\n", "contains itself"),
    "billion laughs": (LAUGHS, f"stands for more than {MOST_NODES} values"),
    "billion laughs by merging": (MERGES, f"stands for more than {MOST_NODES} values"),
    "flow lists in lists": ("a: " + "[" * 5_000, "nested too deeply"),
    "lists in lists": ("a: " + "[" * 60 + "]" * 60, "nested more than 40 levels deep"),
    "block lists in lists": ("a:\n" + "".join(" " * n + "-\n" for n in range(1, 600)), "nested"),
    "mappings in mappings": ("a: " + "{a: " * 60 + "1" + "}" * 60, "nested more than 40 levels deep"),
    "a long number": ("a: 1\nb: " + "9" * 200_000, ":2:4: is a number or a date of more than 100 characters"),
    "a number that no float can hold": ("a: 1" + ":59" * 200_000 + ".5", "is a number or a date of more"),
    "a long number to the base 60": ("a: 1" + ":59" * 200_000, "is a number or a date of more"),
    "a month that there is not": ("a: 2026-13-01", "a date or a number that there is not"),
    "a tag of a number on a text": ("a: !!int " + "x" * 20, "a date or a number that there is not"),
    "a tag of a truth on a text": ("a: !!bool x", "a date or a number that there is not"),
    "a tag of a number on nothing": ("a: !!int ''", "a date or a number that there is not"),
    "a tag of a date on a text": ("a: !!timestamp x", "a date or a number that there is not"),
    "many keys": ("".join(f"k{n}: 1\n" for n in range(5_000)), ":1:1: has more than 2000 keys"),
    "a long key": ("a: 1\n" + "k" * 300 + ": 1\n", ":2:1: is a key of more than 256 characters"),
    "many values": ("a: [" + "1," * 150_000 + "]", f":1:4: stands for more than {MOST_NODES} values"),
    "a large file": ("# " + "x" * MOST_BYTES, f"is larger than {MOST_BYTES} bytes"),
    "a control character": ("a: 1\nb: x\7\n", ":2: holds a character that YAML does not have (U+0007)"),
    "half of a character": ('a: 1\nb: "\\ud83d\\ude00"\n', ":2:4: holds an escape for half of a character"),
    "half of a character in a key": ('"\\ud83d": 1\n', ":1:1: holds an escape for half of a character"),
    "two documents": ("a: 1\n---\nb: 1\n", "is not valid YAML"),
    "an object of Python": ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
}  # fmt: skip


def write(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


LONG = "many values"


@pytest.mark.parametrize(
    "name", sampled([*sorted(REFUSED.keys() - {LONG}), pytest.param(LONG, marks=pytest.mark.slow)], 3)
)
def test_what_would_take_all_time_or_memory_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    text, complaint = REFUSED[name]
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path, environment=Environment({}))
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}")
    assert complaint in problem


def test_anchors_aliases_and_merge_keys_are_used_as_yaml_defines_them(tmp_path: Path) -> None:
    text = """
defaults: &defaults {model: openai/gpt, timeout: 5}
model_list:
  - model_name: a
    litellm_params: &params {<<: *defaults, timeout: 7}
  - {model_name: b, litellm_params: *params}
  - {model_name: c, litellm_params: {<<: [{max_retries: 9}, *defaults]}}
stratiform: {}
"""
    settings = load(write(tmp_path, text), environment=Environment({}))
    timeouts = [entry.litellm_params.timeout for entry in settings.models]
    assert timeouts == [7, 7, 5]
    assert {entry.litellm_params.model for entry in settings.models} == {"openai/gpt"}


def test_one_anchor_may_stand_in_many_places(tmp_path: Path) -> None:
    text = "a: &a {x: 1}\nb: [" + ", ".join(["*a"] * 5_000) + "]\n"
    assert read_yaml(write(tmp_path, text)) == {"a": {"x": 1}, "b": [{"x": 1}] * 5_000}


def test_an_empty_file_is_no_value(tmp_path: Path) -> None:
    assert read_yaml(write(tmp_path, "# nothing\n")) is None


def test_a_file_that_never_ends_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="is larger than"):
        read_yaml(Path("/dev/zero"))


def test_of_very_many_problems_the_first_hundred_are_told(tmp_path: Path) -> None:
    keys = ", ".join(f"moed{number}: 1" for number in range(1_500))
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, f"stratiform: {{{keys}}}"), environment=Environment({}))
    assert caught.value.problems[100] == "and 1400 more problems of this kind"
    assert len(caught.value.problems) == 102  # and the list of models is empty
