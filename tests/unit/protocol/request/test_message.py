import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proxy.protocol.recognition import MessageKind, PieceKind
from proxy.protocol.request.message import Message, MessageReader, PartKind, may_be_signed
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, TokenCounter, bytes_over_four
from proxy.protocol.wire.json_body import Unreadable
from tests.fidelity.chats import File
from tests.signed_thinking import SignedForm, signed
from tests.talk import (
    MARK,
    RECOGNISERS,
    Body,
    as_parts,
    assistant,
    calling,
    chat,
    result,
    said,
    shown,
    system,
    text_part,
    user,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def reader(encode: Any = bytes_over_four, **more: Any) -> MessageReader:
    return MessageReader(TokenCounter(encode), RECOGNISERS, **more)


def read(message: Body | bytes) -> Message:
    return reader().read(Raw(message if isinstance(message, bytes) else json.dumps(message).encode()))


THOUGHT, SEAL = "hm, " * 200, "c2ln" * 900


@pytest.mark.parametrize(
    "beside",
    [
        {"reasoning_content": THOUGHT},
        {"reasoning": THOUGHT, "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT, "signature": SEAL}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": THOUGHT, "signature": SEAL}]},
        {"function_call": {"name": "f", "arguments": THOUGHT}},
        {"content": [{"type": "thinking", "thinking": THOUGHT, "signature": SEAL}, text_part("a")]},
    ],
)
@pytest.mark.parametrize("own", [assistant("a"), {"role": "assistant", "content": None}, calling("1")])
def test_a_thought_that_is_sent_back_has_its_tokens_once_in_every_form(own: Body, beside: Body) -> None:
    plain, found = (reader(len).read(Raw(json.dumps(each).encode())) for each in (own, {**own, **beside}))
    assert len(THOUGHT) <= found.tokens - plain.tokens < len(THOUGHT) + 100
    assert found.tokens == sum(part.tokens for part in found.parts)


class TestDigest:
    """Equal exactly where the provider renders the same text."""

    def test_a_string_is_a_list_of_one_text(self) -> None:
        assert read(user("hi")).digest == read(user([text_part("hi")])).digest
        assert read(result("1", "hi")).digest == read(result("1", [text_part("hi")])).digest

    @pytest.mark.parametrize(
        ("marked", "plain"),
        [
            (user("hi", **MARK), user("hi")),
            (user([text_part("hi", **HOUR)]), user("hi")),
            (user([text_part("a"), text_part("b", **MARK)]), user([text_part("a"), text_part("b")])),
            (user([text_part("a", prompt_cache_breakpoint={"mode": "explicit"})]), user("a")),
            (result("1", "hi", **MARK), result("1", "hi")),
            (result("1", [text_part("a", **MARK), text_part("b")]), result("1", [text_part("a"), text_part("b")])),
            ({**calling("1"), **MARK}, calling("1")),
            (user([{**IMAGE, **MARK}]), user([IMAGE])),
        ],
    )
    def test_markers_are_no_part_of_a_digest(self, marked: Body, plain: Body) -> None:
        assert read(marked).digest == read(plain).digest
        assert [p.digest for p in read(marked).parts] == [p.digest for p in read(plain).parts]
        assert (read(marked).has_marks, read(plain).has_marks) == (True, False)

    def test_a_marker_on_a_call_is_no_part_of_a_digest(self) -> None:
        marked = calling("1", "2")
        marked["tool_calls"][1] |= MARK
        assert read(marked).digest == read(calling("1", "2")).digest
        assert [p.own_mark for p in read(marked).parts] == [None, "5m"]

    @pytest.mark.parametrize(
        "other",
        [
            system("hi"), user("hi "), user("hi", name="ann"), user([text_part("hi"), text_part("")]), user(None),
            user([text_part("h"), text_part("i")]), user([text_part("hi", annotations=[1])]),
            user([text_part("hi"), IMAGE]),
        ],
    )  # fmt: skip
    def test_everything_else_is(self, other: Body) -> None:
        assert read(other).digest != read(user("hi")).digest

    def test_arguments_and_names_count_byte_for_byte(self) -> None:
        one, two = calling("1"), calling("1")
        two["tool_calls"][0]["function"]["arguments"] = '{"x": 1}'
        assert read(one).digest != read(two).digest
        assert read(user("hi", x1=2)).digest != read(user("hi", x=12)).digest
        assert read(assistant([THINKING, text_part("a")])).digest != read(assistant("a")).digest

    @pytest.mark.parametrize("form", SignedForm)
    def test_signed_thinking_is_known(self, form: SignedForm) -> None:
        body = signed(chat(assistant("a")), form)
        assert read(body["messages"][0]).is_signed
        assert may_be_signed(json.dumps(body).encode())

    @pytest.mark.parametrize(
        "message",
        [
            assistant('{"signature": "c2ln"}'),
            assistant("a", thinking_blocks=[]),
            assistant("a", thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": None}]),
            assistant("a", reasoning_details=[{"type": "reasoning.text", "text": "hm", "signature": ""}]),
            assistant("a", thinking_blocks=7),
            user("a", signature="c2ln"),
            calling("1"),
        ],
    )
    def test_what_is_not_signed_is_known_too(self, message: Body) -> None:
        assert not read(message).is_signed


class TestParts:
    def test_a_text_and_its_tokens(self) -> None:
        (part,) = read(user("x" * 40)).parts
        assert (part.kind, part.tokens, part.index, part.markable) == (
            PartKind.TEXT, 10 + MESSAGE_OVERHEAD_TOKENS, -1, True,
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("message", "positions"),
        [
            # One part for each of a list. Of what a model says, only text can be marked.
            (user([text_part("x"), IMAGE, {"type": "later", "x": 1}, text_part(" ")]), "text0+ media1+ other2 text3"),
            ({**calling("1"), "content": [THINKING, text_part("a")]}, "thinking0 text1+ call0"),
            (calling("1", "2", content="look"), "text-1+ call0 call1"),
            *((user(content), "text-1") for content in ("", "  \n")),
            (user([text_part("")]), "text0"),
            (user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]), "media0"),
            (user([{"type": [], "text": "a"}, {"type": None}, {"x": 1}]), "other0 other1 other2"),
            # A tool result is one position. Its marker stands on the last part.
            (result("1", [text_part("a"), IMAGE, text_part("b")]), "result-1+"),
            (result("1", []), "result-1"),
            (result("1", ""), "result-1"),
            (result("1", [text_part("a"), text_part(" ")]), "result-1"),
            (result("1", [text_part(" "), text_part("a")]), "result-1+"),
            (result("1", [text_part("a"), {"type": "later"}]), "result-1"),
            *(({"role": "assistant", **empty}, "") for empty in ({"content": None}, {}, {"tool_calls": None})),
        ],
    )
    def test_the_positions_of_a_message_and_where_a_marker_may_stand(self, message: Body, positions: str) -> None:
        found = read(message)
        shown = [f"{part.kind}{part.index}{'+' if part.markable else ''}" for part in found.parts]
        assert " ".join(shown) == positions
        assert found.tokens == sum(part.tokens for part in found.parts)
        assert all(part.tokens >= IMAGE_TOKENS for part in found.parts if part.kind is PartKind.MEDIA)

    def test_a_text_part_with_more_keys_can_be_marked_but_is_never_taken_apart(self) -> None:
        clock = "Current time: 2026-01-01 10:00\nBe kind.\n"
        plain, odd = read(system([text_part(clock)])), read(system([text_part(clock, annotations=[])]))
        assert plain.recognition is not None
        assert (odd.recognition, odd.parts[0].kind, odd.parts[0].markable) == (None, PartKind.TEXT, True)

    @pytest.mark.parametrize("content", ["x", [text_part("x"), text_part("y")], [text_part("x", annotations=[])]])
    @pytest.mark.parametrize("role", ["function", "critic"])
    def test_a_message_whose_content_may_be_no_list_carries_no_marker(self, role: str, content: object) -> None:
        assert not any(part.markable for part in read(said(role, content, name="run")).parts)

    def test_calls_and_results_are_known_in_parts_of_the_content(self) -> None:
        called, answered = map(read, as_parts(calling("1", "2"), result("1", "x"), result("2", "y")))
        assert called.call_ids == answered.answers == ("1", "2")
        assert answered.has_results
        assert (read(calling("1", "2")).call_ids, read(result("2", "x")).answers) == (("1", "2"), ("2",))
        assert not answered.is_asked
        assert read(user([{"type": "tool_result"}])).answers == ("",)

    @pytest.mark.parametrize("said", ["tool_result", [text_part("tool_result")], [{"type": "x", "y": "tool_result"}]])
    def test_a_user_who_speaks_of_results_asks(self, said: object) -> None:
        assert read(user(said)).is_asked

    @pytest.mark.parametrize(
        ("message", "life"),
        [
            (user("a", **MARK), "5m"), (user("a", **HOUR), "1h"), (user([text_part("a", **HOUR)]), "1h"),
            (result("1", "a", **MARK), "5m"), (result("1", [text_part("a", **MARK)]), None),
            (user([text_part("a")], **MARK), None), (user("a", cache_control=None), None),
            (user("a", cache_control="x"), None),
        ],
        ids=["string", "1h", "part", "tool", "tool part", "beside a list", "null", "nonsense"],
    )  # fmt: skip
    def test_the_clients_marker_counts_where_a_provider_honours_it(self, message: Body, life: str | None) -> None:
        assert read(message).parts[0].own_mark == life


class TestRecognition:
    def test_the_text_is_kept_where_it_was_recognised(self) -> None:
        known, plain = read(shown(File("a.py", "x\n"))[0]), read(user("hello"))
        assert known.recognition.form is MessageKind.CONTEXT
        assert (known.text is None, plain.text) == (False, None)
        assert len(known.cut_digests) == len(known.recognition.cuts)

    def test_a_list_of_one_text_is_recognised_and_of_several_is_not(self) -> None:
        text = shown(File("a.py", "x\n"))[0]["content"]
        assert read(user([text_part(text)])).recognition is not None
        assert read(user([text_part(text), text_part("more")])).recognition is None

    def test_code_that_begins_in_one_part_and_ends_in_another_is_not_told_from_text(self) -> None:
        clock = "The current time is 10:00.\n"

        def volatile(*texts: str) -> list[str]:
            known = read(system([text_part(text) for text in texts]))
            cuts = known.recognition.cuts if known.recognition is not None else ()
            return [known.text[c.start : c.end] for c in cuts if c.kind is PieceKind.VOLATILE and known.text]

        assert volatile(f"Rules.\n{clock}", f"```\n{clock}```\n{clock}", "More.") == [clock, clock]
        assert volatile("Rules.\n```\n", f"a\n{clock}```\n") == []
        assert volatile(f"Rules.\n{clock}", "```\na\n", f"```\n{clock}```\n{clock}") == [clock]
        assert volatile(f"Rules.\n{clock}", f"More.\n{clock}```\n") == [clock, clock]

    def test_unchanged_pieces_are_not_counted_again(self) -> None:
        counted: list[str] = []

        def encode(text: str) -> int:
            counted.append(text)
            return len(text)

        one = reader(encode)
        for content in ("old\n", "new\n"):
            one.read(Raw(json.dumps(shown(File("a.py", "same\n"), File("b.py", content))[0]).encode()))
        assert sum("a.py" in text for text in counted) == 1
        assert sum("b.py" in text for text in counted) == 2

    def test_lead_is_the_beginning(self) -> None:
        assert read(assistant("Ok." + "x" * 1000)).lead.startswith("Ok.x")
        assert len(read(assistant("Ok." + "x" * 1000)).lead) == 200


class TestReader:
    def test_a_message_is_read_once(self) -> None:
        one = reader()
        raw = Raw(json.dumps(user("hi")).encode())
        assert one.read(raw) is one.read(Raw(bytes(raw)))

    def test_memory_is_bounded(self) -> None:
        one = reader(capacity_bytes=10_000)
        raws = [Raw(json.dumps(user("x" * 3000 + str(n))).encode()) for n in range(5)]
        first = [one.read(raw) for raw in raws]
        assert one.read(raws[4]) is first[4]
        assert one.read(raws[0]) is not first[0]
        huge = Raw(json.dumps(user("y" * 50_000)).encode())
        assert one.read(huge) is one.read(huge)

    @given(
        st.lists(
            st.lists(st.tuples(st.sampled_from("ab"), st.text("xyz", max_size=2)), min_size=1, max_size=3),
            min_size=2,
            max_size=6,
        ),
        st.sampled_from([4_000, 1_000_000]),
    )
    def test_a_reader_that_remembers_reads_like_a_new_one(
        self, talk: list[list[tuple[str, str]]], capacity_bytes: int
    ) -> None:
        """Files and messages whose ends are equal, and often their lengths, too."""
        remembering, end = reader(capacity_bytes=capacity_bytes), "end of a file\n" * 20
        for files in talk:
            context = shown(*[File(f"{n}{name}.py", end + middle + end) for n, (name, middle) in enumerate(files)])[0]
            found, new = remembering.read(Raw(json.dumps(context).encode())), read(context)
            assert found == new
            assert len(new.cut_digests) >= len(files)

    @pytest.mark.parametrize(
        "raw",
        [
            b"1", b"[]", b"{}", b'{"role":1}', b'{"role":"user","content":1}', b'{"role":"user","content":{}}',
            b'{"role":"user","content":[1]}', b'{"role":"user","content":[{"type":"text","text":1}]}',
            b'{"role":"user","content":"\xff"}', b'{"role":"assistant","tool_calls":{}}',
            b'{"role":"assistant","tool_calls":[1]}',
        ],
    )  # fmt: skip
    def test_what_is_no_chat_message(self, raw: bytes) -> None:
        with pytest.raises(Unreadable):
            read(raw)


class TestMembersBesideContent:
    """What a provider renders beside the content is part of the prefix that it caches."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (result("1", "text"), result("2", "text")),
            (user("text", name="ada"), user("text", name="bob")),
            (user("text", name="ada"), user("text")),
            (assistant("text", thinking_blocks=[THINKING]), assistant("text")),
            ({**calling("1"), "reasoning_content": "a"}, {**calling("1"), "reasoning_content": "b"}),
        ],
    )
    def test_digests_of_different_first_positions_differ(self, one: Body, other: Body) -> None:
        first, second = read(one), read(other)
        assert first.parts[0].digest != second.parts[0].digest
        assert [p.digest for p in first.parts[1:]] == [p.digest for p in second.parts[1:]]

    def test_members_without_a_value_are_none(self) -> None:
        odd = assistant("text", refusal=None, annotations=[], name="")
        assert read(assistant("text")).parts == read(odd).parts
