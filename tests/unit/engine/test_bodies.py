"""The model of a form, found however it arrives and never understood in two ways; how long its sound lasts."""

import os
import struct
from collections.abc import Sequence
from itertools import product

import orjson
import pytest

from proxy.engine import BodyLimits
from proxy.engine.bodies import FormScan, boundary_of, longest_s
from proxy.engine.exchange import ExchangeOutcome, Principal
from proxy.kit.errors import InvalidRequest
from tests.doubles import ModelList, make_deployment
from tests.examples import for_every
from tests.fuzz.spending import flac, wav
from tests.unit.engine.parts import JSON, Bench, MemoryClient, answers

SOUND = bytes(range(256)) * 40
KIND = "multipart/form-data; boundary=b0"


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--b0\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


FILE = part("file", SOUND, '; filename="a.wav"\r\nContent-Type: audio/wav')
MODEL = part("model", b"whisper")
END = b"--b0--\r\n"


def scanned(form: bytes, size: int | None = None) -> FormScan:
    scan = FormScan(b"b0")
    for at in range(0, len(form), size or len(form)):
        scan.feed(form[at : at + (size or len(form))])
    return scan


@for_every(product([MODEL + FILE + END, FILE + MODEL + END, b"preamble\r\n" + FILE + MODEL + END], [1, 2, 7, 64, None]))
def test_the_model_is_found_however_the_form_is_cut(form: bytes, size: int | None) -> None:
    scan = scanned(form, size)
    assert scan.model == "whisper"
    assert scan.span is not None
    assert form[slice(*scan.span)] == b"whisper"


@pytest.mark.parametrize(
    "form",
    [
        (FILE + MODEL + END).replace(b"\r\n", b"\n"),
        b"--b0\r\ncontent-disposition:form-data;NAME=model\r\n\r\nwhisper\r\n--b0--",
        b'--b0 \r\nContent-Type: a/b\r\nContent-Disposition: form-data;\r\n name="model"\r\n\r\nwhisper\r\n--b0--',
    ],
)
def test_the_model_is_found_however_its_part_is_written(form: bytes) -> None:
    assert scanned(form).model == "whisper"


def test_empty_parts_and_an_empty_model() -> None:
    empty = b"--b0\r\n\r\n\r\n" + part("x", b"") + part("model", b"") + END
    scan = scanned(empty, 1)
    assert scan.model == ""
    assert scanned(FILE + END, 3).model is None


@for_every(
    [
        MODEL + FILE + part("model", b"other") + END,
        part("Model", b"x") + END,
        part("model[]", b"x") + END,
        part("%6dodel", b"x") + END,
        part(" model", b"x") + END,
        part("model", b"x", '; name="other"') + END,
        part("other", b"x", "; name*=UTF-8''model") + END,
        part("other", b"x", '; name*0="mo"; name*1="del"') + END,
        part("other", b"x", '; name*0*="mo"; name*1*="del"') + END,
        part("other", b"x", "; name='model'") + END,
        part("model\0x", b"x") + END,
        part("model", b"d2hpc3Blcg==", "\r\nContent-Transfer-Encoding: base64") + END,
        part("model", b"\xff") + END,
        part("model", b"x" * 5000) + END,
        b"--b0and more\r\n" + MODEL + END,
        b"--b0\r\n" + b"a: b\r\n" * 4000,
    ]
)
def test_what_two_readers_could_understand_differently_is_refused(form: bytes) -> None:
    for size in (1, None):
        with pytest.raises(InvalidRequest):
            scanned(form, size)


@pytest.mark.parametrize("kind", ["multipart/form-data", f"{KIND}; boundary=c", "multipart/form-data; boundary="])
def test_a_form_has_one_boundary(kind: str) -> None:
    with pytest.raises(InvalidRequest):
        boundary_of(kind)


def test_a_boundary_in_quotes() -> None:
    assert boundary_of('multipart/form-data; charset=utf-8; Boundary="a b"') == b"a b"


def upload(
    form: bytes, bench: Bench, path: str = "/audio/transcriptions", more: Sequence[tuple[str, str]] = ()
) -> MemoryClient:
    headers = [("content-type", KIND), ("content-length", str(len(form))), *more]
    return bench.relay(MemoryClient(form, headers=headers, path=path))


def two_models(*, limits: BodyLimits | None = None) -> Bench:
    models = ModelList({
        "chat": make_deployment(name="chat", api_key="sk-chat"),
        "whisper": make_deployment(name="whisper", model="whisper-large-v3", api_key="sk-whisper"),
    })  # fmt: skip
    return Bench(answers(b'{"text":"hi"}', headers=JSON), models=models, limits=limits)


def test_an_unknown_model_and_a_form_without_one() -> None:
    client = upload(part("model", b"gpt") + END, two_models())
    assert (client.status, orjson.loads(client.answer)["error"]["code"]) == (404, "model_not_found")
    bench = two_models()
    assert upload(FILE + END, bench).status == 200
    assert bench.upstream.calls[0].deployment.name == "chat"
    assert bench.upstream.bodies == [FILE + END]


def test_a_second_model_behind_the_first_breaks_the_upload_off() -> None:
    bench = two_models()
    client = upload(MODEL + FILE + part("model", b"chat") + END, bench)
    assert (client.status, b"twice" in client.answer, bench.upstream.bodies) == (400, True, [])


def test_a_model_that_stands_behind_too_much() -> None:
    client = upload(FILE + MODEL + END, two_models(limits=BodyLimits(body_bytes=1000)))
    assert (client.status, orjson.loads(client.answer)["error"]["code"]) == (400, "missing_model")
    bench = Bench(answers(b"{}", headers=JSON), limits=BodyLimits(body_bytes=1000))
    assert upload(FILE + MODEL + END, bench).status == 200
    assert bench.upstream.bodies == [FILE + MODEL + END]
    bench = Bench(limits=BodyLimits(body_bytes=1000))
    bench.door.admit = lambda headers, now: Principal("s", models=(("*",),))  # type: ignore[method-assign]
    assert upload(FILE + MODEL + END, bench).status == 400


def test_a_form_is_not_read_compressed_nor_without_its_boundary() -> None:
    bench = two_models()
    assert upload(os.urandom(8), bench, more=[("content-encoding", "gzip")]).status == 400
    assert bench.ledger.ended[0].ending is ExchangeOutcome.REFUSED
    client = MemoryClient(MODEL + END, headers=[("content-type", "multipart/form-data")], path="/images/edits")
    assert two_models().relay(client).status == 400


def salted(body: bytes) -> bytes:
    """The body as an engine gets it whose cache keeps the teams apart."""
    models = ModelList({"m": make_deployment(name="m", model="m", base_url="http://up", salts_cache=True)})
    found = Bench(answers(b"{}", headers=JSON), models=models)
    found.relay(MemoryClient(body, path="/completions"))
    (sent,) = found.upstream.bodies
    return sent


@pytest.mark.parametrize("body", [b"[1]", b'{"model": "m"} x', b'\x0b{"model": "m"}', b'{"model": "m"}\x0c'])
def test_what_is_no_object_of_json_does_not_become_one(body: bytes) -> None:
    assert salted(body) == body


@pytest.mark.parametrize("body", [b'{"model":"m"}', b' \r\n\t{"model": "m", "cache_salt": "of another team"}\n'])
def test_the_salt_of_the_team_comes_last(body: bytes) -> None:
    sent = salted(body)
    assert sent.startswith(body.strip()[:-1])
    assert len(orjson.loads(sent)["cache_salt"]) == 32


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
