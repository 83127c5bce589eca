"""The same turns in every form."""

from hashlib import sha256
from typing import Any

import pytest

from plugins.aider import AiderRecogniser
from proxy.lab.demo import Sending
from proxy.lab.demo.chats import RULES
from proxy.lab.demo.structured import GOALS, PACKAGE, FileTurn, TurnForm, busy, installed_files, sendings, turns
from proxy.protocol.recognition import MessageKind, PieceKind
from tests.examples import sampled

STRUCTURED = [form for form in TurnForm if form.is_structured]


@pytest.fixture(scope="module")
def steps() -> list[FileTurn]:
    return list(turns(busy(PACKAGE, installed_files(PACKAGE), 9)))


def section(sending: Sending) -> dict[str, Any]:
    found: dict[str, Any] = sending.body["extra_body"]["stratiform"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", sampled(TurnForm, 3))
def test_system_prompt_history_and_prompt_are_the_same_in_all_forms(form: TurnForm, steps: list[FileTurn]) -> None:
    for turn, sending in zip(steps, sendings(form, steps, "s"), strict=True):
        messages = sending.body["messages"]
        assert messages[0] == {"role": "system", "content": RULES}
        assert messages[1 : 1 + len(turn.done)] == list(turn.done)
        assert messages[-1] == {"role": "user", "content": turn.prompt}
        assert len(messages) == len(turn.done) + (2 if form.is_structured else 4)


@pytest.mark.slow
def test_forms_that_are_compared_show_the_same_full_texts(steps: list[FileTurn]) -> None:
    for form, (other, _) in GOALS.items():
        if form is TurnForm.SYMBOLS:
            continue
        for one, two in zip(sendings(form, steps, "s"), sendings(other, steps, "s"), strict=True):
            assert one.wanted.contents == two.wanted.contents
    symbols = list(sendings(TurnForm.SYMBOLS, steps, "s"))
    selected = list(sendings(TurnForm.EDITOR_SELECTED, steps, "s"))
    assert [one.wanted.contents for one in symbols] == [one.wanted.contents for one in selected]


@pytest.mark.parametrize("form", STRUCTURED)
def test_a_content_is_sent_once_and_then_named_by_its_digest(form: TurnForm, steps: list[FileTurn]) -> None:
    known: dict[str, str] = {}
    for turn, sending in zip(steps, sendings(form, steps, "s"), strict=True):
        for file in section(sending)["files"]:
            text = turn.files[file["path"]]
            if "content" in file:
                assert file["content"] == text
                digest = sha256(text.encode()).hexdigest()
                assert digest not in known
                known[digest] = text
            else:
                assert known[file["digest"]] == text
    assert len(known) > 9


def test_a_structured_turn_selects_what_is_shown_in_full(steps: list[FileTurn]) -> None:
    for form in STRUCTURED:
        for turn, sending in zip(steps, sendings(form, steps, "s"), strict=True):
            files = section(sending)["files"]
            assert {file["path"] for file in files if file.get("selected")} == set(sending.wanted.contents)
            assert section(sending).get("use_repo_map", True) is (form is TurnForm.SYMBOLS)
            assert len(files) == len(turn.selected if form is TurnForm.FULL_SELECTED else turn.files)


@pytest.mark.parametrize("form", [TurnForm.EDITOR_ALL, TurnForm.EDITOR_SELECTED])
def test_an_editor_shows_its_files_in_the_form_that_is_recognised(form: TurnForm, steps: list[FileTurn]) -> None:
    for sending in sendings(form, steps, "s"):
        shown = sending.body["messages"][-3]["content"]
        found = AiderRecogniser().recognise("user", shown)
        assert found.form is MessageKind.CONTEXT
        cuts = {cut.key: shown[cut.start : cut.end] for cut in found.cuts if cut.kind is PieceKind.FILE}
        assert list(cuts) == [f"file:{path}" for path in sending.wanted.contents]
        assert all(text in cuts[f"file:{path}"] for path, text in sending.wanted.contents.items())
