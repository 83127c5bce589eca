"""References to the environment, and the line at which a message points."""

from pathlib import Path

import pytest

from proxy.app.settings import places
from proxy.kit.messages import Environment, join, own_folder, shown


def test_references_are_replaced_wherever_a_string_stands() -> None:
    environment = Environment({"KEY": "k", "HOST": "h"})
    value = {"a": ["os.environ/KEY", {"b": "Bearer os.environ/KEY"}], "u": "http://os.environ/HOST/v1", "n": 3}
    found: list[str] = []
    assert environment.expand(value, "x", found) == {"a": ["k", {"b": "Bearer k"}], "u": "http://h/v1", "n": 3}
    assert found == []


def test_what_is_not_set_is_named_with_its_path() -> None:
    found: list[str] = []
    Environment({}).expand({"a": [{"b": "os.environ/MISSING"}]}, "x", found)
    assert found == ["x.a[0].b: the environment variable MISSING is not set"]


@pytest.mark.parametrize("name", ["WITH-HYPHEN", "with.dot", "lower_1"])
def test_a_whole_string_may_name_any_variable(name: str) -> None:
    assert Environment({name: "v"}).expand(f"os.environ/{name}", "x", []) == "v"


def test_an_empty_variable_is_set() -> None:
    found: list[str] = []
    assert Environment({"EMPTY": ""}).expand("os.environ/EMPTY", "x", found) == ""
    assert found == []


def test_a_section_of_variables_wins_and_may_refer_to_the_environment() -> None:
    environment = Environment({"A": "1", "B": "2"}).with_section({"A": "x", "C": "os.environ/B", "D": "os.environ/NO"})
    assert [environment.get(name) for name in "ABCD"] == ["x", "2", "2", None]


def test_join() -> None:
    assert join(join(join("", "a"), 0), "b") == "a[0].b"


def test_a_key_in_the_place_of_a_name_is_not_shown() -> None:
    assert join("teams", "sk-secret") == "teams.sk-..."
    assert [shown("sk-secret"), shown("ask-me"), shown("sky")] == ["sk-...", "ask-me", "sky"]


def test_variables_are_listed_by_how_they_begin() -> None:
    assert Environment({"A_B": "1", "A": "2", "B_A": "3"}).names("A_") == {"A_B"}


def test_no_two_configurations_share_a_folder_and_one_has_the_same_by_every_path(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    base = tmp_path / "state"
    one = own_folder(base, tmp_path / "real" / "config.yaml")
    assert one.name.startswith("real-config-")
    assert own_folder(base, tmp_path / "link" / "config.yaml") == one
    assert own_folder(base, tmp_path / "real" / "deep" / ".." / "config.yaml") == one
    others = [
        "real/config.yml",
        "real/a.yaml",
        "real/config-.yaml",
        "config.yaml",
        f"real/{'x' * 200}.yaml",
        "real/ü.yaml",
    ]
    folders = {one, *(own_folder(base, tmp_path / name) for name in others)}
    assert len(folders) == 1 + len(others)
    assert all(folder.parent == base and len(folder.name) < 80 for folder in folders)


def test_a_configuration_that_is_exchanged_behind_a_link_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "config.yaml").touch()
    path = tmp_path / "config.yaml"
    path.symlink_to(tmp_path / "..1" / "config.yaml")
    before = own_folder(tmp_path, path)
    path.unlink()
    path.touch()
    assert own_folder(tmp_path, path) == before


TEXT = """\
include: [more.yaml]
model_list:
  - model_name: a
    litellm_params: {model: x/y}
  - model_name: b
router_settings:
  model_group_alias:
    gpt-4.1: a
stratiform:
  limits:
    max_body_mib: 1
"""
MORE = """\
# models of another team
model_list:
  - model_name: c
    litellm_params:
      model: x/y
router_settings:
  num_retries: 3
"""


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("model_list[0].litellm_params.model", " (line 4)"),
        ("model_list[1]", " (line 5)"),
        ("model_list[1].litellm_params", " (line 5)"),
        ("model_list[2].litellm_params.model", " (line 5 of FOLDER/more.yaml)"),
        ("router_settings.num_retries", " (line 7 of FOLDER/more.yaml)"),
        ("router_settings.model_group_alias.gpt-4.1", " (line 6 of FOLDER/more.yaml)"),
        ("stratiform.limits.max_body_mib", " (line 11)"),
        ("stratiform.limits", " (line 10)"),
        ("stratiform.mod", " (line 9)"),
        ("general_settings.master_key", ""),
        ("--port", ""),
    ],
)
def test_a_message_points_at_its_value_or_at_what_should_hold_it(tmp_path: Path, path: str, end: str) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    (tmp_path / "more.yaml").write_text(MORE)
    message = f"{path}: is wrong: see x.y: z"
    assert places(tmp_path / "config.yaml").located(message) == message + end.replace("FOLDER", str(tmp_path))


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "a: 1\na: 2"])
def test_a_file_that_cannot_be_read_has_no_places(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    for path in ("config.yaml", "gone.yaml"):
        assert places(tmp_path / path).located("b: is wrong") == "b: is wrong"
