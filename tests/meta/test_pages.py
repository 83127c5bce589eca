"""Every page has one reader, is short and plain, and can be used: its links lead somewhere, its blocks are right."""

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from math import ceil
from pathlib import Path

import pytest
import yaml

from proxy.app import factories
from proxy.app.settings import Environment, load
from proxy.cli import COMMANDS, command_of
from proxy.cli.check_config import check
from proxy.engine.exchange import ExchangeOutcome
from proxy.kit.modes import Edit, Reason
from proxy.planner.shadow import Deviation
from tests.documents import ROOT, Block, Page, pages
from tests.examples import for_every
from tests.page_scripts import UNSTARTED, file_of

PAGES = pages()
FRONT = Page(Path("README.md"))
SOURCES = [
    f"/{path.relative_to(ROOT)}" for folder in ("proxy", "plugins", "tests") for path in (ROOT / folder).rglob("*.py")
]
PROVIDERS = Page(Path("proxy/app/settings/PROVIDERS.md"))
_FRONT_BYTES, _PAGE_BYTES, _SENTENCE_WORDS = 9_000, 12_000, 30
# Tables in which a reader looks something up, and whose rows tests compare with the code.
_LEDGERS = {"CHANGELOG.md", "proxy/planner/NUMBERS.md"}
# What begins a configuration of the proxy; other YAML is of another program, and says so.
_SECTIONS = {"model_list", "stratiform", "general_settings", "litellm_settings", "router_settings"}
_LANGUAGES = {"console", "python", "yaml", "json", "text", "ini", "toml", "markdown", "mermaid", ""}


def test_the_front_page_is_read_in_one_sitting() -> None:
    assert len(FRONT.text.encode()) <= _FRONT_BYTES


@for_every([page for page in PAGES if str(page) not in _LEDGERS])
def test_a_page_is_short(page: Page) -> None:
    assert len(page.text.encode()) <= _PAGE_BYTES, "part it by reader"


@for_every([page for page in PAGES if str(page) != "CHANGELOG.md"])
def test_nine_of_ten_sentences_of_a_page_are_short(page: Page) -> None:
    found = sorted((len(sentence.split()), sentence) for sentence in page.sentences())
    at = ceil(0.9 * len(found)) - 1
    assert found[at][0] <= _SENTENCE_WORDS, found[at:]


@for_every(PAGES)
def test_every_heading_has_text_below_it(page: Page) -> None:
    assert page.bare_headings() == []


@for_every(PAGES)
def test_links_lead_to_files_and_headings_that_exist(page: Page) -> None:
    for link in page.links():
        if not re.match(r"https?:|mailto:", link):
            path, _, anchor = link.partition("#")
            target = (ROOT / page.path.parent / path).resolve() if path else ROOT / page.path
            assert target.exists(), link
            assert not anchor or anchor in Page(target.relative_to(ROOT)).anchors(), link


@for_every([page for page in PAGES if str(page) != "CHANGELOG.md"])
def test_source_files_that_a_page_names_exist(page: Page) -> None:
    named = set(re.findall(r"`(?!src/)((?:\w+/)+\w+\.py)(?:::\w+)?`", page.text))
    assert [path for path in named if not any(one.endswith(f"/{path}") for one in SOURCES)] == []


def test_every_page_is_reached_from_the_front_page() -> None:
    reached, waiting = set(), [FRONT.path]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        for link in Page(path).links():
            target = (ROOT / path.parent / link.partition("#")[0]).resolve()
            if target.is_relative_to(ROOT):
                target = target / "README.md" if target.is_dir() else target
                if target.suffix == ".md" and target.exists():
                    waiting.append(target.relative_to(ROOT))
    assert [str(page) for page in PAGES if page.path not in reached] == []


def blocks() -> Iterator[tuple[Page, Block]]:
    return ((page, block) for page in PAGES for block in page.blocks())


@for_every(blocks())
def test_the_info_string_of_a_block_says_what_it_is(page: Page, block: Block) -> None:
    assert block.language in _LANGUAGES, f"{page}:{block.line}"
    assert len(block.marks) <= 1
    assert set(block.marks) <= {*UNSTARTED, file_of(block)}, f"{page}:{block.line}"
    if block.language == "yaml" and "other" not in block.marks:
        assert yaml.safe_load(block.text).keys() & _SECTIONS, f"{page}:{block.line}: of what program is it?"


def configurations() -> list[tuple[str, str]]:
    found = []
    for page, block in blocks():
        if block.language == "yaml" and "other" not in block.marks:
            found.append((f"{page}:{block.line}", block.text))
    return found


def used(text: str, folder: Path) -> Path:
    """A file with the configuration, whose variables are set."""
    path = folder / "config.yaml"
    path.write_text(re.sub(r"os\.environ/(\w+)", r"x-\1", text))
    return path


@pytest.mark.parametrize("text", [pytest.param(text, id=place) for place, text in configurations()])
def test_every_configuration_can_be_used(text: str, tmp_path: Path) -> None:
    variables = {name: f"x-{name}" for name in re.findall(r"os\.environ/([A-Z_]+)", text)}
    path = tmp_path / "config.yaml"
    path.write_text(text)
    settings = load(path, "http://localhost:9", Environment(variables))
    factories.model_table(settings, factories.price_map(settings))
    assert settings.unused == ()


def sections(page: Page) -> list[tuple[str, list[str]]]:
    """The text of each section, and the YAML blocks in it."""
    parts = re.split(r"^## ", page.text, flags=re.MULTILINE)[1:]
    return [(part, re.findall(r"```yaml\n(.*?)```", part, re.DOTALL)) for part in parts]


@pytest.mark.parametrize(("text", "block"), [(text, block) for text, found in sections(PROVIDERS) for block in found])
def test_the_block_of_a_provider_has_the_profiles_that_its_section_names(text: str, block: str, tmp_path: Path) -> None:
    rows = check(used(block, tmp_path))["models"]
    named = set(re.findall(r"`([a-z-]+)`", text.rpartition("```")[2]))
    assert {row["profile"] for row in rows if row["profile"]} <= named, rows


def commands() -> list[tuple[str, str]]:
    """Every line of a shell that calls our command."""
    lines = []
    for page, block in blocks():
        if block.language == "console":
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith("stratiform ") and "..." not in line:
                    lines.append((f"{page}:{block.line}", line))
    return lines


@for_every(commands())
def test_every_command_of_a_page_exists(place: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[1 : next((at for at, word in enumerate(words) if word in ("|", ">", "&")), None)]
    assert words[0] in COMMANDS, place
    parser = argparse.ArgumentParser(prog=place)
    command_of(words[0]).configure(parser)
    parser.parse_args(words[1:])


@for_every(blocks())
def test_what_is_not_run_is_right_in_itself(page: Page, block: Block) -> None:
    if block.language == "json":
        assert [json.loads(line) for line in block.text.splitlines()] if file_of(block) else json.loads(block.text)
    elif block.language == "python":
        compile(block.text, f"{page}:{block.line}", "exec")
    elif block.language == "console":
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        for module in re.findall(r"^python -m ([\w.]+)", block.text, re.MULTILINE):
            assert find_spec(module), f"{page}:{block.line}"


LEGEND = Page(Path("proxy/app/settings/LOGS.md")).text


@for_every([*Reason, *Edit, *Deviation, *ExchangeOutcome])
def test_every_word_of_the_log_has_a_meaning(word: str) -> None:
    assert f"`{word}`" in LEGEND
