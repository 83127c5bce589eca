"""``stratiform prompts lint``: each kind of finding, and no finding where nothing is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from tests.prompt_files import prompt, write_config, write_prompts

Lint = Callable[..., Any]
ALL = "{folders: [ours], shipped: false, use: ['*'], allowed: {context: [custom]}}"


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lint:
    """Lints these prompts with this section of the configuration; the report, with its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(prompts: dict[str, str], section: str = ALL, *words: str) -> Any:
        write_prompts(tmp_path / "ours", prompts)
        write_config(tmp_path, section)
        status = main(["prompts", "lint", "--json", *words])
        report = json.loads(capsys.readouterr().out)
        assert status == (0 if report["ok"] else 1)
        return report

    return run


def found(report: Any) -> list[tuple[str, str, str]]:
    return [(one["severity"], one["code"], one["prompt"]) for one in report["findings"]]


def messages(report: Any) -> str:
    return "\n".join(one["message"] for one in report["findings"])


def test_sound_prompts_are_ok(lint: Lint) -> None:
    report = lint({"a": prompt("Hello {{ name }}.", position="system", variables="[{name: name, default: you}]")})
    assert report == {"ok": True, "errors": 0, "warnings": 0, "findings": []}


def test_the_shipped_prompts_have_no_findings(lint: Lint) -> None:
    assert lint({}, "{use: [system, system_extra, commit, system_reminder]}")["findings"] == []


def test_every_mistake_is_found_at_once_and_names_its_file(lint: Lint) -> None:
    report = lint(
        {
            "a": prompt("{{ nobody.knows }}", position="system"),
            "b": prompt("{% if %}", position="system"),
            "c": prompt("x", position="nowhere"),
            "d": prompt('{{ fragment("no-such") }}', position="user"),
            "e": "no front matter",
        }
    )
    assert not report["ok"]
    assert {(code, name) for severity, code, name in found(report) if severity == "error"} == {
        ("undefined-variable", "a"), ("bad-template", "b"), ("unreadable", ""), ("unknown-fragment", "d"),
    }  # fmt: skip
    assert report["errors"] == 5
    assert "'nobody' is neither a root of the context nor a variable" in messages(report)
    assert all("ours/" in one["place"] or "ours/" in one["message"] for one in report["findings"])


def test_two_files_with_one_id_are_an_error(lint: Lint) -> None:
    report = lint({"a": prompt("x", id="same", position="system"), "b": prompt("y", id="same", position="system")})
    assert found(report) == [("error", "duplicate-id", "same")]
    assert "ours/a.md has the same id" in messages(report)


def test_conditions_that_contradict_each_other_are_an_error(lint: Lint) -> None:
    conditions = "[{field: custom.a, operator: gt, value: 5}, {field: custom.a, operator: lt, value: 3}]"
    report = lint({"a": prompt("x", position="user", conditions=conditions)})
    assert found(report) == [("error", "unreachable", "a")]
    assert "`custom.a gt 5` and `custom.a lt 3` never hold together" in messages(report)


def test_a_condition_that_no_request_can_meet_is_told(lint: Lint) -> None:
    conditions = "[{field: target.service, operator: eq, value: ledger}]"
    prompts = {"a": prompt("x", position="system", conditions=conditions)}
    report = lint(prompts)
    assert found(report) == [("warning", "unreachable", "a")]
    assert "`target.service eq 'ledger'` does not hold, and no request may change that" in messages(report)
    for section in ("context: {target: {service: ledger}}", "teams: {red: {context: {target: {service: ledger}}}}",
                    "allowed: {context: [target]}"):  # fmt: skip
        assert lint(prompts, f"{{folders: [ours], shipped: false, use: ['*'], {section}}}")["findings"] == []


def test_a_condition_that_cannot_be_evaluated_is_an_error(lint: Lint) -> None:
    conditions = "[{field: target.size, operator: gt, value: 5}]"
    section = "{folders: [ours], shipped: false, use: ['*'], context: {target: {size: large}}}"
    report = lint({"a": prompt("x", position="system", conditions=conditions)}, section)
    assert ("error", "bad-condition", "a") in found(report)


@pytest.mark.parametrize(
    ("front", "text"),
    [
        ({}, "It is {{ custom.now }}."),
        ({}, "Request {{ custom.request_id }}."),
        ({"variables": "[{name: when, source: custom.timestamp, default: ''}]"}, "It is {{ when }}."),
        ({"conditions": "[{field: custom.turn, operator: gt, value: 3}]"}, "Hurry."),
    ],
)
def test_a_clock_or_counter_in_the_system_text_is_an_error(lint: Lint, front: dict[str, str], text: str) -> None:
    report = lint({"a": prompt(text, position="context", **front)})
    assert ("error", "cache-breaker", "a") in found(report)
    assert "the cached prefix is lost from here on; use a user position" in messages(report)
    tail = lint({"a": prompt(text, position="user_suffix", **front)})
    assert ("error", "cache-breaker", "a") not in found(tail), "nothing is cached behind the newest message"


def test_a_date_in_the_system_text_is_a_warning(lint: Lint) -> None:
    report = lint({"a": prompt("Line one.\nToday is 2026-11-23.", position="system")})
    assert found(report) == [("warning", "cache-breaker", "a")]
    assert "line 5 holds a date ('2026-11-23')" in messages(report)
    assert report["ok"]


def test_strict_makes_warnings_count(lint: Lint) -> None:
    assert not lint({"a": prompt("Today is 2026-11-23.", position="system")}, ALL, "--strict")["ok"]


def test_a_clock_in_the_context_of_a_system_prompt_is_a_warning(lint: Lint, tmp_path: Path) -> None:
    prompts = {"a": prompt("For {{ custom.note }}.", position="system"), "b": prompt("x", position="user")}
    section = "{folders: [ours], shipped: false, use: ['*'], context: {custom: {note: 'at 14:05:11', other: '14:05'}}}"
    report = lint(prompts, section)
    assert found(report) == [("warning", "cache-breaker", "a")]
    assert "`custom.note` of the context holds a time ('14:05:11')" in messages(report)
    (tmp_path / "context.json").write_text('{"custom": {"note": "on 2026-11-23"}}')
    report = lint(prompts, ALL, "--context", "context.json")
    assert ("warning", "cache-breaker", "a") in found(report)


def test_a_date_in_an_override_is_a_warning(lint: Lint) -> None:
    report = lint({}, "{folders: [ours], shipped: false, override: 'It is 2026-11-23.'}")
    assert found(report) == [("warning", "cache-breaker", "")]


@pytest.mark.parametrize(
    ("front", "section", "why"),
    [
        ({}, "use: [other]", "no configuration uses it"),
        ({"id": "'persona:x'"}, "use: ['*']", "the persona 'x' is never chosen"),
        ({"position": "tools"}, "use: ['*']", "the flag 'tools' is never set"),
        ({"profile": "edit"}, "use: ['*']", "the profile 'edit' is never chosen"),
        ({}, "use: ['*'], override: Mine.", "an override takes the place of the system text"),
    ],
)
def test_a_prompt_that_nothing_uses_is_told(lint: Lint, front: dict[str, str], section: str, why: str) -> None:
    prompts = {"a": prompt("x", **{"position": "system", **front}), "other": prompt("y", position="user")}
    report = lint(prompts, f"{{folders: [ours], shipped: false, {section}}}")
    assert [code for severity, code, _ in found(report)] == ["unused"]
    assert why in messages(report)


@pytest.mark.parametrize(
    ("front", "section"),
    [
        ({"id": "'persona:x'"}, "allowed: {personas: [x]}"),
        ({"id": "'persona:x'"}, "models: {sonnet: {persona: x}}"),
        ({"position": "tools"}, "teams: {red: {tools: true}}"),
        ({"position": "tools"}, "allowed: {flags: true}"),
        ({"profile": "edit"}, "allowed: {profiles: [edit]}, models: {gpt: {profile: edit}}"),
    ],
)
def test_a_prompt_that_one_team_model_or_client_gets_is_used(lint: Lint, front: dict[str, str], section: str) -> None:
    prompts = {"a": prompt("x", **{"position": "system", **front})}
    assert lint(prompts, f"{{folders: [ours], shipped: false, use: ['*'], {section}}}")["findings"] == []


def test_a_name_in_the_configuration_that_no_prompt_has_is_an_error(lint: Lint) -> None:
    report = lint({}, "{folders: [ours], shipped: false, use: [gone], teams: {red: {persona: nobody}}}")
    places = {(one["code"], one["place"]) for one in report["findings"]}
    assert places == {
        ("unknown-prompt", "stratiform.prompts.use[0]"), ("unknown-prompt", "stratiform.prompts.teams.red.persona"),
    }  # fmt: skip


def test_a_template_that_fails_with_the_configured_context_is_an_error(lint: Lint) -> None:
    report = lint({"a": prompt("{{ target.service }}", position="system")})
    assert found(report) == [("error", "render-error", "a")]
    required = "[{name: who, source: target.who, required: true}]"
    report = lint({"a": prompt("{{ who }}", position="system", variables=required)})
    assert found(report) == [("error", "render-error", "a")]


def test_what_a_request_has_to_bring_is_a_warning_that_names_it(lint: Lint, tmp_path: Path) -> None:
    prompts = {"a": prompt("{{ custom.who }}", position="system")}
    report = lint(prompts)
    assert found(report) == [("warning", "needs-context", "a")]
    assert "a request that does not bring `custom.who`" in messages(report)


def test_a_given_context_is_tried_beside_the_configured_one(lint: Lint, tmp_path: Path) -> None:
    text = "{% if custom.who is defined %}{{ custom.who.name }}{% endif %}"
    assert lint({"a": prompt(text, position="system")})["findings"] == []
    (tmp_path / "context.json").write_text('{"custom": {"who": "Ann"}}')
    report = lint({"a": prompt(text, position="system")}, ALL, "--context", "context.json")
    assert [code for _, code, _ in found(report)] != []


def test_a_variable_that_the_template_does_not_use_is_told(lint: Lint) -> None:
    report = lint({"a": prompt("x", position="system", variables="[{name: spare}]")})
    assert found(report) == [("warning", "unused-variable", "a")]


def test_findings_are_printed_for_people_with_a_count(
    lint: Lint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lint({"a": prompt("{{ nobody }}", position="system")})
    assert main(["prompts", "lint"]) == 1
    printed = capsys.readouterr().out
    assert "undefined-variable" in printed
    assert printed.splitlines()[-1] == "errors: 1, warnings: 0"


def test_a_folder_is_linted_without_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_prompts(tmp_path / "p", {"a": prompt("{{ custom.who }}", position="tools")})
    assert main(["prompts", "lint", "--folder", str(tmp_path / "p"), "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]] == ["needs-context"]


def test_a_configuration_with_too_many_kinds_of_requests_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    personas = {f"p{n}": prompt("x", id=f"'persona:{n}'", position="system") for n in range(90)}
    profiles = {f"q{n}": prompt("x", position="system", profile=f"q{n}") for n in range(60)}
    write_prompts(tmp_path, {**personas, **profiles})
    assert main(["prompts", "lint", "--folder", str(tmp_path)]) == 1
    assert "tells more than 5000 kinds of requests apart" in capsys.readouterr().err
