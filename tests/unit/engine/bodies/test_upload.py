"""How long the sound of a file lasts."""

import struct

import pytest

from proxy.engine.bodies import longest_s
from tests.fuzz.spending import flac, wav

AAC = b"\xff\xf1\x50\x80\0\xff\xfc" * 900


def test_plain_sound_lasts_as_long_as_its_bytes_whatever_its_header_says() -> None:
    assert longest_s([wav(2), wav(20)]) == pytest.approx(20, rel=0.01)
    data = bytearray(wav(20))
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 16)
    assert longest_s([bytes(data)]) == pytest.approx(20, rel=0.01)
    mp3 = b"\xff\xfb\x90\x00" + b"\0" * 40_000
    assert longest_s([mp3]) == pytest.approx(40, rel=0.01), "8 kbit/s"
    assert longest_s([b"ID3\3\0\0\0\0\1\0" + b"\0" * 128 + mp3]) == pytest.approx(40, rel=0.01)


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"x" * 5000,
        b"fLaC",
        b"RIFF0000WAVE",
        b"OggS" * 9,
        flac(0),
        flac(1.0, real=b"hours"),
        AAC,
        b"ID3\3\0\0\0\0\0\0" + AAC,
        b"ID3",
        b"\0\0\0\x20ftypM4A " * 4,
    ],
)
def test_what_is_not_understood_may_last_as_long_as_any_file(file: bytes) -> None:
    assert longest_s([file]) is None
    assert longest_s([wav(1), file]) is None
    assert longest_s([]) is None
