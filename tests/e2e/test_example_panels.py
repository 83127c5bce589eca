"""The example program, through the real proxy to a model in the same process: panels follow the folder."""

from pathlib import Path

import orjson
import pytest

from proxy.client import Context
from proxy.client.example_panels import main, refresh, talk
from tests.e2e.conftest import Start
from tests.e2e.provider import Scripted, completion, embedded_app, new_embedded, replies


def test_the_program_answers_each_question(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "TODO.md").write_text("- write tests\n" * 500, "utf-8")
    proxy = start(embedded_app(new_embedded()))
    where = ["--base-url", f"{proxy.url}/v1", "--model", "m", "--folder", str(tmp_path)]
    main([*where, "What is left to do?", "And then?"])
    answers = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert len(answers) == 2
    assert ", 0 of them from the cache]" in answers[0]
    assert ", 0 of them from the cache]" not in answers[1]
    assert all("panels-shown" in settled.planned.plan.edits for settled in proxy.ledger.wait(2))  # type: ignore[union-attr]


def test_a_task_that_is_done_reaches_the_model_with_the_next_question(start: Start, tmp_path: Path) -> None:
    provider = Scripted(replies(completion()))
    proxy = start(provider)
    todo = tmp_path / "TODO.md"
    tasks = iter(["- write\n- test", "- test"])

    def changed() -> None:
        todo.write_text(next(tasks), "utf-8")
        refresh(context, tmp_path, todo)

    context = Context("s", detach=True)
    answers = list(talk(proxy.client, "m", context, ["first", "second"], changed))
    assert len(answers) == 2
    bodies = [orjson.loads(seen.body)["messages"] for seen in provider.seen]
    shown = [[message["content"] for message in body if message["role"] == "tool"] for body in bodies]
    assert "======= [todo] Tasks =======\n- write\n- test" in shown[0]
    assert "======= [todo] Tasks =======\n- test" in shown[1]
    assert "======= [todo] Tasks =======\n- write\n- test" not in shown[1]
    assert all(f"======= [tree] Files of {tmp_path.name} =======\nTODO.md" in each for each in shown)
