"""``stratiform prices``: what models cost, which prices are not known, and pinned ones that are out of date."""

import json
from pathlib import Path

import pytest
import yaml

from proxy.cli import main

MODELS = """
model_list:
  - {model_name: sonnet, litellm_params: {model: anthropic/claude-sonnet-4-5}}
  - {model_name: ours, litellm_params: {model: openai/m, api_base: "http://a/v1", input_cost_per_token: 0.000002}}
"""
UNKNOWN = "  - {model_name: gone, litellm_params: {model: openai/nobody-knows-it}}\n"
PEAKED = "  - {model_name: deep, litellm_params: {model: deepseek/deepseek-flash}}\n"


def prices(folder: Path, action: str, text: str, *words: str) -> int:
    (folder / "config.yaml").write_text(text)
    return main(["prices", action, "--config", str(folder / "config.yaml"), *words])


def test_each_model_has_its_price_and_where_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prices(tmp_path, "check", MODELS + PEAKED, "--json") == 0
    sonnet, ours, deep = json.loads(capsys.readouterr().out)["models"]
    assert [sonnet[name] for name in ("input", "read", "write", "output")] == [3.0, 0.3, 3.75, 15.0]
    assert "claude-sonnet-4-5" in sonnet["from"]
    assert (ours["from"], ours["input"], ours["note"]) == ("config", 2.0, "")
    assert "price of the hour" in deep["note"]


def test_a_model_without_a_price_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prices(tmp_path, "check", MODELS + UNKNOWN) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("gone")]
    assert "no price: budgets in USD refuse it" in line


PINNED = """
stratiform:
  prices:
    sonnet: {input_cost_per_token: 0.000004, output_cost_per_token: 0.000015}
    claude-haiku-4-5: {input_cost_per_token: 0.000001, output_cost_per_token: 0.000005}
    mine: {input_cost_per_token: 0.000001, output_cost_per_token: 0.000001}
"""


def test_pinned_prices_that_have_changed_are_printed_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prices(tmp_path, "update", MODELS + PINNED) == 1
    printed = yaml.safe_load(capsys.readouterr().out)
    anew = {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}
    assert printed == {"stratiform": {"prices": {"sonnet": anew}}}
    assert prices(tmp_path, "update", MODELS) == 0
