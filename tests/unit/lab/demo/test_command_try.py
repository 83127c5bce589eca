"""``stratiform try``: what a newcomer sees of the cache, of a proxy in the process and of one that runs."""

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from proxy.app.settings import Environment, load
from proxy.cli import main
from proxy.lab.demo import command
from proxy.lab.demo.command import running
from proxy.protocol.request.tokens import bytes_over_four

CONFIG = """
model_list:
  - {model_name: house, litellm_params: {model: embedded/gpt-4o}, model_info: {cache_profile: PROFILE}}
general_settings: {master_key: sk-master}
stratiform: {port: PORT, store: memory, log_level: warning}
"""


@pytest.fixture
def profile() -> str:
    return "openai"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str) -> Iterator[Path]:
    """The configuration of a proxy that runs, as ``config.yaml`` in the working folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("PORT", str(port)).replace("PROFILE", profile))
    monkeypatch.chdir(tmp_path)
    for name in ("STRATIFORM_API_KEY", "STRATIFORM_MASTER_KEY", "LITELLM_MASTER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running(load(path, environment=Environment({})), bytes_over_four, tells=True):
        yield path


def test_offline_it_shows_a_saving_in_three_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--embedded"]) == 0
    before, read, cost, without = capsys.readouterr().out.splitlines()
    assert "4 requests" in before
    assert before.endswith("It costs nothing: the provider is one in this process, with Anthropic's rules.")
    assert read.startswith("Read from the cache: 1")
    assert cost.startswith("Cost: 0.0")
    assert without.startswith("Without Stratiform it would have been 0.0")
    assert without.endswith("% are saved.")


def test_a_running_proxy_is_found_by_its_configuration_with_its_master_key(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    assert main(["try", "--yes"]) == 0
    before, read, cost, without = capsys.readouterr().out.splitlines()
    assert "`house`" in before
    assert "It costs about 0.0" in before
    assert "written: 0." in read
    assert cost.startswith("Cost: 0.0")
    # This provider caches on its own, whoever sends the conversation.
    assert without.endswith("for such a conversation it adds nothing.")


@pytest.mark.parametrize("profile", ["none"])
def test_where_nothing_is_cached_it_says_where_to_look(
    capsys: pytest.CaptureFixture[str], config: Path, profile: str
) -> None:
    assert main(["try"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Nothing was read (mode ")
    assert last.endswith("`stratiform check-config` shows which cache profile the model has.")


def test_programs_get_the_sums(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    assert main(["try", "--json", "--model", "house"]) == 0
    used = json.loads(capsys.readouterr().out)
    assert (used["model"], used["requests"]) == ("house", 4)
    assert used["prompt_tokens"] > used["cache_read_tokens"] > 4 * 1024
    assert used["cost_usd"] > 0


def test_who_says_no_spends_nothing(
    capsys: pytest.CaptureFixture[str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    with pytest.raises(SystemExit) as ended:
        main(["try"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "gone"], "error: the answer has status 404: The model 'gone' is not in this proxy's model list"),
        (["--url", "http://127.0.0.1:1/v1"], "error: no proxy listens at http://127.0.0.1:1: start `stratiform serve`"),
    ],
)
def test_what_goes_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], config: Path, words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["try", *words])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_key_that_the_proxy_does_not_know_is_told(
    capsys: pytest.CaptureFixture[str], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    url = config.read_text().partition("port: ")[2].partition(",")[0]
    with pytest.raises(SystemExit):
        main(["try", "--url", f"http://127.0.0.1:{url}"])
    err = capsys.readouterr().err
    assert err.startswith("error: the answer has status 401: ")
    assert "sk-wrong" not in err


@pytest.mark.parametrize(
    "body",
    [b'{"error": "no such path"}', b'{"detail": "no such path"}', b'["no such path"]', b'"no such path"'],
)
def test_an_error_of_another_form_is_told_with_its_status(capsys: pytest.CaptureFixture[str], body: bytes) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.handle_request).start()
        with pytest.raises(SystemExit):
            main(["try", "--url", f"http://127.0.0.1:{server.server_port}"])
    err = capsys.readouterr().err
    assert err.startswith("error: the answer has status 404: ")
    assert "no such path" in err
