"""Whatever mistakes a configuration has at once, ``check-config`` tells each of them with its line, and nothing that
only follows from them."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.cli.check_config import check
from tests.examples import examples

RIGHT: dict[str, Any] = {
    "model_list": [
        {"model_name": name, "litellm_params": {"model": f"anthropic/{name}", "api_key": "k"}, "model_info": {}}
        for name in ("a", "b", "c")
    ],
    "router_settings": {"model_group_alias": {}, "fallbacks": [{"a": ["b"]}], "num_retries": 1},
    "general_settings": {},
    "litellm_settings": {"callbacks": []},
    "stratiform": {
        "store": "memory",
        "limits": {},
        "metrics": {"key": "m"},
        "teams": [{"name": f"team{n}", "keys": [{"key": f"key-{n}"}], "budgets": [{"usd": 500.0}]} for n in range(3)],
    },
}

Break = Callable[[Any], tuple[str, str]]
"""Makes one mistake, and returns its path and what its line holds."""


def put(path: tuple[str | int, ...], key: str, value: object, mark: str = "") -> Break:
    def make(config: Any) -> tuple[str, str]:
        holder, shown = config, ""
        for step in path:
            holder = holder[step]
            shown += f"[{step}]" if isinstance(step, int) else f".{step}"
        holder[key] = value
        return f"{shown}.{key}".lstrip("."), mark or f"{key}: {value}"

    return make


def extend(path: tuple[str, ...], item: object, told: str, mark: str) -> Break:
    def make(config: Any) -> tuple[str, str]:
        holder = config
        for step in path:
            holder = holder[step]
        holder.append(item)
        return f"{'.'.join(path)}[{len(holder) - 1}]{told}", mark

    return make


def of_model(index: int) -> list[Break]:
    at = ("model_list", index, "litellm_params")
    return [
        put(at, "model", f"antrhopic/x{index}"),
        put(at, "api_key", f"os.environ/NOT_SET_{index}"),
        put(at, "timeout", f"soon{index}"),
        put(at, "litellm_credential_name", f"lost{index}"),
        put(("model_list", index, "model_info"), "cache_profile", f"anthropc{index}"),
        put(("model_list", index, "model_info"), "mode", f"teir{index}"),
        put(("model_list", index, "model_info"), "system_reminder", f"gone{index}.md"),
    ]


def of_team(index: int) -> list[Break]:
    at = ("stratiform", "teams", index)
    return [
        put(at, "mode", f"loud{index}"),
        put(at, f"budgts{index}", 1),
        put((*at, "budgets", 0), "usd", f"os.environ/NO_BUDGET_{index}"),
        put((*at, "budgets", 0), "window", f"fortnight{index}"),
        put((*at, "keys", 0), "expires", f"200{index}-01-01", f"expires: '200{index}"),
        put((*at, "keys", 0), f"modles{index}", [f"x{index}"], f"modles{index}:"),
    ]


BREAKS = [
    *(one for index in range(3) for one in (*of_model(index), *of_team(index))),
    put(("router_settings", "model_group_alias"), "best", "nowhere"),
    put(("router_settings",), "num_retries", "many"),
    put(("general_settings",), "master_key", "os.environ/NO_MASTER"),
    put(("stratiform",), "default_model", "lost-model"),
    put(("stratiform",), "mod", "tier"),
    put(("stratiform",), "workers", 3, "workers: 3"),
    put(("stratiform", "limits"), "max_body_mib", "os.environ/NO_LIMIT"),
    put(("stratiform",), "holdout", 7),
    extend(("router_settings", "fallbacks"), {"b": ["c", "gone"]}, ".b[1]", "- gone"),
    extend(("router_settings", "fallbacks"), {"c": ["lost"]}, ".c[0]", "- lost"),
    extend(("litellm_settings", "callbacks"), "presidio", "", "- presidio"),
]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(range(len(BREAKS))), unique=True, min_size=1, max_size=12))
def test_every_mistake_is_told_in_one_run_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[int]
) -> None:
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)
    config = deepcopy(RIGHT)
    made = [BREAKS[index](config) for index in chosen]
    text = yaml.safe_dump(config, sort_keys=False)
    (tmp_path / "config.yaml").write_text(text)
    lines = text.splitlines()
    expected = {
        path: next(number for number, line in enumerate(lines, 1) if mark in line)
        for path, mark in made
    }  # fmt: skip
    report = check(tmp_path / "config.yaml")
    told = {line.partition(": ")[0]: line.rpartition("(line ")[2].rstrip(")") for line in report["errors"]}
    assert told == {path: str(line) for path, line in expected.items()}


def test_what_is_right_has_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(RIGHT))
    assert "errors" not in check(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("model_list: [{litellm_params: {model: a/b}}, {model_name: x}]\nrouter_settings: {fallbacks: [{a: [x]}]}",
         ["model_list[0].model_name", "model_list[1].litellm_params"]),
        ("stratiform: 3\nmodel_list: {}\nrouter_settings: []", ["model_list", "router_settings", "stratiform"]),
        ("model_list: [&a {model_name: m, litellm_params: {model: gpt-4o, api_key: os.environ/NO}}, *a]",
         ["model_list[0].litellm_params.api_key", "model_list[1].litellm_params.api_key"]),
        ("model_list: [{model_name: m, litellm_params: {model: gpt-4o}}]\n"
         "stratiform: {teams: [{keys: [a]}, {name: x y, budget: {usd: 1}}, {name: ok, keys: [{expires: 2001-01-01}]}]}",
         ["stratiform.teams[0].name", "stratiform.teams[1].name", "stratiform.teams[2].keys[0]"]),
    ],
)  # fmt: skip
def test_what_cannot_be_mended_goes_as_a_whole_and_others_may_refer_to_it(
    tmp_path: Path, text: str, paths: list[str]
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    assert sorted(line.partition(": ")[0] for line in check(tmp_path / "config.yaml")["errors"]) == paths
