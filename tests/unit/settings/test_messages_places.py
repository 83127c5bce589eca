"""The line at which a message points, in the file in which it stands."""

from pathlib import Path

import pytest

from proxy.settings import places

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
