"""``stratiform prompts list`` and ``render``, as a user runs them."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.app import foundation
from proxy.app.settings import load
from proxy.cli import main
from tests.prompt_files import prompt, write_config, write_prompts

PROMPTS = {
    "base": prompt("You help.", position="system"),
    "first": prompt("Before all.", position="system_prefix"),
    "rules": prompt(
        "Rules of {{ target.service }} for {{ who }}.",
        position="constraints",
        conditions="[{field: target.service, operator: exists}]",
        variables="[{name: who, source: custom.who, default: everyone}]",
    ),
    "reviewer": prompt("You review.", id="persona:reviewer", position="system", priority=10),
    "tail": prompt("Be short.", position="user_suffix"),
    "lead": prompt("The user asks:", position="user_prefix"),
}
SECTION = """{folders: [ours], shipped: false, use: [first, base, rules], teams: {red: {use: [base, rules, tail, lead],
    context: {target: {service: payments}}, allowed: {personas: [reviewer]}}}, models: {gpt: {use: []}}}"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_prompts(tmp_path / "ours", PROMPTS)
    write_config(tmp_path, SECTION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Command:
    """Runs ``stratiform prompts`` and keeps what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def text(self, *words: str, status: int = 0) -> str:
        try:
            found = main(["prompts", *words])
        except SystemExit as ended:
            found = int(str(ended.code))
        out, self.err = self._capsys.readouterr()
        assert found == status
        return out

    def json(self, *words: str, status: int = 0) -> Any:
        return json.loads(self.text(*words, "--json", status=status))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_the_list_is_in_the_order_of_composition(run: Command) -> None:
    rows = run.json("list")["prompts"]
    assert [row["id"] for row in rows] == ["first", "persona:reviewer", "base", "rules", "lead", "tail"]
    rules = rows[3]
    assert (rules["position"], rules["priority"], rules["variables"]) == ("constraints", 0, ["who"])
    assert rules["conditions"] == ["target.service exists"]
    assert rules["origin"].endswith("ours/rules.md")


def test_a_file_whose_name_is_no_text_is_listed_for_programs_too(run: Command, folder: Path) -> None:
    (folder / "ours/reviewer.md").rename(folder / "ours/reviewer\udcff.md")
    assert len(run.json("list")["prompts"]) == 6


def test_the_list_says_which_prompts_some_request_gets(run: Command, folder: Path) -> None:
    assert all(row["used"] for row in run.json("list")["prompts"])
    write_config(folder, "{folders: [ours], shipped: false, use: [base]}")
    assert [row["id"] for row in run.json("list")["prompts"] if row["used"]] == ["base"]


def test_the_table_of_the_list_has_every_prompt(run: Command) -> None:
    printed = run.text("list")
    assert all(name in printed for name in ("persona:reviewer", "target.service exists", "ours/tail.md", "version "))


def test_shipped_prompts_are_listed_unless_they_are_switched_off(run: Command, folder: Path) -> None:
    write_config(folder, "{folders: [ours], use: [system]}")
    assert {"system", "system_extra", "commit", "base"} <= {row["id"] for row in run.json("list")["prompts"]}


def test_a_request_gets_what_the_rules_of_its_team_say(run: Command) -> None:
    red = run.json("render", "--team", "red")
    assert red["system"] == "You help.\n\nRules of payments for everyone."
    assert (red["before_user"], red["after_user"]) == ("The user asks:", "Be short.")
    assert [part["id"] for part in red["prompts"]] == ["base", "rules", "lead", "tail"]
    assert red["tokens"]["system"] > red["tokens"]["after_user"] > 0
    other = run.json("render", "--team", "blue")
    assert (other["system"], other["after_user"]) == ("Before all.\n\nYou help.", "")
    assert other["skipped"] == {"rules": {"reason": "condition", "why": "a condition does not hold"}}


def test_the_rules_of_a_model_hold_for_all_of_its_names(run: Command) -> None:
    assert run.json("render", "--model", "gpt")["prompts"] == []
    assert run.json("render", "--model", "assistant")["prompts"] == []
    assert run.json("render", "--model", "sonnet")["prompts"] != []


def test_the_team_is_that_of_the_key(run: Command, folder: Path) -> None:
    keys = foundation.declared(load(folder / "config.yaml")).keys
    (key_id,) = [key.id for key in keys if key.team == "red"]
    assert run.json("render", "--key", key_id)["variant"]["team"] == "red"


def test_a_persona_is_composed_where_clients_may_choose_it(run: Command) -> None:
    assert run.json("render", "--team", "red", "--persona", "reviewer")["system"].startswith("You review.\n\nYou help.")
    run.text("render", "--team", "blue", "--persona", "reviewer", status=1)
    assert "does not allow 'stratiform.prompts.persona'" in run.err


def test_a_given_context_is_added_to_that_of_the_configuration(run: Command, folder: Path) -> None:
    (folder / "context.json").write_text('{"custom": {"who": "Ann"}, "target": {"region": "eu"}}')
    assert run.json("render", "--team", "red", "--context", "context.json")["system"].endswith("payments for Ann.")
    assert run.err.splitlines() == [
        f"note: a request may not bring '{root}' by this configuration; it is taken as configured"
        for root in ("custom", "target")
    ]


def test_the_profile_of_a_window_composes_its_prompts_and_its_template(run: Command, folder: Path) -> None:
    write_prompts(folder / "ours", {"of_edit": prompt("Edit.", position="system", profile="edit")})
    config = write_config(folder, "{folders: [ours], shipped: false, use: [of_edit]}")
    window = (
        "  window: {models: {mini: edit}, allowed: [edit, own], profiles: {own: {capability: chat, template: first}}}"
    )
    config.write_text(f"{config.read_text()}{window}\n")
    assert run.json("render", "--model", "mini")["system"] == "Edit."
    assert run.json("render", "--model", "sonnet")["system"] == ""
    assert run.json("render", "--model", "sonnet", "--profile", "edit")["system"] == "Edit."
    assert run.json("render", "--model", "sonnet", "--profile", "own")["system"] == "Before all."
    run.text("render", "--model", "sonnet", "--profile", "chat", status=1)
    assert "may not choose the profile 'chat'" in run.err


def test_the_texts_and_what_became_of_each_prompt_are_printed(run: Command) -> None:
    printed = run.text("render", "--team", "red")
    assert printed.index("in front of the client's system text") < printed.index("Rules of payments for everyone.")
    assert printed.index("Rules of payments") < printed.index("behind the newest user message") < printed.index("Be s")
    assert "nothing is composed" in run.text("render", "--model", "gpt")


def test_a_prompt_that_is_left_out_by_mistake_is_an_error_with_its_reason(run: Command, folder: Path) -> None:
    write_prompts(folder / "ours", {"base": prompt("{{ custom.nothing }}", position="system")})
    report = run.json("render", status=1)
    assert report["system"] == "Before all."
    assert report["skipped"]["base"]["reason"] == "render_error"
    assert "'base' cannot be composed: line 4: 'nothing' is undefined" in run.err
    assert "'base'" in report["mistake"]


def test_a_request_that_would_be_refused_is_an_error(run: Command, folder: Path) -> None:
    write_prompts(folder / "ours", {"base": prompt("{{ custom.nothing }}", position="system")})
    write_config(folder, "{folders: [ours], shipped: false, use: [base], strict: true}")
    run.text("render", status=1)
    assert "the request would be refused" in run.err


def test_a_chosen_persona_without_a_prompt_is_a_mistake(run: Command, folder: Path) -> None:
    write_config(folder, "{folders: [ours], shipped: false, use: [base], persona: nobody}")
    assert run.json("render", status=1)["skipped"]["persona:nobody"]["reason"] == "missing"


def test_a_folder_alone_composes_all_of_its_prompts(run: Command, folder: Path) -> None:
    found = run.json("render", "--folder", "ours", "--persona", "reviewer")
    assert [part["id"] for part in found["prompts"]] == ["first", "persona:reviewer", "base", "lead", "tail"]


def test_folders_take_the_place_of_those_of_the_configuration(run: Command, folder: Path) -> None:
    write_prompts(folder / "other", {"base": prompt("Other.", position="system")})
    found = run.json("render", "--config", "config.yaml", "--folder", "other", "--team", "red")
    assert found["system"] == "Other."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "must be an object that has an object for each root"),
        ('{"custom": 1}', "must be an object that has an object for each root"),
        ('{"time": {}}', "'time' is no root of the context"),
        ("{", "is no JSON"),
    ],
)
def test_a_context_that_is_none_is_refused(run: Command, folder: Path, content: str, message: str) -> None:
    (folder / "context.json").write_text(content)
    run.text("render", "--context", "context.json", status=1)
    assert message in run.err


def test_what_is_not_there_is_told_in_one_line(run: Command, folder: Path) -> None:
    run.text("render", "--context", "nowhere.json", status=1)
    assert "nowhere.json: cannot be read" in run.err
    run.text("list", "--folder", "nowhere", status=1)
    assert run.err == "error: nowhere: is no folder\n"
    (folder / "config.yaml").unlink()
    run.text("list", status=1)
    assert "use --config FILE or --folder FOLDER" in run.err


def test_a_broken_file_is_told_with_its_field(run: Command, folder: Path) -> None:
    write_prompts(folder / "ours", {"base": prompt("x", position="nowhere")})
    run.text("list", status=1)
    assert "base.md: 'front matter.position' must be one of" in run.err
