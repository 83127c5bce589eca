"""How long the sound in a file lasts, at the most.

A second of sound has no least number of bytes: hours of silence are a few kilobytes of FLAC, Opus or AAC, and their
header may say that they last a second, which no decoder believes. Plain WAV and MP3 last no longer than their bytes
allow, whatever their headers say. Any other file lasts as long as the longest that any provider takes
(``proxy.core.request.demand``), until the answer says how long it was.
"""

from collections.abc import Sequence
from io import BytesIO

from tinytag import TinyTag, TinyTagException

_LEAST_MP3_BYTES_PER_S = 1000
"""8 kbit/s, the lowest rate of MPEG-2 layer III: ISO/IEC 13818-3, table of bit rates."""


def longest_s(files: Sequence[bytes]) -> float | None:
    """The seconds of the longest of these files; None where one of them is not understood, or there is none."""
    found = [_seconds(file) for file in files]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if known and len(known) == len(found) else None


def _seconds(file: bytes) -> float | None:
    if file.startswith((b"ID3", b"\xff")):
        return len(file) / _LEAST_MP3_BYTES_PER_S if _is_mp3(file) else None
    try:
        tag = TinyTag.get(file_obj=BytesIO(file), tags=False)
    except (TinyTagException, ArithmeticError, ValueError, LookupError):
        return None
    bytes_per_s = (tag.samplerate or 0) * (tag.channels or 0) * ((tag.bitdepth or 0) // 8)
    is_plain = (tag.mime_type or "").startswith("audio/wav") and tag.is_lossless
    return len(file) / bytes_per_s if is_plain and bytes_per_s > 0 else None


def _is_mp3(file: bytes) -> bool:
    """Whether a frame of MPEG audio begins the file, or follows its ID3 tag (https://id3.org/id3v2.3.0#ID3v2_header).
    A layer of 0 is AAC, which needs fewer bytes."""
    at = 0
    if file.startswith(b"ID3"):
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(file[6:10], (21, 14, 7, 0), strict=False))
    head = file[at : at + 2]
    return len(head) == 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06 != 0
