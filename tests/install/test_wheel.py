"""The wheel in environments of their own: an empty one, with the newest and the oldest versions that it takes, and
those of LiteLLM's proxy, of which it changes no version."""

import json
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS
from tests.install.environments import Place, asked, uv
from tests.unit.lab.replay.sessions import growing, lines, write

pytestmark = pytest.mark.slow

CONSTRAINTS = sorted(Path(__file__).parent.glob("constraints-litellm-*.txt"))
CONFIG = """
model_list: [{model_name: m, litellm_params: {model: embedded/claude}}]
stratiform: {store: memory, log_format: json}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder))
    (built,) = folder.glob("*.whl")
    return str(built)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.new(tmp_path)


@pytest.mark.parametrize("versions", ["highest", "lowest-direct"])
def test_an_empty_environment_gets_all_that_is_needed(versions: str, wheel: str, place: Place) -> None:
    place.install("--resolution", versions, wheel)
    assert place.run("--version") == f"stratiform {__version__}\n"
    for name in COMMANDS:
        assert f"stratiform {name}" in place.run(name, "--help")
    sessions_are_replayed_and_a_chat_is_served(place)


@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=lambda path: path.stem.removeprefix("constraints-"))
def test_no_version_changes_in_an_environment_of_litellms_proxy(constraints: Path, wheel: str, place: Place) -> None:
    place.install("--no-deps", "--requirements", str(constraints))
    before = place.versions()
    place.install(wheel)
    after = place.versions()
    assert {name: after.get(name) for name in before} == before
    assert before["litellm"].startswith(constraints.stem.rpartition("-")[2])
    assert "stratiform" in after
    sessions_are_replayed_and_a_chat_is_served(place)


def test_three_minor_releases_of_litellm_are_tried() -> None:
    assert len(CONSTRAINTS) >= 3


def sessions_are_replayed_and_a_chat_is_served(place: Place) -> None:
    trace = str(write(place.folder / "chat.jsonl", lines(growing(6))))
    assert json.loads(place.run("explain", trace, "--json"))["requests"] == 6
    (replayed,) = json.loads(place.run("replay", trace, "--json"))["traces"]
    assert (replayed["requests"], replayed["violations"]) == (6, [])
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    with place.serving(CONFIG) as (url, logged):
        answer, headers = asked(url, body)
        assert answer["choices"][0]["message"]["content"]
    (line,) = [found for found in map(json.loads, logged) if found["message"] == "exchange"]
    assert (line["id"], line["status"], line["prompt"]) == (
        headers["x-stratiform-id"],
        200,
        answer["usage"]["prompt_tokens"],
    )
