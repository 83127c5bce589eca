"""The bound of a prompt: no tokenizer makes more of any body, and no hard budget is passed by what is hard to count."""

import asyncio
import base64
import json
import math
import struct
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.kit.tasks import Aside
from proxy.models.bound import picture_tokens, weigh
from proxy.protocol.request import parse_body
from proxy.services import is_counted_by, local_encode
from proxy.teams.estimates import PromptBounds, size_of
from tests.doubles import serving
from tests.examples import sampled
from tests.exchanges import make_exchange
from tests.fuzz.billing import CountingProvider
from tests.security.prompt_meter import billed_prompt, counts, most, pdf, picture
from tests.security.test_money import BUDGET_USD, CHAT, CONFIG, MESSAGES, OVERLAP_S, RESPONSES, Row, asked, chat
from tests.security.world import World, world_of

KINDS = st.sampled_from(
    [
        "words ", "\u0915\u094d\u0937\u093f", "\U0001f468\u200d\U0001f469", "\ufdfa", "\uff21", "中文", "x7Gq", "  ",
        "\n", '"\\', "\x01",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.builds(lambda text, times: text * times, KINDS, st.integers(1, 60)))
NAMES = st.one_of(
    st.sampled_from(
        ["text", "content", "type", "role", "functions", "documents", "prediction", "name", "zap", "input"]
    ),
    st.text(min_size=1, max_size=12),
)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), TEXTS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
TEXT = "seven " * 9_000
PNG = f"data:image/png;base64,{picture(9, 9)}"
PICTURES = st.builds(picture, st.integers(1, 8000), st.integers(1, 8000))
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}, PICTURES),
    st.builds(
        lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}, PICTURES
    ),
    st.builds(lambda data: {"inlineData": {"mimeType": "image/png", "data": data}}, PICTURES),
    st.builds(lambda text: {"type": "document", "source": {"type": "text", "data": text}}, TEXTS),
    st.builds(
        lambda text: {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]}, TEXTS
    ),
)


def laden(part: dict[str, Any], beside: dict[str, Any], within: dict[str, Any]) -> dict[str, Any]:
    """A part with members that no provider knows, beside its own and within them."""
    inner = {name: {**within, **one} if isinstance(one, dict) else one for name, one in part.items()}
    return {**beside, **inner}


STRANGE = st.dictionaries(NAMES, VALUES, max_size=2)
LADEN = st.builds(laden, PARTS, STRANGE, STRANGE)
MESSAGES_OF = st.lists(
    st.one_of(
        st.builds(
            lambda role, said, more: {**more, "role": role, "content": said},
            st.one_of(st.just("user"), TEXTS),
            st.one_of(TEXTS, st.lists(st.one_of(PARTS, LADEN), max_size=4)),
            st.dictionaries(NAMES, VALUES, max_size=2),
        ),
        st.builds(
            lambda call: {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": call}}],
            },
            TEXTS,
        ),
        VALUES,
    ),
    max_size=4,
)
BODIES = st.builds(
    lambda messages, more: {"model": "m", "messages": messages, **more},
    MESSAGES_OF,
    st.dictionaries(NAMES, VALUES, max_size=4),
)


def bounds(body: bytes, *, is_read: bool = True, model: str = "gpt-4o") -> tuple[int, int, str]:
    """The tokens at most by bytes, and by a whole count; what is beyond."""
    aside = Aside()
    try:
        known, seen = PromptBounds(local_encode(), aside, lambda _: False, 512 << 20), make_exchange(size=len(body))
        seen.sent = ((parse_body(body) if is_read else body, 0),)
        by_bytes = asyncio.run(known.bound(seen, counts=False))
        counted = asyncio.run(known.bound(seen, counts=True))
        return by_bytes.tokens(None, model), counted.tokens(1.0, model), by_bytes.beyond
    finally:
        aside.close()


@example(body={"model": "m", "messages": [], "documents": []}, is_ascii=True, is_read=True)
@given(BODIES, st.booleans(), st.booleans())
def test_no_tokenizer_makes_more_of_any_body_than_its_bound(body: object, is_ascii: bool, is_read: bool) -> None:
    written = json.dumps(body, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    if b"\xed" in written:
        written = json.dumps(body).encode()
    by_bytes, counted, beyond = bounds(written, is_read=is_read)
    if beyond:
        return
    for name, count in counts().items():
        assert billed_prompt(written, count) <= by_bytes, name
    assert billed_prompt(written, local_encode()) <= counted <= by_bytes


@given(TEXTS)
def test_no_tokenizer_makes_more_of_a_text_than_its_bytes_or_those_of_its_normal_form(text: str) -> None:
    by_bytes, *_ = bounds(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode())
    assert most(text) <= by_bytes - 30


def late_pdf() -> str:
    return base64.b64encode(b" " * 3000 + base64.b64decode(pdf(3))).decode()


def nested(value: object, depth: int) -> object:
    return value if depth == 0 else nested([value], depth - 1)


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "input_image", "file_id": "f"},
])  # fmt: skip
def test_a_picture_that_is_not_understood_costs_the_most_that_a_picture_can(part: object) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert bounds(body)[0] >= picture_tokens("gpt-4o", None) == 1445


@pytest.mark.parametrize("said", [
    {"content": [{"type": "image_url", "image_url": {"url": PNG}, "zap": TEXT}]},
    {"content": [{"type": "image_url", "image_url": {"url": PNG, "zap": TEXT}}]},
    {"content": [{"type": "image", "source": {"data": picture(9, 9), "media_type": "image/png"}, TEXT: {"a": [[]]}}]},
    {"content": [{"inlineData": {"data": picture(9, 9), "mimeType": "image/png", "media_type": TEXT}}]},
    {"content": "x", "cache_control": {"type": "ephemeral", "zap": TEXT}},
])  # fmt: skip
def test_what_stands_beside_something_that_is_understood_counts_its_bytes(said: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", **said}]}).encode()
    assert bounds(body)[0] > len(TEXT)


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": PNG}, "source": {"data": picture(1, 1), "media_type": "image/png"}},
    {"functionResponse": {"name": "f", "parts": [{"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}]}},
    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{pdf(3)}"}},
    {"type": "file", "file": {"file_data": f"data:text/plain;base64,{pdf(3)}"}},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    {"fileData": {"fileUri": "gs://a"}},
    {"type": "item_reference", "id": "i"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "", "file": {"file_id": "f"}},
    {"type": "what nobody knows"},
    # A part that could hold several media, says two things of one, or calls a file a picture.
    {"type": "file", "file": {"file_data": pdf(3), "filename": "a.pdf"}, "image_url": {"url": "https://example.com/a"}},
    {"type": "file", "file": {"file_data": f"data:image/png;base64,{pdf(3)}"}},
    {"type": "file", "file": {"file_data": f"data:text/plain;base64,{late_pdf()}"}},
    {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": pdf(3)}},
    {"type": "document", "source": {"type": "text", "data": "x", "url": "https://example.com/a.pdf"}},
    {"type": "document", "source": {"type": "text", "data": "x"}, "file_id": "f"},
    {"type": "image_url", "image_url": {"url": "gs://bucket/a"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.mp4"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a", "format": "application/pdf"}},
    # What holds media elsewhere.
    {"functionResponse": {"name": "f", "response": {}, "parts": [{"inlineData": {"data": pdf(3)}}]}},
    {"type": "text", "text": "x", "attachments": [{"file_id": "f"}]},
    {"type": "text", "text": "x", "more": {"again": [f"data:application/pdf;base64,{pdf(3)}"]}},
    nested({"type": "file", "file": {"file_id": "f"}}, 80),
])  # fmt: skip
def test_what_is_of_unknown_length_may_fill_the_window(part: object) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert bounds(body)[2]


@pytest.mark.parametrize("more", [
    {"attachments": [{"file_id": "f"}]},
    {"requests": [{"content": {"parts": [{"inlineData": {"data": pdf(3)}}]}}]},
])  # fmt: skip
def test_a_medium_in_a_member_that_nobody_knows_may_fill_the_window(more: object) -> None:
    assert bounds(json.dumps({"model": "m", "messages": [], **more}).encode())[2]  # type: ignore[dict-item]


@pytest.mark.parametrize("part", [
    {"type": "search_result", "source": "https://example.com/a", "title": "t",
     "content": [{"type": "text", "text": "x"}]},
    {"type": "compaction", "content": "x"},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
    {"type": "tool_use", "id": "t", "name": "f", "input": {"image_url": "a.png", "file": "a.py", "source": "b"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a/b.jpg?size=2", "detail": "high"}},
])  # fmt: skip
def test_what_is_known_does_not_fill_the_window(part: object) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    by_bytes, _, beyond = bounds(body)
    assert (beyond, by_bytes < 1700) == ("", True)


def _segment(mark: int, data: bytes) -> bytes:
    return bytes([0xFF, mark]) + struct.pack(">H", len(data) + 2) + data


def _jpeg(*sizes: tuple[int, int]) -> bytes:
    frames = [_segment(0xC0, b"\x08" + struct.pack(">HH", high, wide) + b"\x01\x01\x11\0") for wide, high in sizes]
    exif = _segment(0xE1, b"Exif\0\0" + bytes(50_000))
    return b"\xff\xd8" + exif + b"".join(frames) + _segment(0xDA, bytes(6)) + bytes(20)


GIF = b"GIF89a" + struct.pack("<HH", 1, 1) + bytes(3) + b"," + struct.pack("<HHHH", 0, 0, 8000, 8000) + bytes(20)


@pytest.mark.parametrize("file", [
    GIF, _jpeg((1, 1), (8000, 8000)), b'<svg width="1px" height="1px" viewBox="0 0 8000 8000"></svg>',
    b"\xff\xd8" + b"\xc0\0\x0b\x08\0\x01\0\x01" + _jpeg((8000, 8000))[2:],
], ids=["GIF", "two sizes", "SVG", "between segments"])  # fmt: skip
def test_a_header_that_does_not_bound_the_picture_lowers_nothing(file: bytes) -> None:
    assert tokens_of_picture(file) >= 4784


def test_a_picture_costs_by_the_one_size_of_its_header() -> None:
    assert tokens_of_picture(_jpeg((280, 280))) < 250
    assert tokens_of_picture(base64.b64decode(picture(280, 280))) < 250


def test_a_picture_costs_no_less_than_any_model_bills_for_one() -> None:
    """Qwen with ``vl_high_resolution_images``, which Qwen Code sends: a token for 32 by 32 pixels, at most 16,384."""
    for pixels in (None, (4096, 4096), (8000, 8000), (3000, 4000)):
        width, height = pixels or (10**6, 10**6)
        billed = min(16_384, math.ceil(width / 32) * math.ceil(height / 32))
        for model in ("qwen3-vl-plus", "a-model-that-nobody-knows"):
            assert picture_tokens(model, pixels) >= billed, (model, pixels)


def tokens_of_picture(file: bytes) -> int:
    data = base64.b64encode(file).decode()
    part = {"type": "image", "source": {"type": "base64", "media_type": "image/x", "data": data}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    return bounds(body, model="claude-opus-5")[0]


# Where the same words may stand: each place is given a long text in a shape that some reader sees and another does not.
HIDDEN = [
    '"messages":[{"role":"user","content":LONG,"content":"x"}]',
    '"messages":[{"role":"user","content":[{"type":"text","text":LONG,"text":"x"}]}]',
    '"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"x":LONG}}]}]',
    '"messages":[{"role":"user","content":[{"type":"image_url","image_url":PICTURE,"zap":LONG}]}]',
    '"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":PICTURE,"alt":LONG}}]}]',
    '"messages":[{"role":"user","content":"x","image_url":PICTURE,"documents":LONG}]',
    '"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"a":LONG},"source":{"type":"text","data":"x"}}]}]',
    '"messages":[{"role":"user","content":0.DIGITS1}]',
    '"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"a":NUMBERS}}]}]',
    '"tools":[{"type":"function","function":{"name":"f","description":LONG,"description":"x"}}]',
    '"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":NUMBERS}}}]',
    '"context_management":{"edits":[{"type":"compact","instructions":LONG}]}',
    '"metadata":{"a":LONG}',
    '"stop":[LONG]',
    '"tool_choice":{"name":LONG}',
]


@given(st.sampled_from(HIDDEN), st.sampled_from(["x7Gq", "\u0915\u094d\u0937", "words "]), st.booleans())
def test_what_some_reader_would_see_is_counted(hidden: str, text: str, spaced: bool) -> None:
    long = text * (20_000 // len(text.encode()))
    found = hidden.replace("LONG", json.dumps(long, ensure_ascii=False)).replace("DIGITS", "0" * 20_000)
    found = found.replace("NUMBERS", "[" + ",".join(["9" * 4000] * 5) + "]")
    found = found.replace("PICTURE", f'"data:image/png;base64,{picture(1, 1)}"')
    by_bytes, counted, beyond = bounds(f'{{"model":"m",{found}}}'.replace(":", ": " if spaced else ":").encode())
    assert beyond or (by_bytes >= 19_000 and counted >= min(local_encode()(long), 6000))


@given(st.integers(1, 12), st.integers(1, 3), st.text("abc ", max_size=40))
def test_references_of_a_schema_count_as_what_they_unfold_to(depth: int, times: int, said: str) -> None:
    leaf: object = {"description": said}
    defs: dict[str, object] = {f"D{depth}": leaf}
    for at in range(depth):
        defs[f"D{at}"] = {"anyOf": [{"$ref": f"#/$defs/D{at + 1}"}] * times}
    schema = {"$ref": "#/$defs/D0", "$defs": defs}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    by_bytes, counted, beyond = bounds(json.dumps({"model": "m", "messages": [], "tools": tools}).encode())
    assert not beyond
    assert by_bytes >= counted >= times**depth * len(said)


def test_definitions_that_name_each_other_are_of_unknown_length_and_one_that_names_itself_is_not() -> None:
    def of(defs: object) -> str:
        return bounds(json.dumps({"model": "m", "response_format": {"$ref": "#/A", "$defs": defs}}).encode())[2]

    assert of({"A": {"x": {"$ref": "#/$defs/B"}}, "B": {"x": [{"$ref": "#/$defs/A"}] * 2}})
    assert not of({"A": {"x": {"$ref": "#/$defs/A"}}})


def test_models_whose_tokenizer_is_known() -> None:
    assert is_counted_by("openai/gpt-4o-2024-11-20")
    assert not is_counted_by("gpt-4-turbo")
    assert not is_counted_by("claude-opus-5")


DENSE = "x7Gq\u0915\u094d\u0937\U0001f468 " * 700
PROSE = "All of this was said before, and better. " * 400
LIT = [{"role": "user", "content": "x"}]


def sampled_blind(chars: int) -> str:
    """Blanks where evenly spaced slices are taken, and dense text elsewhere."""
    count = max(4, chars // (200 * 16))
    step = chars / count
    margin = (step - 200) / 2
    text = ["\u0915"] * chars
    for at in range(count):
        start = int(at * step + margin)
        text[start : start + 200] = [" "] * 200
    return "".join(text)


def said(**member: object) -> dict[str, object]:
    return chat(max_tokens=10, messages=[{"role": "assistant", "content": "x", **member}, *LIT])


def dense(text: str) -> object:
    return [{"role": "user", "content": text}]


def parts(*found: object) -> dict[str, object]:
    return chat(max_tokens=10, messages=[{"role": "user", "content": list(found)}])


FLAT = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(2048, 2048)}"}}
INLINE = {"type": "base64", "media_type": "image/png", "data": picture(1500, 1500)}
PDF, WORDS = "data:application/pdf;base64," + pdf(100), "data:text/plain;base64," + "QUJD" * 5000
SOURCE = {"type": "text", "media_type": "text/plain", "data": PROSE}
SEEN = {"type": "input_image", "image_url": FLAT["image_url"]["url"]}
BLIND = dense(sampled_blind(20_000))
RAW = (("x-stratiform-mode", "passthrough"),)
TINY = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(1, 1)}"}}
TWICE = f'{{"model":"m","max_tokens":10,"messages":[{{"role":"user","content":{json.dumps(PROSE)},"content":"x"}}]}}'


def unfolding(depth: int) -> object:
    """A tool whose schema is doubled by each of its definitions."""
    defs: dict[str, object] = {f"D{at}": {"anyOf": [{"$ref": f"#/$defs/D{at + 1}"}] * 2} for at in range(depth)}
    schema = {"$ref": "#/$defs/D0", "$defs": {**defs, f"D{depth}": {"description": "long"}}}
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


ROWS = [
    Row("functions", CHAT, chat(max_tokens=10, functions=[{"name": "f", "description": DENSE}])),
    Row("response_format", CHAT, chat(max_tokens=10, response_format={"type": "json_schema", "x": PROSE}), passes=True),
    Row("prediction", CHAT, chat(max_tokens=10, prediction={"type": "content", "content": PROSE[:2500]}), passes=True),
    Row("documents", CHAT, chat(max_tokens=10, documents=[{"title": "t", "text": PROSE}]), passes=True),
    Row("a member that nobody knows", CHAT, chat(max_tokens=10, wonders=DENSE[:600]), passes=True),
    Row("reasoning_content", CHAT, said(reasoning_content=PROSE), passes=True),
    Row("refusal", CHAT, said(refusal=DENSE)),
    Row("function_call", CHAT, said(function_call={"name": "f", "arguments": PROSE}), passes=True),
    Row("a PDF of a hundred pages", CHAT, parts({"type": "file", "file": {"file_data": PDF}})),
    Row("fifty pictures", CHAT, parts(*[FLAT] * 50)),
    Row("a picture", CHAT, parts(FLAT), passes=True),
    Row("a file of text", CHAT, parts({"type": "file", "file": {"file_data": WORDS}})),
    Row("a document of text", MESSAGES, parts({"type": "document", "source": SOURCE}), passes=True),
    Row("a picture in messages", MESSAGES, parts({"type": "image", "source": INLINE}), passes=True),
    Row("pictures in responses", RESPONSES,
        {"model": "m", "max_output_tokens": 10, "input": [{"role": "user", "content": [SEEN] * 20}]}),
    Row("blanks where samples are taken", CHAT, chat(max_tokens=10, messages=BLIND)),
    Row("dense text, passed through", CHAT, chat(max_tokens=10, messages=dense(DENSE)), RAW),
    Row("letters that become longer", CHAT, chat(max_tokens=10, messages=dense("\ufdfa" * 900))),
    Row("a content that stands twice", CHAT, TWICE.encode(), passes=True),
    Row("text beside a picture", CHAT, parts({**TINY, "zap": DENSE})),
    Row("a file beside a picture", CHAT, parts({**TINY, "type": "file", "file": {"file_data": pdf(100)}})),
    Row("schemas that unfold", CHAT, chat(max_tokens=10, tools=unfolding(11))),
    Row("text at a planned model", CHAT, {**chat(max_tokens=10, messages=dense(PROSE)), "model": "groq"}, passes=True),
]  # fmt: skip


@pytest.fixture(scope="module")
def provider() -> CountingProvider:
    return CountingProvider(always="plain", tokens_per_s=1000.0, prompt=lambda body: billed_prompt(body, most))


@pytest.fixture(scope="module")
def priced_world(provider: CountingProvider) -> Iterator[World]:
    with serving(provider) as url, world_of(CONFIG.replace("PROVIDER", url), providers=()) as world:
        yield world


@pytest.mark.parametrize("row", sampled([pytest.param(row, id=row.name) for row in ROWS], 6))
def test_a_hard_budget_holds_for_all_that_is_sent(priced_world: World, provider: CountingProvider, row: Row) -> None:
    _, key = priced_world.new_key()
    provider.bills.clear()
    provider.wait_s = OVERLAP_S
    statuses = priced_world.at_once([lambda: asked(priced_world, row, key)] * 16)
    statuses += priced_world.at_once([lambda: asked(priced_world, row, key)] * 16)
    body = row.body if isinstance(row.body, bytes) else json.dumps(row.body).encode()
    one_usd = billed_prompt(body, most) * 0.000002
    assert provider.usd <= BUDGET_USD + one_usd, (provider.usd, len(provider.bills))
    assert not any(status >= 500 for status in statuses), statuses
    assert not row.passes or 200 in statuses, statuses


MARKS = st.sampled_from("\u0300\u0315\u0323\u0344\u05b0\u3099")


@given(st.lists(st.one_of(st.text(max_size=3), st.text(MARKS, min_size=100, max_size=150)), max_size=4).map("".join))
def test_long_runs_of_marks_have_no_fewer_bytes_than_their_normal_form(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    found = weigh("messages", json.dumps({"role": "user", "content": text}).encode(), size_of, None)
    assert found.text >= len(unicodedata.normalize("NFKC", text).encode())


def test_no_long_run_of_marks_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, sorted_chars = json.dumps({"role": "user", "content": "a" + "\u0315" * 45_000 + "\u0300" * 45_000}), [0]
    normalize, is_normalized = unicodedata.normalize, unicodedata.is_normalized

    def sorts(form: Literal["NFKC"], text: str) -> str:
        sorted_chars.append(len(text))
        return normalize(form, text)

    def looks(form: Literal["NFKC"], text: str) -> bool:
        sorted_chars.append(len(text))
        return is_normalized(form, text)

    monkeypatch.setattr(unicodedata, "normalize", sorts)
    monkeypatch.setattr(unicodedata, "is_normalized", looks)
    assert weigh("messages", raw.encode(), size_of, None).text >= 2 * 90_000
    assert max(sorted_chars) < 1_000, "the sort takes the square of a run's length"


@given(st.integers(0, 40), st.binary(max_size=4))
def test_a_picture_may_end_anywhere(length: int, end: bytes) -> None:
    for file in (_jpeg((9, 9)), base64.b64decode(picture(9, 9))):
        tokens_of_picture(file[:length] + end)


@pytest.mark.parametrize("said", ['{"a": "\\ud800"}', '{"\\ud800": 1}', "[" * 600 + "]" * 600])
def test_a_definition_that_cannot_be_written_is_of_unknown_length(said: str) -> None:
    schema = f'{{"$ref": "#/$defs/a", "$defs": {{"a": {said}}}}}'
    tools = f'[{{"type": "function", "function": {{"name": "x", "parameters": {schema}}}}}]'
    assert weigh("tools", tools.encode(), size_of, None).beyond == "tools"


@pytest.mark.parametrize("times", [40, 1_100])
def test_a_schema_that_doubles_without_end_is_of_unknown_length(times: int) -> None:
    definitions = {f"x{number}": [{"$ref": f"#/x{number + 1}"}] * 2 for number in range(times)}
    named = [{"$ref": f"#/x{number}"} for number in range(times + 1)]
    schema = {"$defs": {**definitions, f"x{times}": {"a": 1}}, "anyOf": named}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    found = weigh("tools", json.dumps(tools).encode(), size_of, None)
    assert (found.beyond, found.bare < 1 << 40) == ("tools", True)


@given(
    st.dictionaries(
        st.sampled_from(["type", "source", "image_url", "file_id", "data", "url", "media_type", "text"]),
        st.sampled_from([None, "", "image", "text", "a", {}, {"data": "a"}, {"url": None}, ["a"], 1]),
    )
)
@example({"file_id": None, "data": "a"})
def test_a_part_may_leave_out_or_have_null_what_it_will(part: dict[str, object]) -> None:
    weigh("messages", json.dumps({"role": "user", "content": [part]}).encode(), size_of, None)
