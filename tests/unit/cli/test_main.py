"""The command line as a whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS, main
from tests.examples import chosen, sampled


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown and summary in shown for name, (_, summary) in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"stratiform {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["bogus"], ["serve", "--bogus"], ["check-config"], ["serve", "--port", "65536"]])
def test_what_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: stratiform" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"stratiform {__version__}\n"


def test_problems_of_a_configuration_are_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 1
    assert capsys.readouterr().err == "error: nothing to forward to: give --config FILE or --upstream URL\n"


def test_names_in_problems_cannot_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = "model_list: [{model_name: m, litellm_params: {model: embedded/claude}}]\n"
    (tmp_path / "config.yaml").write_text(models + r'router_settings: {model_group_alias: {a: "\e[2J"}}')
    assert main(["prices", "check", "--config", str(tmp_path / "config.yaml")]) == 1
    assert r"leads to `\x1b[2J`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["keys", "list", "--store", "sqlite:x"], ["prompts", "diff", "HEAD:x", "HEAD:y"]])
def test_a_command_in_a_folder_that_was_deleted_fails_with_one_line(words: list[str], tmp_path: Path) -> None:
    (folder := tmp_path / "gone").mkdir()
    where = f"import os, sys; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})"
    code = f"{where}; from proxy.cli import main; sys.exit(main({words!r}))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_only_the_command_that_is_run_is_imported() -> None:
    code = "import sys; from proxy.cli import main\ntry: main(['check-config', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'proxy.cli.check_config' in sys.modules and 'proxy.cli.serve' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


_SCRIPT = f"{sys.executable} -c 'import sys, proxy.kit; sys.exit(proxy.kit.main())'"
_INTERRUPTED = """
import os, signal, sys
from importlib.metadata import entry_points

class Interrupting:
    left = int(sys.argv[1])

    def find_spec(self, *_):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGINT)

(script,) = entry_points(group="console_scripts", name="stratiform")
main = script.load()
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["check-config"]
sys.exit(main())
"""


@pytest.mark.parametrize("modules", [1, 60])
def test_an_interrupt_while_modules_load_is_quiet(modules: int) -> None:
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED, str(modules)], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


_PROMPT = "---\nid: greeting\nversion: 1\ndescription: greets\nposition: system\npriority: 100\n---\nHello.\n"


@pytest.mark.parametrize(
    "redirected", sampled(["| true", "> /dev/full", "<&- >&- 2>&-", "--json | true", "--json > /dev/full"], 3)
)
def test_an_output_that_takes_nothing_ends_a_command_without_a_traceback(redirected: str, tmp_path: Path) -> None:
    (tmp_path / "greeting.md").write_text(_PROMPT)
    command = f"{_SCRIPT} prompts list --folder {tmp_path} {redirected}"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, text=True)
    is_full = "full" in redirected
    assert ended.returncode == is_full
    assert ended.stderr == ("error: the output cannot be written: No space left on device\n" if is_full else "")


@pytest.mark.parametrize("encoding", chosen(["ascii", "cp1252", "utf-8"], "ascii"))
def test_what_the_encoding_of_the_output_lacks_is_written_as_json_writes_it(encoding: str, tmp_path: Path) -> None:
    (folder := tmp_path / "Gr\u00fc\u00dfe \u2026 \U0001f600").mkdir()
    (folder / "greeting.md").write_text(_PROMPT)
    command = f"{_SCRIPT} prompts list --json --folder '{folder}'"
    environment = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": encoding}
    shown = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=environment).stdout
    assert folder.name in str(json.loads(shown.decode(encoding)))
