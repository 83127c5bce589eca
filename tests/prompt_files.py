"""Folders of prompts, and configurations that use them, for tests of the commands."""

from collections.abc import Mapping
from pathlib import Path

MODELS = """
model_list:
  - {model_name: sonnet, litellm_params: {model: anthropic/claude-sonnet-4-5, api_base: "http://127.0.0.1:9/v1"}}
  - {model_name: gpt, litellm_params: {model: openai/gpt-5, api_base: "http://127.0.0.1:9/v1"}}
  - {model_name: mini, litellm_params: {model: openai/gpt-5-mini, api_base: "http://127.0.0.1:9/v1"}}
general_settings: {master_key: sk-master}
router_settings: {model_group_alias: {assistant: gpt}}
"""
TEAMS = """
  store: sqlite:spend.sqlite
  teams: [{name: red, keys: [sk-red]}, {name: blue, keys: [sk-blue]}]
"""


def prompt(text: str, **front: object) -> str:
    """A prompt file. The values of its front matter are YAML or plain words."""
    lines = "\n".join(f"{name}: {value}" for name, value in front.items())
    return f"---\n{lines}\n---\n{text}\n"


def write_prompts(folder: Path, prompts: Mapping[str, str]) -> Path:
    """A folder with these files, by their names without ``.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in prompts.items():
        (folder / f"{name}.md").write_text(content, encoding="utf-8")
    return folder


def write_config(folder: Path, section: str, name: str = "config.yaml") -> Path:
    """A configuration with three models, the teams red and blue, and this section of prompts, in YAML's flow style."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"{MODELS}\nstratiform:{TEAMS}  prompts: {section}\n", encoding="utf-8")
    return path
