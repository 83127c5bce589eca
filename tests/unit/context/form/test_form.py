"""The section ``stratiform``: what each field becomes, and what a mistake in it is called."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proxy.context import ContextFile, FetchedPage, Review
from proxy.context.form import FormJson, FormReview, StructuredForm, detach_terms, read_form, text_digest
from proxy.context.history import DetachTerms, MessageMeta, Status
from proxy.context.panels import OWN_KIND, Panel
from proxy.kit.errors import InvalidRequest
from proxy.planner.tiers import Tier
from tests.examples import for_every

DIGEST = "0123456789abcdef" * 4


def read(**fields: Any) -> StructuredForm:
    found = read_form(json.dumps(fields, ensure_ascii=False).encode())
    assert found is not None
    return found


def refused(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        read_form(raw)
    assert error.value.status == 400
    return error.value


def refused_fields(**fields: Any) -> InvalidRequest:
    return refused(json.dumps(fields).encode())


@pytest.mark.parametrize("raw", [None, b"", b"null", b" null ", b"{}", b" { } "])
def test_a_section_that_says_nothing_is_no_form(raw: bytes | None) -> None:
    assert read_form(raw) is None


def test_every_field_is_read() -> None:
    form = read(
        files=[
            {"path": "src\\a.py", "content": "é = 1\n", "selected": True},
            {"path": "./b.py", "digest": DIGEST},
            {"path": "c.bin", "content": None, "selected": True},
            {"path": "d.py"},
        ],
        symbols=[{"path": "x/../d.py", "block": "d.py:\n  f"}],
        legend="f function",
        tree=["z.py", "/etc/hosts"],
        urls=[
            {"url": "https://a.example", "title": "A", "content": "text", "symbols": "map"},
            {"url": "u", "content": ""},
        ],
        review={"branch": "b", "commits": ["c1"], "reverse_diffs": {"./a": "-x"}},
        images=["https://a.example/i.png", "data:image/png;base64,AAAA"],
        session="s-1",
        removed=["old.py", "./old.py"],
        modified=["src/a.py"],
        broken=["L3", "L0"],
        assembly="flat",
    )
    assert form.context.files == (
        ContextFile("src/a.py", "é = 1\n", hashlib.sha256("é = 1\n".encode()).hexdigest(), True),
        ContextFile("b.py", None, DIGEST, False),
        ContextFile("c.bin", None, "", True),
        ContextFile("d.py", None, "", False),
    )
    assert (form.context.symbols, form.context.legend, form.context.tree) == (
        {"d.py": "d.py:\n  f"},
        "f function",
        ("z.py", "/etc/hosts"),
    )
    assert form.context.pages == (FetchedPage("https://a.example", "text", "A", "map"), FetchedPage("u", "", ""))
    assert form.review.review == Review(branch="b", commits=("c1",), reverse_diffs={"a": "-x"})
    assert form.context.images == ("https://a.example/i.png", "data:image/png;base64,AAAA")
    assert (form.context.session, form.is_flat) == ("s-1", True)
    assert (form.context.removed, form.context.modified) == ({"old.py"}, {"src/a.py"})
    assert form.context.broken == {Tier.L0, Tier.L3}


def test_null_counts_as_left_out_in_every_field_but_the_review() -> None:
    names = {field.name for field in msgspec.structs.fields(FormJson)} - {"review"}
    assert read(**dict.fromkeys(names)) == StructuredForm()
    form = read(files=[{"path": "a", "content": "x", "digest": None, "selected": None}])
    assert form == read(files=[{"path": "a", "content": "x"}])
    assert (form.review, form.drops_review) == (None, False)
    assert read(review=None) == StructuredForm(drops_review=True)


def test_a_digest_beside_an_empty_content_names_the_text() -> None:
    form = read(files=[{"path": "a", "content": None, "digest": DIGEST, "selected": True}])
    assert form.context.files == (ContextFile("a", None, DIGEST, True),)


def test_the_tree_may_be_that_of_the_listed_files() -> None:
    files = [{"path": "./b"}, {"path": "a"}]
    assert read(files=files, tree=True).context.tree == ("b", "a")
    assert read(files=files, tree=False).context.tree is None
    assert read(files=files).context.tree is None
    assert read(tree=[]).context.tree == ()


def test_without_a_repository_map_there_are_neither_tree_nor_symbols() -> None:
    form = read(tree=["a"], symbols=[{"path": "a", "block": "a:"}], legend="l", use_repo_map=False)
    assert (form.context.tree, form.context.symbols, form.context.legend, form.has_repo_map) == (None, {}, "", False)


def test_a_review_can_be_named_by_its_digest() -> None:
    assert read(review={"digest": DIGEST}).review == FormReview(DIGEST)
    assert read(review={"digest": DIGEST, "branch": None}).review == FormReview(DIGEST)


@for_every(
    [
        ({"file": []}, "file", "unknown_field"),
        ({"files": [{"path": "a", "text": ""}]}, "files[0].text", "unknown_field"),
        ({"urls": [{"url": "u", "content": "", "body": ""}]}, "urls[0].body", "unknown_field"),
        ({"review": {"diff": ""}}, "review.diff", "unknown_field"),
        ({"files": {}}, "files", "invalid_type"),
        ({"files": [[]]}, "files[0]", "invalid_type"),
        ({"files": [{"path": 1}]}, "files[0].path", "invalid_type"),
        ({"files": [{"path": "a", "content": 1}]}, "files[0].content", "invalid_type"),
        ({"files": [{"path": "a", "content": ["x"]}]}, "files[0].content", "invalid_type"),
        ({"files": [{"path": "a", "content": True}]}, "files[0].content", "invalid_type"),
        ({"files": [{"path": "a", "selected": 1}]}, "files[0].selected", "invalid_type"),
        ({"files": [{"content": "x"}]}, "files[0].path", "missing_field"),
        ({"files": [{"path": "a", "selected": True}]}, "files[0].content", "missing_field"),
        ({"files": [{"path": "a", "content": "x", "digest": DIGEST}]}, "files[0].digest", "ambiguous_content"),
        ({"files": [{"path": "a", "digest": DIGEST.upper()}]}, "files[0].digest", "invalid_digest"),
        ({"files": [{"path": "a", "digest": DIGEST + "\n"}]}, "files[0].digest", "invalid_digest"),
        ({"files": [{"path": "a", "digest": ""}]}, "files[0].digest", "invalid_digest"),
        (
            {"files": [{"path": "a", "digest": DIGEST}, {"path": "b", "digest": "é" * 64}]},
            "files[1].digest",
            "invalid_digest",
        ),
        ({"files": [{"path": "a"}, {"path": "x/../a"}]}, "files[1].path", "duplicate_path"),
        ({"files": [{"path": "../a"}]}, "files[0].path", "path_outside_root"),
        ({"files": [{"path": "a\nb"}]}, "files[0].path", "invalid_path"),
        ({"files": [{"path": "a"}], "removed": ["./a"]}, "files[0].path", "conflicting_path"),
        ({"symbols": [{"path": "a", "block": ""}], "removed": ["a"]}, "symbols[0].path", "conflicting_path"),
        ({"symbols": [{"path": "a"}]}, "symbols[0].block", "missing_field"),
        ({"symbols": [{"path": "a", "block": ""}] * 2}, "symbols[1].path", "duplicate_path"),
        ({"tree": ["a", "/"]}, "tree[1]", "invalid_path"),
        ({"tree": ["a", "a"]}, "tree[1]", "duplicate_path"),
        ({"tree": "a"}, "tree", "invalid_type"),
        ({"removed": [".."]}, "removed[0]", "path_outside_root"),
        ({"modified": [""]}, "modified[0]", "invalid_path"),
        ({"urls": [{"url": "u", "content": ""}] * 4}, "urls", "too_many_items"),
        ({"urls": [{"url": "", "content": ""}]}, "urls[0].url", "invalid_value"),
        ({"urls": [{"url": "u" * 8193, "content": ""}]}, "urls[0].url", "too_long"),
        ({"urls": [{"url": "u\n", "content": ""}]}, "urls[0].url", "invalid_value"),
        ({"urls": [{"url": "u", "title": "a\x1bb", "content": ""}]}, "urls[0].title", "invalid_value"),
        ({"urls": [{"url": "u"}]}, "urls[0].content", "missing_field"),
        ({"review": []}, "review", "invalid_type"),
        ({"review": {"commits": "c"}}, "review.commits", "invalid_type"),
        ({"review": {"reverse_diffs": {"a": 1}}}, "review.reverse_diffs[...]", "invalid_type"),
        ({"review": {"reverse_diffs": {"a": "", "./a": ""}}}, "review.reverse_diffs[1]", "duplicate_path"),
        ({"review": {"digest": DIGEST, "log": ""}}, "review.digest", "ambiguous_content"),
        ({"review": {"digest": "abc"}}, "review.digest", "invalid_digest"),
        ({"review": {"reverse_diffs": {f"f{n}": "" for n in range(5_001)}}}, "review.reverse_diffs", "too_many_items"),
        ({"review": {"commits": [""] * 5_001}}, "review.commits", "too_many_items"),
        ({"review": {"digest": ""}}, "review.digest", "invalid_digest"),
        ({"images": ["i.png"]}, "images[0]", "invalid_value"),
        ({"images": ["https://" + "a" * 8192]}, "images[0]", "too_long"),
        ({"images": ["https://a/\nb"]}, "images[0]", "invalid_value"),
        ({"images": ["data:,x"] * 101}, "images", "too_many_items"),
        ({"session": "s" * 513}, "session", "too_long"),
        ({"session": "a\0b"}, "session", "invalid_value"),
        ({"broken": ["L4"]}, "broken[0]", "invalid_value"),
        ({"broken": "L1"}, "broken", "invalid_type"),
        ({"assembly": "round"}, "assembly", "invalid_value"),
        ({"use_repo_map": "no"}, "use_repo_map", "invalid_type"),
        ({"legend": ["x"]}, "legend", "invalid_type"),
        ({"panels": [{"id": "", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a" * 57, "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a b", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "ä", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "a\n", "content": ""}]}, "panels[0].id", "invalid_value"),
        ({"panels": [{"id": "footer", "content": ""}]}, "panels[0].id", "reserved_id"),
        ({"panels": [{"id": "history_1", "content": ""}]}, "panels[0].id", "reserved_id"),
        ({"panels": [{"id": "a", "content": ""}, {"id": "a", "content": ""}]}, "panels[1].id", "duplicate_id"),
        ({"panels": [{"id": "a"}]}, "panels[0].content", "missing_field"),
        ({"panels": [{"id": "a", "content": "", "kind": "A b"}]}, "panels[0].kind", "invalid_value"),
        ({"panels": [{"id": "a", "content": "", "kind": "x" * 65}]}, "panels[0].kind", "too_long"),
        ({"panels": [{"id": "a", "content": "", "header": "a\nb"}]}, "panels[0].header", "invalid_value"),
        ({"panels": [{"id": f"p{n}", "content": ""} for n in range(501)]}, "panels", "too_many_items"),
        ({"panels": [{"id": 1, "content": ""}]}, "panels[0].id", "invalid_type"),
        ({"messages_meta": [{"index": -1, "status": "active"}]}, "messages_meta[0].index", "invalid_index"),
        (
            {"messages_meta": [{"index": 1, "status": "active"}, {"index": 1, "status": "active"}]},
            "messages_meta[1].index",
            "invalid_index",
        ),
        ({"messages_meta": [{"index": 1, "status": "gone"}]}, "messages_meta[0].status", "invalid_value"),
        ({"messages_meta": [{"index": 1, "status": "summarized"}]}, "messages_meta[0].tl_dr", "invalid_value"),
        (
            {"messages_meta": [{"index": 1, "status": "summarized", "tl_dr": " "}]},
            "messages_meta[0].tl_dr",
            "invalid_value",
        ),
        (
            {"messages_meta": [{"index": 1, "status": "deleted", "tl_dr": "x"}]},
            "messages_meta[0].tl_dr",
            "invalid_value",
        ),
        ({"messages_meta": [{"index": True, "status": "active"}]}, "messages_meta[0].index", "invalid_type"),
        ({"detach": {"keep_tokens": 0}}, "detach.keep_tokens", "invalid_value"),
        ({"detach": {"keep": 1}}, "detach.keep", "unknown_field"),
        ({"detach": "yes"}, "detach", "invalid_type"),
        ({"compaction": 1}, "compaction", "invalid_type"),
    ]
)
def test_a_mistake_names_its_field(fields: dict[str, Any], param: str, code: str) -> None:
    error = refused_fields(**fields)
    assert (error.param, error.code) == (f"stratiform.{param}", code)
    assert "stratiform" in error.message
    assert param.rpartition(".")[2].partition("[")[0] in error.message


@pytest.mark.parametrize(
    ("name", "most", "element"),
    [
        ("files", 5_000, lambda n: {"path": f"f{n}"}),
        ("symbols", 5_000, lambda n: {"path": f"f{n}", "block": "b"}),
        ("tree", 20_000, lambda n: f"f{n}"),
        ("removed", 20_000, lambda n: f"f{n}"),
        ("modified", 20_000, lambda n: f"f{n}"),
    ],
)
def test_lists_are_bounded(name: str, most: int, element: Callable[[int], object]) -> None:
    elements = [element(n) for n in range(most + 1)]
    assert read(**{name: elements[:-1]})
    error = refused_fields(**{name: elements})
    assert (error.param, error.code) == (f"stratiform.{name}", "too_many_items")
    assert str(most) in error.message


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"1", b"true", b'[{"files":[]}]'])
def test_a_section_that_is_no_object_is_refused(raw: bytes) -> None:
    assert (refused(raw).param, refused(raw).code) == ("stratiform", "invalid_type")


@for_every(
    [
        (b'{"files":[', "invalid_json"),
        (b'{"session":"\xff"}', "invalid_json"),
        (b'{"tree":[NaN]}', "invalid_json"),
        (b'{"session":"\\ud83d"}', "invalid_unicode"),
        (b'{"files":[{"path":"a","content":"x\\uDE00y"}]}', "invalid_unicode"),
        (b'{"files":[{"path":"\\ud800"}]}', "invalid_unicode"),
        (b'{"files":[{"path":"a","content":"\xff"}]}', "invalid_unicode"),
        (b'{"files":[{"path":"a","content":"\xed\xa0\x80"}]}', "invalid_unicode"),
    ]
)
def test_what_is_no_text_is_refused(raw: bytes, code: str) -> None:
    assert refused(raw).code == code


@for_every(
    [
        (b'{"session":"\\ud83d"}', ".session"),
        (b'{"files":[{"path":"a"},{"path":"b","content":"\xc3\xa9 \\uDE00"}]}', ".files[1].content"),
        (b'{"review":{"reverse_diffs":{"a.py":"\\ud800"}}}', ".review.reverse_diffs[...]"),
        (b'{"review":{"reverse_diffs":{"\\ud800":"","b":"\\ud800"}}}', ".review.reverse_diffs"),
        (b'{"\\ud800":1}', ""),
        (b'{"session":"\\ud83d","legend":"' + b"x" * (8 << 20) + b'"}', ""),
        (b'{"tree":["\\ud83d\\ude00"],"files":[{"path":"a","content":"x\\ud83d\xff"}]}', ""),
        (b'{"x":' + b"[" * 100_000 + b'"\\ud83d"' + b"]" * 100_000 + b"}", None),
    ]
)
def test_half_of_a_pair_is_found_where_it_stands(raw: bytes, param: str | None) -> None:
    error = refused(raw)
    assert param is None or (error.param, error.code) == (f"stratiform{param}", "invalid_unicode")


@for_every(
    [
        b'{"session":"a","session":"b"}',
        b'{"files":[{"path":"a","path":"b"}]}',
        b'{"files":[{"path":"a","content":"b \\":\\": c","digest":null,"content":"x"}]}',
        b'{"files":[{"path":"a","selected":true,"selected":false,"content":"\\":"}]}',
        b'{"symbols":[{"path":"a","block":"x","block":"y"}]}',
        b'{"urls":[{"url":"u","content":"x","content":"y"}]}',
        b'{"review":{"log":"x","log":"y"}}',
        b'{"review":{"reverse_diffs":{"a":"x","a":"y"}}}',
        b'{"panels":[{"id":"a","content":"x","content":"y"}]}',
    ]
)
def test_a_field_that_stands_twice_is_refused(raw: bytes) -> None:
    assert refused(raw).code == "duplicate_field"


def test_white_space_and_quotes_in_texts_are_no_second_field() -> None:
    raw = b' { "files" : [ { "path" : "a" , "content" :\n"x \\":\\\\\\": y" , "selected" : true } ] , "tree" : true } '
    form = read_form(raw)
    assert [(file.path, file.text, file.is_selected) for file in form.context.files] == [("a", 'x ":\\": y', True)]


@for_every([":", ":x", '":', '\\":', ',":', ':":":', "a:", '{":'])
def test_colons_and_quotes_of_texts_are_no_second_field(text: str) -> None:
    fields = {"files": [{"path": "a", "content": text}], "session": text, "urls": [{"url": text, "content": text}]}
    for separators in ((",", ":"), (" , ", " : ")):
        form = read_form(json.dumps({**fields, "images": ["data:" + text]}, separators=separators).encode())
        assert form.context.files[0].text == form.context.session == form.context.pages[0].content == text


def test_messages_quote_no_content() -> None:
    secret = "SECRET-TEXT"
    for fields in (
        {"files": [{"path": "a", "content": [secret]}]},
        {"files": [{"path": secret + "\0"}]},
        {"files": [{"path": secret}, {"path": secret}]},
        {"files": [{"path": "a", "content": "x", "digest": secret}]},
        {"assembly": secret},
        {"broken": [secret]},
        {"session": secret + "\n"},
        {"images": [secret]},
        {"review": {"reverse_diffs": {secret: 1}}},
    ):
        error = refused_fields(**fields)
        assert secret not in f"{error.message} {error.param}"


def test_the_name_of_an_unknown_field_is_shown_in_part() -> None:
    error = refused_fields(**{"x` - at `$.y" + "\n" * 3 + "z" * 100_000: 1})
    assert error.code == "unknown_field"
    assert len(error.message) < 200
    assert error.message.splitlines() == [error.message]


def test_the_digest_of_a_text_is_that_of_its_utf_8() -> None:
    assert text_digest("é" * (1 << 20)) == hashlib.sha256(("é" * (1 << 20)).encode()).hexdigest()
    assert text_digest("a\né\U0001f600") == hashlib.sha256("a\né\U0001f600".encode()).hexdigest()


# The fields of live panels and of the history, read from a section as clients send it.


def test_panels_come_in_the_order_in_which_they_are_sent() -> None:
    form = read(
        panels=[{"id": "P1", "kind": "todo", "header": "Todo List", "content": "x"}, {"id": "b", "content": ""}]
    )
    assert form.panels == (Panel("P1", "todo", "Todo List", "x"), Panel("b", OWN_KIND, "", ""))
    assert [panel.is_shown for panel in form.panels] == [True, False]
    assert form.has_history


def test_the_panel_of_the_conversation_itself_is_never_shown() -> None:
    assert not read(panels=[{"id": "chat", "content": "x"}]).panels[0].is_shown


def test_a_kind_of_the_client_s_own_is_counted_under_one_label() -> None:
    own, known = read(
        panels=[{"id": "a", "kind": "radar", "content": ""}, {"id": "b", "kind": "console", "content": ""}]
    ).panels
    assert (own.label, own.kind, known.label) == (OWN_KIND, "radar", "console")


def test_messages_are_described_by_their_index() -> None:
    metas = [{"index": 3, "status": "deleted"}, {"index": 0, "status": "summarized", "tl_dr": "Greeting."}]
    form = read(messages_meta=metas)
    assert form.metas == {3: MessageMeta(3, Status.DELETED), 0: MessageMeta(0, Status.SUMMARIZED, "Greeting.")}
    assert [form.metas[3].is_sent, form.metas[0].is_sent, form.has_history] == [False, True, True]


def test_the_rules_of_the_history_hold_where_panels_or_metas_are_sent_even_if_there_are_none() -> None:
    assert read(panels=[]).has_history
    assert read(messages_meta=[]).has_history
    assert not read(files=[], detach=True).has_history


@pytest.mark.parametrize(
    ("wish", "default", "expected"),
    [
        (None, None, None),
        (None, DetachTerms(), DetachTerms()),
        (False, DetachTerms(), None),
        (True, None, DetachTerms()),
        ({"keep_tokens": 9}, DetachTerms(1, 2, 3, 4), DetachTerms(1, 2, 3, 9)),
    ],
)
def test_the_minimums_are_the_client_s_where_it_sets_any(
    wish: object, default: DetachTerms | None, expected: DetachTerms | None
) -> None:
    assert detach_terms(read(session="s", detach=wish).detach, default) == expected
