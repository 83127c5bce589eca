"""Files that a request brings along: how many of them fit."""

import json

from proxy.core.request.tokens import bytes_over_four
from proxy.core.window.parts import VirtualFile
from proxy.core.window.virtual_files import Payload
from tests.growth import assert_linear

FILES = tuple(VirtualFile(f"f{n}", "x" * 400, n == 2) for n in range(4))


def test_what_is_counted_holds_the_text_that_is_sent() -> None:
    for message in ("", "do it", 'a "b"\n' * 50):
        payload = Payload.of(FILES, message, bytes_over_four)
        for shown, allowed in ((4, payload.tokens), (1, payload.least_tokens)):
            text = payload.text(message, shown)
            assert bytes_over_four(text) - bytes_over_four(message) <= allowed


def test_files_go_from_the_end_and_the_active_one_stays() -> None:
    payload = Payload.of(FILES, "do it", bytes_over_four)
    shown = [payload.fitting(tokens) for tokens in (payload.tokens, payload.tokens - 1, payload.least_tokens, 0)]
    assert shown == [4, 3, 1, 1]
    value = json.loads(payload.text("do it", 2))
    assert [file["id"] for file in value["virtual_files"]] == ["f2", "f0"]
    assert value["omitted_virtual_file_ids"] == ["f1", "f3"]


def test_a_message_with_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert "\\ud83d" in Payload.of(FILES, "\ud83d", lambda text: len(text)).text("\ud83d", 1)


def test_the_time_is_linear_in_the_files() -> None:
    def make(count: int) -> list[VirtualFile]:
        return [VirtualFile(str(n), "x" * 100) for n in range(count)]

    assert_linear(lambda files: Payload.of(files, "m", bytes_over_four).fitting(10), make, 2_000)
