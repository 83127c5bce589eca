"""``stratiform keys import``: LiteLLM's keys go on working, none may do more than before, nothing is made twice."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from proxy.cli import main
from proxy.teams.authentication import declared_id
from tests.litellm_keys import key_row, litellms_hash
from tests.whole import whole

CONFIG = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m, api_base: "http://127.0.0.1:9/v1", api_key: none}}
  - {model_name: n, litellm_params: {model: openai/n, api_base: "http://127.0.0.1:9/v1", api_key: none}}
general_settings: {master_key: sk-master}
stratiform: {store: "sqlite:spend.sqlite"}
"""
TEAM = {"team_id": "8b7c", "team_alias": "Team Red!", "models": ["m", "n"], "rpm_limit": 60, "blocked": False}
TEAM |= {"max_budget": 100.0, "budget_duration": "30d", "spend": 12.5, "metadata": {"owner": "x"}, "members": ["u"]}


Command = Callable[..., int]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Command, str]]:
    """The command on a proxy that runs, and the proxy's address."""
    monkeypatch.setenv("STRATIFORM_MASTER_KEY", "sk-master")
    with whole(tmp_path, CONFIG) as url:

        def command(rows: object, *words: str) -> int:
            path = tmp_path / "export.json"
            path.write_text(json.dumps(rows))
            return main(["keys", "import", str(path), "--url", url, *words])

        yield command, url


def models_of(url: str, key: str) -> list[str] | int:
    answer = httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"})
    return [one["id"] for one in answer.json()["data"]] if answer.status_code == 200 else answer.status_code


def listed(url: str, kind: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{url}/admin/{kind}", headers={"authorization": "Bearer sk-master"})
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


def test_imported_keys_go_on_working_with_their_limits(served: tuple[Command, str]) -> None:
    command, url = served
    alice = key_row("sk-alice", team_id="8b7c", models=["m"], user_id="alice", max_budget=5, spend=1.25)
    assert models_of(url, "sk-alice") == 401
    assert command({"keys": [alice, key_row("sk-bob", models=["n"], rpm_limit=3)], "teams": [TEAM]}) == 0
    assert models_of(url, "sk-alice") == ["m"]
    assert models_of(url, "sk-bob") == ["n"]
    keys = {key["note"]: key for key in listed(url, "keys")}
    assert [(key["team"], key["requests_per_minute"]) for key in keys.values()] == [("Team-Red", None), ("default", 3)]
    budgets = {one["scope"]: one for one in listed(url, "budgets")}
    assert (budgets["team"]["usd"], budgets["team"]["spent"], budgets["team"]["window"]) == (100, 12.5, "month")
    assert (budgets["key"]["subject"], budgets["key"]["spent"]) == (keys["sk-...lice"]["id"], 1.25)


def test_nothing_is_made_twice(served: tuple[Command, str], capsys: pytest.CaptureFixture[str]) -> None:
    command, url = served
    rows = [TEAM, key_row("sk-alice", team_id="8b7c", max_budget=5)]
    assert command(rows) == 0
    before = listed(url, "keys"), listed(url, "budgets")
    capsys.readouterr()
    assert command(rows) == 0
    assert capsys.readouterr().out.count("is there already") == 2
    assert (listed(url, "keys"), listed(url, "budgets")) == before


def test_a_dry_run_changes_nothing(served: tuple[Command, str], capsys: pytest.CaptureFixture[str]) -> None:
    command, url = served
    assert command([TEAM, key_row("sk-alice", blocked=True)], "--dry-run") == 1
    assert listed(url, "keys") == []
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "team Team-Red: would be imported"
    assert told[1].startswith("key sk-...lice: not imported: blocked")


def test_a_key_that_could_do_more_than_before_is_not_taken_over(served: tuple[Command, str]) -> None:
    command, url = served
    old = [key_row("sk-old", expires="2020-01-01T00:00:00Z"), key_row("sk-soon", expires="soon")]
    rows = [key_row("sk-alice", budget_id="b-1"), *old, key_row("sk-bob", allowed_routes=["llm_api_routes"])]
    assert command(rows) == 1
    assert [models_of(url, key) for key in ("sk-alice", "sk-old", "sk-soon")] == [401, 401, 401]
    assert models_of(url, "sk-bob") == ["m", "n"]


def test_what_is_not_known_here_may_be_passed_over(served: tuple[Command, str]) -> None:
    command, url = served
    rows = [key_row("sk-alice", max_parallel_requests=3), key_row("sk-bob", blocked=True)]
    assert command(rows, "--ignore-unsupported") == 1
    assert (models_of(url, "sk-alice"), models_of(url, "sk-bob")) == (["m", "n"], 401)


def test_the_keys_of_a_team_without_its_budget_are_not_taken_over(served: tuple[Command, str]) -> None:
    command, url = served
    team = TEAM | {"soft_budget": 200, "max_budget": 100}
    for _ in range(2):
        assert command([team, key_row("sk-alice", team_id="8b7c")]) == 1
        assert models_of(url, "sk-alice") == 401


def test_a_team_whose_limits_are_passed_over_brings_its_keys(served: tuple[Command, str]) -> None:
    command, url = served
    rows = [TEAM | {"max_parallel_requests": 1}, key_row("sk-alice", team_id="8b7c")]
    assert command(rows) == 1
    assert models_of(url, "sk-alice") == 401
    assert command(rows, "--ignore-unsupported") == 0
    assert models_of(url, "sk-alice") == ["m", "n"]


def test_what_was_spent_counts_although_the_first_run_has_ended_before(served: tuple[Command, str]) -> None:
    command, url = served
    id_ = declared_id(litellms_hash("sk-alice"))
    budget = {"scope": "key", "subject": id_, "name": f"litellm-{id_}", "usd": 5}
    headers = {"authorization": "Bearer sk-master"}
    assert httpx.post(f"{url}/admin/budgets", json={"team": "default", **budget}, headers=headers).is_success
    assert command([key_row("sk-alice", max_budget=5, spend=1.25)]) == 0
    assert [one["spent"] for one in listed(url, "budgets")] == [1.25]
