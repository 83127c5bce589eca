"""What a page names exists: settings, metrics, headers, errors, reasons, files, commands and their bounds."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from proxy.app.settings.schema import ConfigFile
from proxy.cli import COMMANDS
from proxy.kit import errors
from proxy.kit.modes import Reason
from tests.documents import ROOT, Page, pages
from tests.examples import for_every
from tests.meta.test_metrics_documented import NAME, documented_name, in_the_code
from tests.meta.test_names_users_hold import PROXY, commands, settings, texts
from tests.mutation.__main__ import LEAST_KILLED

# The log of changes names what there was.
PAGES = [page for page in pages() if str(page) != "CHANGELOG.md"]
SETTINGS = {line.split()[1].rstrip(":") for line in settings(ConfigFile)}
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProxyError)]
STATUSES = {kind.code: kind.status for kind in ERRORS}
TEXTS = texts(PROXY)
LINES = list(commands())
HEADERS = {name for text in TEXTS for name in re.findall(r"x-stratiform-[a-z-]*[a-z]", text)}
# Names that look like ours and are others': an entry point, a member of an answer, a metric that the cluster makes.
OTHERS = {"stratiform.fragments", "stratiform.token_usage", "stratiform_requests_per_second"}


@for_every(PAGES)
def test_every_metric_and_header_that_a_page_names_exists(page: Page) -> None:
    named = {documented_name(name) for name in NAME.findall(page.text) if not name.endswith("_")}
    assert named - in_the_code().keys() - OTHERS == set()
    assert set(re.findall(r"x-stratiform-[a-z-]*[a-z]", page.text)) - HEADERS == set()


def test_every_header_stands_on_a_page() -> None:
    assert [name for name in HEADERS if not any(name in page.text for page in PAGES)] == []


@for_every(PAGES)
def test_every_setting_that_a_page_names_with_its_section_exists(page: Page) -> None:
    named = set(re.findall(r"`(stratiform(?:\.[a-z_]+)+)(?:: [^`]*)?`", page.text))
    assert named - SETTINGS - OTHERS == set()


@for_every(PAGES)
def test_every_error_that_a_page_names_exists_with_its_status(page: Page) -> None:
    for status, code in re.findall(r"\b([45]\d\d)s?,? `([a-z_]+)`", page.text):
        assert code in TEXTS, code
        # An error that has no class of its own takes its status from the class that it is raised with.
        assert STATUSES.get(code, int(status)) == int(status) or code == "prompt_invalid", code


def raised() -> Iterator[tuple[str, int]]:
    """Each code of an error of the proxy's own, with its status."""
    yield from STATUSES.items()
    for path in PROXY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                kind = getattr(errors, node.func.id, None)
                codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                if kind in ERRORS and kind is not errors.UpstreamRejected:
                    yield from ((code.value, kind.status) for code in codes if isinstance(code, ast.Constant))


def test_every_error_stands_on_the_page_of_errors_with_its_status() -> None:
    page, fields = (Page(Path("proxy/client", name)).text for name in ("ERRORS.md", "FIELDS.md"))
    rows = re.findall(r"^\| (\d{3}) \| ([^|]*)\|", page, re.MULTILINE)
    told = {(code, int(status)) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert {(code, status) for code, status in raised() if f"`{code}`" not in fields} - told == set()
    assert [code for code, _ in told if code not in TEXTS] == []


@for_every(PAGES)
def test_every_reason_in_an_example_exists(page: Page) -> None:
    assert set(re.findall(r'"reason": "([^"]+)"', page.text)) - {*Reason} == set()


@for_every(PAGES)
def test_a_link_that_is_called_like_a_file_leads_to_this_file(page: Page) -> None:
    for called, link in re.findall(r"\[`([\w./*-]+\.(?:py|md|yaml|json))`\]\(([^)#]+)\)", page.text):
        assert PurePosixPath(link).name == PurePosixPath(called).name, called


@for_every(PAGES)
def test_commands_within_a_text_exist_with_their_options(page: Page) -> None:
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", page.text, flags=re.DOTALL | re.MULTILINE))
    for code in inline:
        if called := re.match(r"(?:pytest(?: -s)?|python -m) (tests[\w./]+|tests)", code):
            path = ROOT / called[1].replace(".", "/") if code.startswith("python") else ROOT / called[1]
            assert path.exists() or path.with_suffix(".py").exists(), code
        elif words := re.match(r"stratiform ([a-z][a-z-]+)(.*)", code):
            assert words[1] in COMMANDS, code
            given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", words[2]))
            assert given <= {line.split()[-1] for line in LINES if line.startswith(f"option {words[1]} ")}, code


def test_pages_say_how_many_changes_the_tests_must_notice() -> None:
    for place in ("CONTRIBUTING.md", "tests/README.md", "Makefile"):
        assert f"{LEAST_KILLED * 100:.0f} %" in (ROOT / place).read_text("utf-8"), place
