"""Exports of LiteLLM's keys and teams: what is read of them, and which keys could do more here than there."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.app.settings import ConfigError
from proxy.cli import main
from proxy.cli.accounts import read_export
from tests.litellm_keys import key_row, litellms_hash

RESTRICTIONS: list[Mapping[str, object]] = [
    {"blocked": True},
    {"max_parallel_requests": 0},
    {"allowed_routes": ["/v1/embeddings"]},
    {"metadata": {"model_rpm_limit": {"m": 1}}},
    {"metadata": {"guardrails": ["pii"]}},
    {"model_max_budget": {"m": {"budget_limit": 1}}},
    {"budget_id": "b-1"},
    {"access_group_ids": ["g"]},
    {"team_id": "gone"},
    {"a_column_of_tomorrow": "x"},
    {"rpm_limit": "many"},
    {"max_budget": "nan"},
    {"max_budget": 1, "budget_duration": "sometimes"},
    {"token": "neither"},
    {"metadata": ["guardrails"]},
    {"metadata": "{"},
    {"spend": -1},
]


@pytest.mark.parametrize("more", RESTRICTIONS, ids=str)
def test_what_would_allow_more_than_before_is_refused(tmp_path: Path, more: Mapping[str, object]) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([key_row("sk-alice", **more)]))
    assert read_export([path])["key"][0].refused


@pytest.mark.parametrize("models", [{"m": 1}, 5, False, "[", "m"], ids=str)
def test_models_that_are_no_list_allow_none_of_them_all(models: object, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([key_row("sk-alice", models=models)]))
    assert read_export([path])["key"][0].body["models"] != []


def test_what_any_row_says_of_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    short = {"token": litellms_hash("sk-alice"), "models": None}
    path.write_text(json.dumps([key_row("sk-alice", budget_id="b", models=["m"]), {"team_id": "t", "keys": [short]}]))
    (key,) = read_export([path])["key"]
    assert (key.body["models"], list(key.refused)) == (["m"], ["budget_id: restricts, and is not known here"])


@pytest.mark.parametrize("empty", [None, "", [], False], ids=str)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_row_that_says_nothing_takes_no_limit_away(empty: object, is_first: bool, tmp_path: Path) -> None:
    limits = {"models": ["m"], "max_budget": 3, "max_parallel_requests": 1}
    nothing = dict.fromkeys(limits, empty)
    # LiteLLM knows a key by itself and by its digest.
    of_key = [{**nothing, "token": "sk-alice"}, key_row("sk-alice", **limits)]
    of_team = [{**nothing, "team_id": "t"}, {**limits, "team_id": "t"}]
    path = tmp_path / "export.json"
    path.write_text(json.dumps([*of_key, *of_team] if is_first else [*of_key[::-1], *of_team[::-1]]))
    export = read_export([path])
    for one in (*export["key"], *export["team"]):
        assert one.budget is not None
        assert (one.body["models"], one.budget["usd"], len(one.refused)) == (["m"], 3, 1)
    assert (len(export["key"]), len(export["team"])) == (1, 1)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "cc-1", "cc-2"]), st.sampled_from(["x", "x ", "client-keys", "default"]), min_size=2
    )
)
def test_no_alias_gets_a_team_into_another(tmp_path_factory: pytest.TempPathFactory, aliases: dict[str, str]) -> None:
    path = tmp_path_factory.mktemp("exports") / "teams.json"

    def names(aliases: Mapping[str, str]) -> list[str]:
        path.write_text(json.dumps([{"team_id": id_, "team_alias": alias} for id_, alias in aliases.items()]))
        return [team.team for team in read_export([path])["team"]]

    found = names(aliases)
    assert len({*found, "default", "client-keys"}) == len(aliases) + 2
    # The alias of a further team is the name that one of them has got.
    for name in found:
        assert len(set(names({**aliases, "evil": name}))) == len(aliases) + 1


def test_no_part_of_a_key_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([{"token": "sk-0123456789"}]))
    assert "0123" not in repr(read_export([path])["key"][0])


def test_a_table_of_postgresql_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    rows = [
        {**dict.fromkeys(("metadata", "config", "permissions"), "{}"), "token": "sk-plain", "models": '{m,"gpt 4,o"}',
         "blocked": "f", "max_parallel_requests": "", "spend": "0", "expires": "2030-01-31 10:00:00+00",
         "tpm_limit": "70"},
        {"token": "A" * 64, "models": "{}", "blocked": "t"},
    ]  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    one, other = read_export([path])["key"]
    assert one.refused == ()
    assert one.body["sha256"] == litellms_hash("sk-plain")
    assert (one.body["models"], one.body["tokens_per_minute"]) == (["m", "gpt 4,o"], 70)
    assert [why.partition(":")[0] for why in other.refused] == ["blocked"]


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "a,b\n1,2\n", '{"keys": []}', "[" * 100_000, "\0"])
def test_a_file_without_keys_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "export"
    path.write_text(text)
    assert main(["keys", "import", str(path), "--store", f"sqlite:{tmp_path}/s.sqlite"]) == 1
    assert f"error: {path}: " in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
COLUMNS = st.sampled_from(
    ["team_id", "team_alias", "models", "rpm_limit", "max_budget", "budget_duration", "spend", "expires", "blocked",
     "metadata", "user_id", "key_alias", "permissions", "keys"]
)  # fmt: skip


@example([{"models": "{a\nb}"}])
@example([{"key_alias": "half of a pair: \ud83d"}])
@given(st.lists(st.dictionaries(COLUMNS, JSON, max_size=5), min_size=1, max_size=4))
def test_a_column_may_hold_anything(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("exports") / "export.json"
    path.write_text(json.dumps([{**row, "token": f"sk-{number}"} for number, row in enumerate(rows)]))
    try:
        found = read_export([path])
    except ConfigError:
        return  # no UTF-8 can be made of it
    for one in (*found["team"], *found["key"]):
        assert one.refused or all(value is not None for value in one.body.values())
        assert "".join([one.label, *one.refused]).encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"keys":' * 1000 + '{"token": "sk-1"}' + "}" * 1000,
        '[{"token": "sk-1", "models": ' + "[" * 1000 + "]" * 1000 + "}]",
    ],
)
def test_a_file_without_a_bottom_ends_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "export.json").write_text(text)
    store = f"sqlite:{tmp_path / 'spend.sqlite'}"
    assert main(["keys", "import", str(tmp_path / "export.json"), "--store", store]) == 1
    assert capsys.readouterr().err == "error: the files cannot be read: they are nested too deeply\n"
