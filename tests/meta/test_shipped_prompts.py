"""The prompts that come along say what a coding assistant has to be told, and follow the rules that they state."""

import re
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.examples import for_every

PROMPTS = Path(__file__).parents[2] / "prompts"
REGISTRY_POSITIONS = {
    "system_prefix", "system", "system_suffix", "context", "tools", "plugins", "agents", "constraints", "examples",
    "user_prefix", "user", "user_suffix", "last_user",
}  # fmt: skip
REGISTERED = {"system", "system_extra", "commit", "system_reminder"}
SECTIONS = (
    "Role", "What You Are Given", "Symbol Map", "Edit Protocol", "Workflow", "Failure Recovery", "Context Trust",
)  # fmt: skip
EDIT_BLOCK = re.compile(
    r"^(?P<path>\S+)\n(?P<fence>`{3,})\n"
    r"<<<<<<< SEARCH\n(?P<old>.*?)^=======\n(?P<new>.*?)^>>>>>>> REPLACE\n(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


def front_and_text(name: str) -> tuple[dict[str, object], str]:
    _, front, text = (PROMPTS / f"{name}.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(front), text


def rendered(name: str) -> str:
    """The text as a template without any context gives it."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.from_string(front_and_text(name)[1]).render().strip()


def one_line(text: str) -> str:
    return " ".join(text.split())


def section(title: str) -> str:
    """The text below a heading of ``system.md``, on one line."""
    return one_line(re.split(r"^# ", rendered("system"), flags=re.MULTILINE)[1 + SECTIONS.index(title)])


def says(text: str, *patterns: str) -> None:
    missing = [pattern for pattern in patterns if not re.search(pattern, text, re.IGNORECASE)]
    assert missing == []


SAID = {
    "Role": ("expert software engineer", "symbol map", "find your way by the map", "edit blocks"),
    "Symbol Map": ("legend", "aliases", "indented", "bodies", "import", "bases", "users|callers"),
    "Edit Protocol": (
        "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "close every block", "copy exactly", "occur once",
        "small blocks", "no placeholder", "from top to bottom", "new file", "deletion",
    ),
    "Failure Recovery": (
        "do not send them again", "present text", "not found", "more than once", "corrected block",
        "never send the same block twice",
    ),
    "Context Trust": ("trust only the text of files that is shown", "present state", "not instructions"),
}  # fmt: skip


@for_every(SAID.items())
def test_a_section_of_the_system_prompt_says_what_it_has_to(title: str, patterns: tuple[str, ...]) -> None:
    says(section(title), *patterns)


def test_the_system_prompt_has_its_sections_in_order() -> None:
    assert tuple(re.findall(r"^# (.+)$", rendered("system"), re.MULTILINE)) == SECTIONS


def test_every_heading_of_the_tiered_form_is_explained() -> None:
    explained = set(re.findall(r"`(# [A-Z][^`]*)`", section("What You Are Given")))
    headings = {
        (PROMPTS / "tiered_assembly" / f"{name}.md").read_text("utf-8").split("---\n", 2)[2].partition("\n")[0]
        for name in (
            "repository_map", "repository_map_continued", "file_tree", "urls", "review", "working_files",
            "reference_l1",
        )
    }  # fmt: skip
    assert explained == headings
    says(section("What You Are Given"), r"`\(Stable\)`", r"`\(L2\)`", r"`\(L3\)`")


def test_the_example_of_an_edit_block_has_the_form_that_is_asked_for() -> None:
    (block,) = EDIT_BLOCK.finditer(rendered("system"))
    assert block["path"] == "src/shapes.py"
    assert "def area(side)" in block["old"]
    assert "def area(width, height)" in block["new"]


def test_the_workflow_leads_from_the_query_to_the_edit() -> None:
    steps = re.findall(r"\b(\d)\. ([A-Z][a-z ]+):", section("Workflow"))
    assert steps == [
        ("1", "Query"), ("2", "Search the map"), ("3", "Trace dependencies"), ("4", "Request files"), ("5", "Read"),
        ("6", "Edit"),
    ]  # fmt: skip


def test_the_extra_prompt_is_right_behind_the_system_prompt_and_empty_until_it_is_written() -> None:
    assert rendered("system_extra") == ""
    system, extra = front_and_text("system")[0], front_and_text("system_extra")[0]
    assert system["position"] == extra["position"]
    assert int(str(system["priority"])) > int(str(extra["priority"])) > 0


def test_the_commit_prompt_asks_for_a_conventional_message_and_nothing_else() -> None:
    text = one_line(rendered("commit"))
    says(
        text, "expert software engineer", "imperative", "at most 50 characters", "at 72 characters", "message only",
        "no commentary",
    )  # fmt: skip
    types = {"feat", "fix", "perf", "refactor", "docs", "test", "style", "build", "ci", "chore", "revert"}
    assert types <= set(re.findall(r"`([a-z]+)`", text))


def test_the_reminder_states_the_five_rules_at_the_very_end_of_the_prompt() -> None:
    front, text = front_and_text("system_reminder")
    assert front["position"] == "last_user"
    says(one_line(text), "close every edit block", "copy .* exactly", "occurs once", "block small", r'no "\.\.\."')
    assert len(re.findall(r"^- ", text, re.MULTILINE)) == 5


def test_the_compaction_prompt_asks_for_a_boundary_and_a_summary_in_a_call_of_its_own() -> None:
    front, text = front_and_text("compaction")
    assert front["position"] == "own_call"
    says(one_line(text), "newest topic", "boundary", "confidence", "summary", r"\{summary_tokens\}")


def test_the_prompts_of_the_registry_are_known() -> None:
    names = [path.stem for path in PROMPTS.glob("*.md") if path.stem != "README"]
    found = {name for name in names if front_and_text(name)[0]["position"] in REGISTRY_POSITIONS}
    assert found == REGISTERED


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_a_prompt_of_the_registry_renders_without_any_context(name: str) -> None:
    assert rendered(name) == ("" if name == "system_extra" else front_and_text(name)[1].strip())
