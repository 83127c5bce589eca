"""Texts are written into messages as JSON has them; what else a message says stays byte for byte."""

import json
from typing import Any

import pytest

from proxy.prompts.window import Payload, VirtualFile, own_text, with_text
from proxy.prompts.window.fitting import shortened_messages
from proxy.protocol.request.tokens import bytes_over_four
from tests.growth import assert_linear
from tests.talk import said, text_part

IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}


def raw(content: object, **more: object) -> bytes:
    return json.dumps(said("user", content, **more)).encode()


def content(message: bytes) -> Any:
    return json.loads(message)["content"]


@pytest.mark.parametrize(
    ("own", "text"), [("a", "a"), (None, ""), ([text_part("a"), IMAGE, text_part("b")], "a\nb"), ([], ""), (7, "")]
)
def test_the_text_of_a_message(own: object, text: str) -> None:
    assert own_text(raw(own)) == text


def test_a_message_without_content_has_no_text() -> None:
    assert own_text(b'{"role":"user"}') == ""


def test_a_text_stands_in_front_after_which_a_blank_line_follows() -> None:
    assert content(with_text(raw("own"), "new")) == "new\n\nown"
    assert content(with_text(raw(" "), "new")) == "new"
    assert content(with_text(b'{"role":"user"}', "new")) == "new"
    assert content(with_text(raw([IMAGE]), "new")) == [text_part("new"), IMAGE]


def test_a_text_stands_in_the_place_of_the_clients_own_and_images_stay() -> None:
    assert content(with_text(raw("own"), "new", keeps_own=False)) == "new"
    assert content(with_text(raw([text_part("a"), IMAGE]), "new", keeps_own=False)) == [text_part("new"), IMAGE]


def test_other_members_stay_as_they_were_written() -> None:
    message = b'{"role":"user","content":"a","n":1.50e1,"name":"\\u00e9"}'
    assert with_text(message, "b") == b'{"role":"user","content":"b\\n\\na","n":1.50e1,"name":"\\u00e9"}'


def test_half_a_surrogate_pair_stays_an_escape() -> None:
    assert with_text(b'{"role":"user","content":"\\ud83d"}', "b") == b'{"role":"user","content":"b\\n\\n\\ud83d"}'


def test_messages_are_shortened_from_their_end() -> None:
    sized = [(raw("a" * 1024), 260), (raw("b" * 1024), 260), (raw("c"), 5)]
    kept = [content(one) for one in shortened_messages(sized, 260 + 4 + 64, bytes_over_four)]
    assert kept == ["a" * 1024, "b" * 256]
    assert len(shortened_messages(sized, 260 + 4, bytes_over_four)) == 1
    assert shortened_messages(sized, 4, bytes_over_four) == []


FILES = tuple(VirtualFile(f"f{n}", "x" * 400, n == 2) for n in range(4))


def test_what_is_counted_holds_the_text_that_is_sent() -> None:
    for message in ("", "do it", 'a "b"\n' * 50):
        payload = Payload.of(FILES, message, bytes_over_four)
        for shown, allowed in ((4, payload.tokens), (1, payload.least_tokens)):
            text = payload.text(message, shown)
            assert bytes_over_four(text) - bytes_over_four(message) <= allowed


def test_a_message_with_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert "\\ud83d" in Payload.of(FILES, "\ud83d", lambda text: len(text)).text("\ud83d", 1)


def test_the_time_is_linear_in_the_files() -> None:
    def make(count: int) -> list[VirtualFile]:
        return [VirtualFile(str(n), "x" * 100) for n in range(count)]

    assert_linear(lambda files: Payload.of(files, "m", bytes_over_four).fitting(10), make, 2_000)
