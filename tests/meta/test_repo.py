"""The repository agrees with itself: versions, documents, targets, container image, prompts, packaging."""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import proxy
from proxy.app.settings.schema import Stratiform
from proxy.cli import serve
from tests.documents import Page, pages
from tests.examples import for_every

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", text("CHANGELOG.md"), re.MULTILINE)
    assert proxy.__version__ == PROJECT["version"]
    assert not released or released[0] == PROJECT["version"]


def test_the_changelog_starts_with_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.*)$", text("CHANGELOG.md"), re.MULTILINE)
    groups = set(re.findall(r"^### (.*)$", text("CHANGELOG.md"), re.MULTILINE))
    assert headings[0] == "[Unreleased]"
    assert groups <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_licence_is_the_one_that_the_project_names() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text("LICENSE"))
    assert "END OF TERMS AND CONDITIONS" in text("LICENSE")


# Makefile


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))


def test_make_alone_lists_every_target() -> None:
    make = shutil.which("make")
    assert make, "make is part of what the project needs"
    listed = subprocess.run([make], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) ", listed, re.MULTILINE)) == targets()


@for_every(pages())
def test_pages_name_only_targets_that_exist(page: Page) -> None:
    code = re.findall(r"```.*?```|`[^`\n]+`", page.text, re.DOTALL)
    named = {name for part in code for name in re.findall(r"(?:^|\n|`)make ([a-z][a-z-]*)", part)}
    assert named <= targets()


# Container image


def instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text("Dockerfile"), flags=re.MULTILINE))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def argument(name: str) -> str:
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def test_the_image_copies_files_that_exist_and_are_not_ignored() -> None:
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    allowed = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    assert "*" in text(".dockerignore").splitlines()
    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_image_contains_every_package_of_the_wheel() -> None:
    packages = tomllib.loads(text("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = {rest.split()[0] for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")}
    assert set(packages) <= copied


def test_the_image_runs_the_command_on_the_port_that_it_exposes_and_not_as_root() -> None:
    assert yaml.safe_load(argument("ENTRYPOINT")) == ["stratiform"]
    assert "stratiform" in PROJECT["scripts"]
    assert int(argument("EXPOSE")) == Stratiform().port
    assert f":{Stratiform().port}/healthz" in argument("HEALTHCHECK")
    assert int(argument("USER")) > 0


def test_the_image_serves_the_file_that_its_first_lines_say_to_mount() -> None:
    command, *words = yaml.safe_load(argument("CMD"))
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    arguments = parser.parse_args(words)
    assert command == "serve"
    assert (arguments.host, arguments.port, arguments.upstream) == ("0.0.0.0", int(argument("EXPOSE")), "")
    assert f":{arguments.config}:ro" in text("Dockerfile").partition("FROM")[0]


def test_uv_is_the_same_in_the_makefile_and_in_the_image() -> None:
    pinned = re.search(r"^UV_VERSION := (\S+)$", text("Makefile"), re.MULTILINE)
    assert pinned
    assert f"uv=={pinned[1]}" in text("Dockerfile")


# Prompts


def prompts(folder: str = "prompts") -> dict[str, tuple[dict[str, object], str]]:
    found = {}
    for path in sorted((ROOT / folder).glob("*.md")):
        if path.name != "README.md":
            _, front, body = path.read_text("utf-8").split("---\n", 2)
            found[path.stem] = (yaml.safe_load(front), body)
    return found


@pytest.mark.parametrize(
    ("folder", "known", "positions"),
    [
        (
            "prompts",
            "system_reminder",
            {"system", "last_user", "legend", "header", "acknowledgement", "own_call", "panels"},
        ),
        ("prompts/tiered_assembly", "working_files", {"header", "acknowledgement"}),
        ("prompts/window", "selection", {"header"}),
    ],
)
def test_prompts_have_the_documented_front_matter(folder: str, known: str, positions: set[str]) -> None:
    assert known in prompts(folder)
    assert {front["position"] for front, _ in prompts(folder).values()} == positions
    for name, (front, body) in prompts(folder).items():
        assert front["id"] == name
        assert isinstance(front["version"], int)
        assert front["description"]
        assert body.strip()


@pytest.mark.parametrize(
    ("folder", "page", "head"),
    [
        ("prompts", "prompts", "| prompt |"),
        ("prompts/tiered_assembly", "prompts/tiered_assembly", "| text |"),
        ("prompts/window", "prompts", "| part |"),
    ],
)
def test_prompts_are_listed_and_no_other(folder: str, page: str, head: str) -> None:
    table = text(f"{page}/README.md").partition(head)[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)) == sorted(prompts(folder))


# Independence of the fidelity checker


def test_the_fidelity_checker_imports_nothing_of_what_it_checks() -> None:
    files = [path for path in (ROOT / "tests" / "fidelity").rglob("*.py") if not path.name.startswith("test_")]
    assert files
    imported = {
        (path.name, name)
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in _imported(node)
        if name.split(".")[0] in ("proxy", "plugins")
    }
    assert imported == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


# Packaging


@pytest.mark.slow
def test_the_wheel_carries_code_and_prompts_and_nothing_else(tmp_path: Path) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tools" / "bin"))
    if uv is None:
        assert not os.environ.get("CI"), "`make setup` installs uv"
        pytest.skip("uv is not here; `make setup` installs it")
    command = [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT))
        for folder in ("proxy", "plugins", "prompts")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert sources <= names
    for folder in ("prompts", "prompts/tiered_assembly", "prompts/window"):
        assert {f"{folder}/{name}.md" for name in prompts(folder)} <= names
    assert {name.split("/")[0] for name in names} == {
        "proxy",
        "plugins",
        "prompts",
        f"stratiform-{PROJECT['version']}.dist-info",
    }
