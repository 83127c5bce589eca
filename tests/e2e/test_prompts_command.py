"""What ``stratiform prompts render`` shows is what the proxy sends."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from tests.e2e.test_prompts import text_of, world
from tests.examples import sampled

PROMPTS = """
    models:
      gpt: {use: [rules, before, after]}
    teams:
      blue: {use: [rules, after], persona: terse, allowed: {personas: ["*"], context: [mission]}}
"""


@pytest.mark.parametrize("model", sampled(["gpt", "cheap", "claude"], 3))
@pytest.mark.parametrize(
    ("team", "persona", "context"), [("red", "", {}), ("blue", "loud", {"mission": {"goal": "g"}})]
)
def test_the_model_gets_what_is_rendered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, team: str, persona: str, context: dict[str, Any]
) -> None:
    (tmp_path / "context.json").write_text(json.dumps(context))
    with world(tmp_path, PROMPTS) as there:
        headers = {"persona": persona} if persona else {}
        section = {"prompts": {"context": context}} if context else None
        sent = there.ask(model=model, key=f"sk-{team}", section=section, **headers)
    words = ("--model", model, "--team", team, "--persona", persona, "--context", str(tmp_path / "context.json"))
    assert main(["prompts", "render", "--config", str(tmp_path / "config.yaml"), "--json", *words]) == 0
    shown = json.loads(capsys.readouterr().out)
    systems = [text_of(message) for message in sent if message["role"] == "system"]
    assert systems == ([shown["system"]] if shown["system"] else [])
    parts = (shown["before_user"], "Why?", shown["after_user"])
    assert text_of(sent[-1]) == "\n\n".join(part for part in parts if part)
    assert bool(shown["system"]) == (model != "claude" or team == "blue")
