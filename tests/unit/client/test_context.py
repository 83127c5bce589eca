"""A context sends each content once, says what happened once, and believes nothing that no answer has confirmed."""

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.client import MOST_DELIVERED, Context, Minimum, review_digest, text_digest
from proxy.context import form, split
from proxy.context.form import DetachJson, StructuredForm, read_form, review_json
from proxy.context.session import Uploads
from proxy.kit.errors import MissingContent
from proxy.prompts.assembler import read_wish
from proxy.prompts.window import read_parts

CLIENT = Path(__file__).parents[3] / "proxy" / "client"
SCHEMA = jsonschema.Draft202012Validator(json.loads((CLIENT / "schema.json").read_text("utf-8")))


def read(body: dict[str, Any]) -> StructuredForm:
    found = read_form(json.dumps(body).encode())
    assert found is not None
    return found


def test_a_content_is_sent_once_and_named_afterwards() -> None:
    context = Context("s")
    context.select("a.py", "x = 1")
    context.show("b.py", "y = 1")
    first = context.body()
    assert first == {
        "session": "s",
        "files": [{"path": "a.py", "content": "x = 1", "selected": True}, {"path": "b.py", "content": "y = 1"}],
    }
    assert context.body() == first
    context.delivered(first)
    assert context.body()["files"] == [
        {"path": "a.py", "digest": text_digest("x = 1"), "selected": True},
        {"path": "b.py", "digest": text_digest("y = 1")},
    ]
    context.select("b.py", "y = 2")
    assert [sorted(file) for file in context.body()["files"]] == [
        ["digest", "path", "selected"],
        ["content", "path", "selected"],
    ]
    assert all("content" in file for file in context.body(whole=True)["files"])


def test_what_the_proxy_lacks_is_sent_again() -> None:
    context = Context()
    for name in "ab":
        context.select(name, name)
    context.delivered(context.body())
    context.missing([text_digest("b"), "0" * 64])
    assert ["content" in file for file in context.body()["files"]] == [False, True]


def test_a_content_that_was_changed_on_its_way_is_not_believed_to_be_delivered() -> None:
    context = Context()
    context.select("a", "old")
    body = context.body()
    context.select("a", "new")
    context.delivered(body)
    assert context.body()["files"][0]["content"] == "new"
    context.select("a", "old")
    assert context.body()["files"][0]["digest"] == text_digest("old")


def test_the_oldest_digests_are_forgotten_and_their_contents_sent_again() -> None:
    context = Context()
    texts = ["first", *map(str, range(MOST_DELIVERED))]
    context.delivered({"files": [{"path": text, "content": text} for text in texts[:-1]]})
    context.delivered({"files": [{"path": "first", "content": "first"}]})
    context.delivered({"files": [{"path": "last", "content": texts[-1]}]})
    for text in ("first", texts[1], texts[2], texts[-1]):
        context.select(text, text)
    assert ["content" in file for file in context.body()["files"]] == [False, True, False, False]


def test_files_without_text() -> None:
    context = Context()
    context.select("a.bin", None)
    context.show("b.py")
    context.set_symbols("b.py", "b.py:")
    assert context.body()["files"] == [{"path": "a.bin", "content": None, "selected": True}, {"path": "b.py"}]
    assert [file.text for file in read(context.body()).context.files] == [None, None]
    with pytest.raises(ValueError, match="surrogate"):
        context.select("c", "\ud800")


def test_a_path_is_one_in_every_spelling() -> None:
    context = Context()
    context.select("./src/../a.py", "1")
    context.select(PurePosixPath("a.py"), "2")
    context.show(PureWindowsPath("src\\b.py"), "3")
    assert [(file["path"], file["content"]) for file in context.body()["files"]] == [("a.py", "2"), ("src/b.py", "3")]
    context.hide("src/./b.py")
    assert [file["path"] for file in context.body()["files"]] == ["a.py"]


def test_what_happened_is_said_until_a_request_arrives() -> None:
    context = Context()
    context.select("a", "x")
    context.set_symbols("a", "a:")
    context.remove("./a")
    context.mark_modified("b")
    context.mark_broken("L1", "L0")
    context.add_image("data:,x")
    context.drop_review()
    body = context.body()
    assert body == {
        "files": [],
        "removed": ["a"],
        "modified": ["b"],
        "broken": ["L1", "L0"],
        "images": ["data:,x"],
        "review": None,
    }
    context.remove("c")
    context.add_image("data:,y")
    assert context.body()["removed"] == ["a", "c"]
    context.delivered(body)
    assert context.body() == {"files": [], "removed": ["c"], "images": ["data:,y"]}
    context.select("c", "again")
    assert "removed" not in context.body()


def test_a_review_is_sent_once_and_named_afterwards() -> None:
    context = Context()
    context.set_review(branch="b", commits=("c",), reverse_diffs={"./a": "-é"})
    body = context.body()
    form = read(body)
    assert form.review.digest == review_digest(body["review"])  # type: ignore[union-attr]
    context.delivered(body)
    assert context.body()["review"] == {"digest": review_digest(body["review"])}
    context.missing([review_digest(body["review"])])
    assert context.body()["review"] == body["review"]
    context.drop_review()
    assert context.body()["review"] is None


def test_the_tree_pages_and_settings_are_sent_each_time() -> None:
    context = Context(assembly="flat", use_repo_map=False)
    context.tree(["./a", "a", PurePosixPath("b")])
    context.add_url("u", "old")
    context.add_url("u", "new", title="t")
    context.add_url("v", "x", symbols="s")
    context.set_legend("l")
    expected = {
        "files": [],
        "legend": "l",
        "tree": ["a", "b"],
        "urls": [{"url": "u", "content": "new", "title": "t"}, {"url": "v", "content": "x", "symbols": "s"}],
        "assembly": "flat",
        "use_repo_map": False,
    }
    assert context.body() == expected
    context.delivered(context.body())
    assert context.body() == expected
    context.tree(True)
    context.drop_url("v")
    assert (context.body()["tree"], len(context.body()["urls"])) == (True, 1)
    context.tree(False)
    assert "tree" not in context.body()


def test_what_a_caller_does_with_a_body_does_not_change_the_context() -> None:
    context = Context()
    context.tree(["a"])
    context.add_image("data:,x")
    context.set_panel("a", "x")
    context.delete(1)
    before = context.body()
    body = context.body()
    body["tree"].append("b")
    body["images"].append("data:,y")
    body["panels"][0]["content"] = "y"
    body["messages_meta"][0]["index"] = 2
    assert context.body() == before


def test_what_a_caller_does_with_its_minimums_does_not_change_the_context() -> None:
    minimums: dict[Minimum, int] = {"chunk_tokens": 5}
    context = Context(detach=minimums)
    minimums["chunk_tokens"] = 6
    context.body()["detach"]["chunk_tokens"] = 7
    assert context.body()["detach"] == {"chunk_tokens": 5}


def test_panels_are_sent_as_they_are_now_in_the_order_in_which_they_were_first_set() -> None:
    context = Context()
    context.set_panel("todo", "- write", kind="todo", header="Tasks")
    context.set_panel("tree", "a.py")
    context.set_panel("todo", "- test")
    assert context.panels == ("todo", "tree")
    assert context.body() == {
        "files": [],
        "panels": [{"id": "todo", "content": "- test"}, {"id": "tree", "content": "a.py"}],
    }
    context.delivered(context.body())
    assert len(context.body()["panels"]) == 2
    context.drop_panel("todo")
    context.drop_panel("unknown")
    context.set_panel("todo", "")
    assert context.panels == ("tree", "todo")


def test_a_panel_that_cannot_be_written_in_utf_8_is_refused_and_the_one_before_stays() -> None:
    context = Context()
    context.set_panel("a", "x", header="h")
    for content, header in (("\ud800", ""), ("", "\udfff")):
        with pytest.raises(ValueError, match="'a' holds half of a surrogate pair"):
            context.set_panel("a", content, header=header)
    assert context.body()["panels"] == [{"id": "a", "content": "x", "header": "h"}]


def test_the_rules_of_the_history_hold_on_after_the_last_panel_is_dropped() -> None:
    context = Context()
    assert not read({"session": "s", **context.body()}).has_history
    context.set_panel("a", "x")
    context.drop_panel("a")
    assert context.body() == {"files": [], "panels": []}
    assert read(context.body()).has_history


def test_what_is_said_of_a_message_stays_until_it_is_forgotten() -> None:
    context = Context()
    context.detach(4)
    context.delete(2)
    context.summarize(3, "In short.")
    expected = [
        {"index": 2, "status": "deleted"},
        {"index": 3, "status": "summarized", "tl_dr": "In short."},
        {"index": 4, "status": "detached"},
    ]
    assert context.body()["messages_meta"] == expected
    context.delivered(context.body())
    context.summarize(4, "Shorter.")
    context.forget(2)
    context.forget(9)
    assert [meta["status"] for meta in context.body()["messages_meta"]] == ["summarized", "summarized"]
    context.forget_all()
    assert "messages_meta" not in context.body()
    assert context.body()["panels"] == []


@pytest.mark.parametrize("say", [lambda context: context.delete(-1), lambda context: context.summarize(1, " \n")])
def test_what_the_proxy_would_refuse_of_a_message_is_refused_at_once(say: Callable[[Context], None]) -> None:
    context = Context()
    with pytest.raises(ValueError, match="index|text"):
        say(context)
    assert context.body() == {"files": []}


@pytest.mark.parametrize("detach", [True, False, {"chunk_messages": 2, "keep_tokens": 9}])
@pytest.mark.parametrize("compaction", [True, False])
def test_detaching_and_compaction_are_asked_for_in_each_request(
    detach: bool | dict[Minimum, int], compaction: bool
) -> None:
    body = Context("s", detach=detach, compaction=compaction).body()
    form = read(body)
    wish = DetachJson(**detach) if isinstance(detach, dict) else detach
    assert (form.detach, form.compaction) == (wish, compaction)
    assert form.has_history is bool(detach)
    body["detach"] = None
    assert read(Context(detach=detach).body()).detach == wish


_paths = st.sampled_from(["a", "b", "./a", "c\\d", "/a", "//a", "\\\\a"])
_texts = st.sampled_from(["", "x", "y", "é" * 400])


def _plain(path: str) -> str:
    return path.removeprefix("./").replace("\\", "/").replace("//", "/")


class Conversation(RuleBasedStateMachine):
    """A client, and a proxy that forgets, refuses and loses requests."""

    def __init__(self) -> None:
        super().__init__()
        self.context = Context()
        self.shown: dict[str, str] = {}
        self.uploads = Uploads(3_000)

    @rule(path=_paths, text=_texts, selected=st.booleans())
    def lists(self, path: str, text: str, selected: bool) -> None:
        (self.context.select if selected else self.context.show)(path, text)
        self.shown[_plain(path)] = text

    @rule(path=_paths)
    def removes(self, path: str) -> None:
        self.context.remove(path)
        self.shown.pop(_plain(path), None)

    @rule(log=_texts)
    def reviews(self, log: str) -> None:
        self.context.set_review(log=log)

    @rule(id=st.sampled_from(["P1", "P2", "chat"]), content=_texts, kind=st.sampled_from(["", "todo"]), header=_texts)
    def sets_a_panel(self, id: str, content: str, kind: str, header: str) -> None:
        self.context.set_panel(id, content, kind=kind, header=header)

    @rule(id=st.sampled_from(["P1", "P2", "chat"]))
    def drops_a_panel(self, id: str) -> None:
        self.context.drop_panel(id)

    @rule(index=st.integers(0, 5), how=st.sampled_from(["delete", "detach", "forget"]))
    def says_something_of_a_message(self, index: int, how: str) -> None:
        getattr(self.context, how)(index)

    @rule(index=st.integers(0, 5), tl_dr=_texts.filter(bool))
    def summarizes_a_message(self, index: int, tl_dr: str) -> None:
        self.context.summarize(index, tl_dr)

    @rule()
    def loses_a_request(self) -> None:
        self.uploads.resolve(read(self.context.body(whole=True)), "s")

    @rule()
    def forgets(self) -> None:
        self.uploads = Uploads(3_000)

    @rule()
    def asks(self) -> None:
        for attempt in range(3):
            body = self.context.body(whole=attempt == 2)
            try:
                resolved = self.uploads.resolve(read(body), "s")
            except MissingContent as error:
                self.context.missing(error.missing)
                continue
            self.context.delivered(body)
            assert {file.path: file.text for file in resolved.context.files} == self.shown
            assert not resolved.context.removed & set(self.shown)
            return
        raise AssertionError("the last attempt has all contents")

    @invariant()
    def is_valid(self) -> None:
        body = self.context.body()
        form = read(body)
        SCHEMA.validate(body)
        assert [panel.id for panel in form.panels] == list(self.context.panels)


TestConversation = Conversation.TestCase


def test_prompts_and_a_window_alone_are_no_structured_context() -> None:
    context = Context()
    context.set_prompts(persona="terse", tools=False, context={"custom": {"a": 1}}, extra=[
        {"id": "mine", "position": "user_suffix", "text": "Be brief."}
    ])  # fmt: skip
    context.set_window(profile="chat_ops", summary="s", virtual_files=[{"id": "f", "content": "c", "active": True}])
    body = context.body()
    SCHEMA.validate(body)
    section = split(json.dumps(body).encode())
    assert section.rest is None
    assert section.prompts is not None
    assert section.window is not None
    wish, parts = read_wish(section.prompts), read_parts(section.window)
    assert (wish.persona, wish.tools, wish.plugins, wish.context) == ("terse", False, None, {"custom": {"a": 1}})
    assert [(extra.id, extra.text) for extra in wish.extras] == [("mine", "Be brief.")]
    assert (parts.profile, parts.texts) == ("chat_ops", {"summary": "s"})
    assert [(file.id, file.is_active) for file in parts.virtual_files] == [("f", True)]


def test_what_is_asked_of_prompts_stands_beside_the_files_until_it_is_set_again() -> None:
    context = Context()
    context.select("a.py", "x = 1")
    context.set_prompts(override="Verbatim.")
    context.set_window(profile="chat")
    body = context.body()
    SCHEMA.validate(body)
    assert (body["prompts"], body["window"]) == ({"override": "Verbatim."}, {"profile": "chat"})
    assert [file["path"] for file in body["files"]] == ["a.py"]
    context.set_prompts()
    context.set_window()
    assert context.body().keys() == {"files"}


texts = st.text(st.characters(codec="utf-8"))


@given(texts)
def test_texts_have_the_digest_that_the_proxy_computes(text: str) -> None:
    assert text_digest(text) == form.text_digest(text)


def test_a_text_that_has_no_utf_8_has_no_digest() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        text_digest("\ud83d")


@given(st.dictionaries(texts, st.none() | texts | st.lists(texts) | st.dictionaries(texts, texts)))
def test_reviews_have_the_digest_that_the_proxy_computes(fields: dict[str, object]) -> None:
    assert review_digest(fields) == form.text_digest(review_json(fields))
