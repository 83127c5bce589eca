"""What ``check-config`` says about prompts and context windows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.teams.authentication import declared_id, digest_of
from tests.config_lines import bare

KEY = declared_id(digest_of("sk-team-secret"))
MODELS = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m, api_base: "http://localhost:9/v1", api_key: x}}
router_settings: {model_group_alias: {best: m}}
"""
CONFIG = f"""{MODELS}
stratiform:
  store: memory
  metrics: {{key: metrics-key}}
  teams: [{{name: red, keys: [sk-team-secret]}}]
  prompts:
    folders: [mine]
    use: [system, "commit*"]
    persona: reviewer
    override: SECRET
    context: {{mission: {{goal: SECRET}}, memory: {{}}}}
    on_failure: send_without
    allowed: {{personas: ["*"], context: [custom], flags: true}}
    models: {{best: {{tools: true}}, gone: {{use: []}}, "b*": {{}}, "x*": {{}}}}
    teams:
      {{red: {{strict: true, persona: ""}}, blue: {{profile: lost}}, default: {{}}, sk-SECRET: {{profile: sk-SECRET}}}}
    keys: {{{KEY}: {{override: ""}}, key-123456789abc: {{agents: false}}}}
  window:
    profile: chat
    models: {{m: "", gone: edit}}
    teams: {{red: mine, green: chat}}
    allowed: [edit]
    profiles:
      chat: {{caps: {{system: 10}}, template: own}}
      mine: {{capability: edit, window_tokens: 8000, may_shorten_system: true}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.md").write_text("---\nposition: system\n---\nBe SECRET.\n")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    """Checks a configuration; the report."""

    def run(text: str) -> Any:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        assert main(["check-config", str(path), "--json"]) == 0
        return orjson.loads(capsys.readouterr().out)

    return run


def test_json_shows_levels_and_profiles_without_texts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file), "--json"]) == 0
    shown = capsys.readouterr().out
    report = orjson.loads(shown)

    assert "SECRET" not in shown
    assert '"goal"' not in shown
    assert report["prompts"]["folders"] == [str(file.parent / "mine")]
    assert report["prompts"]["registered"] == ["commit", "system", "system_extra", "system_reminder", "own"]
    assert len(report["prompts"]["version"]) == 12
    assert report["prompts"]["all"] == {
        "use": ["system", "commit*"], "persona": "reviewer", "on_failure": "send_without", "override": True,
        "context": ["mission", "memory"], "allowed": {"personas": ["*"], "context": ["custom"], "flags": True},
    }  # fmt: skip
    assert report["prompts"]["models"] == {"best": {"tools": True}, "gone": {"use": []}, "b*": {}, "x*": {}}
    assert report["prompts"]["teams"]["red"] == {"persona": "", "strict": True}
    assert report["prompts"]["keys"] == {KEY: {"override": False}, "key-123456789abc": {"agents": False}}
    assert (report["window"]["profile"], report["window"]["allowed"]) == ("chat", ["edit"])
    assert report["window"]["models"] == {"m": "", "gone": "edit"}
    assert report["window"]["profiles"]["mine"] == {
        "capability": "edit", "window_tokens": 8000, "output_tokens": 4096, "margin_tokens": 256, "caps": {},
        "tail_messages": None, "may_shorten_system": True, "template": None, "over_budget": "error",
    }  # fmt: skip
    assert report["window"]["profiles"]["chat"]["caps"] == {"system": 10}


def test_lines_show_the_same_and_no_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file)]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()

    assert "SECRET" not in shown
    for line in (
        "prompts.registered: commit system system_extra system_reminder own",
        f"prompts.folders: {file.parent}/mine",
        "prompts.shipped: yes",
        "prompts.all: (use system commit*, persona reviewer, override yes, "
        "context mission memory, on_failure send_without, allowed (flags yes, personas *, context custom))",
        "prompts.models: (best (tools yes), gone (use none), b* nothing, x* nothing)",
        f"prompts.keys: ({KEY} (override no), key-123456789abc (agents no))",
        "window.profile: chat",
        "window.allowed: edit",
        "window.models: (m none, gone edit)",
    ):
        assert line in lines
    for part in ("red (persona none, strict yes)", "sk-... (profile sk-...)", "caps (system 10), tail_messages 60"):
        assert part in shown


def test_names_that_do_not_exist_are_warned_of(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file), "--json"]) == 0
    warnings = [
        line for line in bare(orjson.loads(capsys.readouterr().out)["warnings"]) if line.startswith("stratiform.")
    ]
    later = "of this file; one that is made while the proxy runs will have it"

    assert warnings == [
        "stratiform.prompts.models: `gone` is no model of model_list",
        "stratiform.prompts.models: `x*` is no model of model_list",
        f"stratiform.prompts.teams: `blue` is no team {later}",
        f"stratiform.prompts.teams: `sk-...` is no team {later}",
        f"stratiform.prompts.keys: `key-123456789abc` is no key {later}",
        "stratiform.window.models: `gone` is no model of model_list",
        f"stratiform.window.teams: `green` is no team {later}",
        "stratiform.prompts.persona: there is no prompt `persona:reviewer`",
        "stratiform.prompts.teams.blue.profile: `lost` is no profile of stratiform.window",
        "stratiform.prompts.teams.sk-....profile: `sk-...` is no profile of stratiform.window",
    ]


def test_a_line_with_a_star_may_serve_any_name(checked: Callable[[str], Any]) -> None:
    report = checked(
        'model_list: [{model_name: "a/*", litellm_params: {model: "openai/*"}}]\n'
        'stratiform: {prompts: {models: {a/b: {}, "a/*": {}, "b*": {}, b: {}}}}\n'
    )
    assert [line for line in bare(report["warnings"]) if "prompts" in line] == [
        "stratiform.prompts.models: `b` is no model of model_list"
    ]


def test_nothing_is_shown_where_nothing_is_configured(
    checked: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = checked(f"{MODELS}stratiform: {{prompts: {{folders: [gone]}}, window: {{profiles: {{chat: {{}}}}}}}}\n")
    assert (report["prompts"], report["window"]) == (None, None)
    assert main(["check-config", str(tmp_path / "config.yaml")]) == 0
    assert not any(line.startswith(("prompts", "window", "profile")) for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "FOLDER/mine: the folder cannot be read (No such file or directory)"),
        (
            {"mine/a.md": "no front matter SECRET"},
            "FOLDER/mine/a.md: there is no front matter: the first line must be ---",
        ),
        ({"mine/system.md": "---\nposition: system\n---\nx\n"}, "system"),
    ],
)
def test_prompts_that_cannot_be_read_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / "config.yaml"
    path.write_text(f"{MODELS}stratiform: {{prompts: {{folders: [mine], use: [own]}}}}\n")

    assert main(["check-config", str(path), "--json"]) == 1
    (error,) = orjson.loads(capsys.readouterr().out)["errors"]
    assert error.startswith("stratiform.prompts: ")
    assert message.replace("FOLDER", str(tmp_path)) in error
    assert "SECRET" not in error


@pytest.mark.parametrize(
    ("reminder", "use", "is_twice"),
    [
        ("true", "[system_reminder]", True),
        ("system_reminder", "['system*']", True),
        ("true", "[system]", False),
        ("false", "[system_reminder]", False),
        ("own.md", "[own]", False),
    ],
)
def test_a_reminder_that_would_be_sent_twice_is_warned_of(
    checked: Callable[[str], Any], tmp_path: Path, reminder: str, use: str, is_twice: bool
) -> None:
    (tmp_path / "own.md").write_text("Be brief.")
    report = checked(
        "model_list: [{model_name: m, litellm_params: {model: embedded/claude-sonnet-4-5}, "
        f"model_info: {{system_reminder: {reminder}}}}}]\nstratiform: {{prompts: {{models: {{m: {{use: {use}}}}}}}}}\n"
    )
    assert any("it would be sent twice" in line for line in report["warnings"]) is is_twice


def test_a_misspelt_template_of_a_profile_that_nobody_has_is_warned_of(checked: Callable[[str], Any]) -> None:
    report = checked(f"{MODELS}stratiform: {{window: {{profiles: {{chat: {{template: sytem}}}}}}}}\n")
    warning = "stratiform.window.profiles.chat.template: there is no prompt `sytem`; did you mean `system`?"
    assert warning in bare(report["warnings"])
    assert report["prompts"] is None


def test_prompts_that_no_request_gets_need_not_be_readable(checked: Callable[[str], Any], tmp_path: Path) -> None:
    profile, folder = "window: {profiles: {chat: {template: mine}}}", tmp_path / "nowhere"
    report = checked(f"{MODELS}stratiform: {{{profile}, prompts: {{folders: [{folder}]}}}}\n")
    assert report["prompts"] is None
