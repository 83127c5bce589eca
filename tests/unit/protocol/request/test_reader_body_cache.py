"""Bodies parsed with the help of earlier ones: never anything else than what cutting them anew gives."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.errors import InvalidRequest
from proxy.protocol.request import ParsedBody, parse_body
from proxy.protocol.request.message import Message, MessageReader
from proxy.protocol.request.reader import BodyCache
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import Unreadable, elements
from tests.examples import examples

SYSTEM = {"role": "system", "content": "Be brief. " * 40}


def turn(number: int, role: str = "user") -> dict[str, object]:
    return {"role": role, "content": f"turn {number} " * 30}


def body(*messages: object, **more: object) -> bytes:
    return json.dumps({"model": "m", "messages": list(messages), **more}).encode()


class Reading:
    """Reads bodies one after another, as the planner does."""

    def __init__(self) -> None:
        self.body_cache = BodyCache()
        self.reader = MessageReader(TokenCounter(), recognisers(build_plugin_manager()))

    def read(self, raw: bytes) -> ParsedBody:
        parsed = self.body_cache.parse(raw)
        parsed.spans()
        self.body_cache.keep(parsed, parsed.read(self.reader.read))
        return parsed

    def known(self, raw: bytes) -> int:
        return self.body_cache.parse(raw).known


def unread(raw: object) -> Message:
    raise AssertionError("it has been read")


def assert_same(parsed: ParsedBody, raw: bytes) -> None:
    anew = parse_body(raw)
    assert {k: bytes(v) for k, v in parsed.members.items()} == {k: bytes(v) for k, v in anew.members.items()}
    grown = parsed.read(unread)
    messages = grown.messages
    assert [m.raw for m in messages] == [bytes(one) for one in elements(anew.members["messages"])]
    assert list(map(bytes, anew.raws())) == [m.raw for m in messages]
    if parsed.span is not None:
        assert raw[parsed.span[0] : parsed.span[1]] == bytes(anew.members["messages"])
        assert [
            raw[at : at + len(m.raw)] for at, m in zip(parsed.starts([m.raw for m in messages]), messages, strict=True)
        ] == [m.raw for m in messages]
    fresh = Transcript(messages)
    for name in Transcript.__slots__:
        assert getattr(grown, name) == getattr(fresh, name), name


class TestKnown:
    def test_a_conversation_that_grows_is_parsed_from_where_it_grew(self) -> None:
        reading = Reading()
        first = [SYSTEM, turn(1), turn(2, "assistant")]
        reading.read(body(*first, temperature=1))
        longer = body(*first, turn(3), temperature=1)
        parsed = reading.body_cache.parse(longer)
        assert parsed.known == 3
        assert [bytes(raw) for raw in parsed.unread()] == [json.dumps(turn(3)).encode()]
        assert_same(reading.read(longer), longer)

    def test_every_message_of_a_repeated_body_is_known(self) -> None:
        reading = Reading()
        raw = body(SYSTEM, turn(1))
        reading.read(raw)
        assert reading.known(raw) == 2
        assert_same(reading.read(raw), raw)

    def test_a_changed_message_ends_what_is_known(self) -> None:
        reading = Reading()
        reading.read(body(SYSTEM, turn(1), turn(2), turn(3)))
        changed = body(SYSTEM, turn(1), turn(9), turn(3))
        assert reading.known(changed) == 2
        assert_same(reading.read(changed), changed)

    def test_another_head_shares_nothing(self) -> None:
        reading = Reading()
        reading.read(body(SYSTEM, turn(1)))
        assert reading.known(b'{"stream":true,' + body(SYSTEM, turn(1))[1:]) == 0

    def test_a_name_inside_the_tools_is_not_taken_for_the_messages(self) -> None:
        reading = Reading()
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"messages": [1]}}}]
        raw = json.dumps({"tools": tools, "messages": [SYSTEM, turn(1)], "model": "m"}).encode()
        longer = json.dumps({"tools": tools, "messages": [SYSTEM, turn(1), turn(2)], "model": "m"}).encode()
        reading.read(raw)
        assert reading.known(longer) == 2
        assert_same(reading.read(longer), longer)

    def test_memory_is_bounded(self) -> None:
        reading = Reading()
        reading.body_cache = BodyCache(capacity_bytes=50_000)
        for number in range(200):
            reading.read(body(SYSTEM, turn(number)))
        assert reading.known(body(SYSTEM, turn(199))) == 2
        assert reading.known(body(SYSTEM, turn(0))) == 0


class TestOddBodies:
    @pytest.mark.parametrize(
        "end",
        [b",]}", b"", b"]", b"],}", b"]}x", b',{"role":"user"]}', b" x]}", b',"messages":[]}', b'],"messages":7}'],
    )
    def test_what_is_no_json_is_refused_as_ever(self, end: bytes) -> None:
        reading = Reading()
        good = body(SYSTEM, turn(1))
        reading.read(good)
        bad = good[:-2] + end
        try:
            anew = parse_body(bad).members
        except (InvalidRequest, Unreadable) as error:
            with pytest.raises(type(error)):
                reading.body_cache.parse(bad)
        else:
            parsed = reading.body_cache.parse(bad)
            assert {k: bytes(v) for k, v in parsed.members.items()} == {k: bytes(v) for k, v in anew.items()}

    def test_the_last_of_two_messages_members_counts(self) -> None:
        reading = Reading()
        good = body(SYSTEM, turn(1))
        reading.read(good)
        twice = good[:-1] + b',"messages":[{"role":"user","content":"only this"}]}'
        assert_same(reading.read(twice), twice)


FILES = "Here are files:\n\nsrc/a.py\n```\nx = 1\n```\n"
TEXTS = [
    "", "a", FILES, "Ok.", "Today's date is 2026-01-01.", 'quote " and \\', "naïve 漢字", "long " * 80, '"messages":[1',
]  # fmt: skip
MESSAGE = st.builds(
    lambda role, text: {"role": role, "content": text},
    st.sampled_from(["system", "user", "assistant"]),
    st.sampled_from(TEXTS),
)
SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " : ")])


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.lists(MESSAGE, max_size=6), SPACING, st.booleans()), min_size=1, max_size=8))
def test_any_sequence_of_bodies_is_cut_as_if_each_were_the_first(
    requests: list[tuple[list[dict[str, str]], tuple[str, str], bool]],
) -> None:
    reading = Reading()
    for messages, separators, is_last in requests:
        members: dict[str, object] = {"messages": messages, "model": "m"} if is_last else {}
        members = members or {"model": "m", "messages": messages}
        raw = json.dumps(members, separators=separators, ensure_ascii=False).encode()
        assert_same(reading.read(raw), raw)


class TestSigns:
    def test_a_message_of_an_earlier_request_is_looked_at_once(self) -> None:
        reading, seen = Reading(), list[int]()

        def sign(part: bytes) -> bool:
            seen.append(len(part))
            return False

        talk = [SYSTEM]
        for number in range(20):
            talk.append(turn(number))
            raw = body(*talk, temperature=1)
            assert reading.body_cache.parse(raw).has(sign) is False
            reading.read(raw)
        # Each message is looked at when it is new, and once more when it is known.
        assert sum(seen) < 2.5 * len(raw)

    @settings(max_examples=examples(100))
    @given(st.lists(st.sampled_from(["", "", "sign"]), min_size=1, max_size=6), st.integers(0, 6), st.booleans())
    def test_a_sign_is_found_wherever_it_stands(self, marks: list[str], shared: int, in_tools: bool) -> None:
        reading = Reading()
        talk = [{"role": "user", "content": f"{number} {mark}"} for number, mark in enumerate(marks)]
        reading.read(body(SYSTEM, *talk[:shared]))
        raw = body(SYSTEM, *talk, tools=["sign" if in_tools else ""])
        for _ in range(2):
            assert reading.body_cache.parse(raw).has(lambda part: b"sign" in part) is (b"sign" in raw)
            reading.read(raw)
