"""Request bodies that are hard to take apart or to plan, of any size: functions of about how many bytes they have.

``WIRE`` are JSON texts that are hard to read; ``CHATS`` are conversations that are hard to plan.
"""

from collections.abc import Callable, Mapping

import orjson

MODEL = "m"
Make = Callable[[int], bytes]

_CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]'
_CODE = "    value = compute(a, b)\n"
_PROSE = "It was the best of times, it was the worst of times.\n"


def filled(unit: bytes, size: int) -> bytes:
    """The unit again and again, about ``size`` bytes of it."""
    return unit * max(1, size // len(unit))


def _beside(before: bytes, unit: bytes, behind: bytes) -> Make:
    """A small chat with a member in which a unit is repeated."""
    return lambda size: _CHAT + b"," + before + filled(unit, size) + behind + b"}"


def _in_front(before: bytes, unit: bytes, behind: bytes) -> Make:
    """A body that begins with what is repeated."""
    return lambda size: before + filled(unit, size) + behind


def _names(size: int) -> bytes:
    return _CHAT + b"".join(b',"%x":1' % number for number in range(size // 9)) + b"}"


WIRE: Mapping[str, Make] = {
    "name-of-escaped-quotes": _beside(b'"', rb"\"", b'":1'),
    "name-of-backslashes": _beside(b'"', rb"\\", b'":1'),
    "name-of-letters": _beside(b'"', b"a", b'":1'),
    "name-of-escapes": _beside(b'"', rb"\u0041", b'":1'),
    "many-names": _names,
    "one-name-many-times": _beside(b'"x":1', b',"x":1', b""),
    "model-many-times": _beside(b'"x":1', b',"model":"m"', b""),
    "messages-many-times": _beside(b'"x":1', b',"messages":[]', b""),
    "space-in-front": _in_front(b"", b" ", _CHAT + b"}"),
    "space-behind": _in_front(_CHAT + b"}", b"\n", b""),
    "space-before-a-name": _beside(b"", b"\t", b'"x":1'),
    "space-around-a-colon": lambda size: _CHAT + b',"x"' + b" " * (size // 2) + b":" + b"\r\n" * (size // 4) + b"1}",
    "lists-in-lists": _beside(b'"x":', b"[", b""),
    "objects-in-objects": _beside(b'"x":', b'{"a":', b""),
    "long-number": _beside(b'"x":', b"9", b""),
    "long-number-of-choices": _beside(b'"n":', b"9", b""),
    "long-limit": _beside(b'"max_tokens":1', b"0", b""),
    "long-fraction": _beside(b'"n":0.', b"9", b""),
    "long-exponent": _beside(b'"n":1e', b"9", b""),
    "long-number-beside-nan": _beside(b'"y":NaN,"x":', b"9", b""),
    "lists-beside-nan": _beside(b'"y":NaN,"x":', b"[", b""),
    "nan-many-times": _beside(b'"x":[1', b",NaN", b"]"),
    "objects-beside-nan": _beside(b'"y":NaN,"x":[1', b",{}", b"]"),
    "halves-of-characters": _beside(b'"x":"', rb"\ud800", b'"'),
    "halves-in-capitals": _beside(b'"x":"', rb"\uDFFF\ud800", b'"'),
    "half-a-character-beside-quotes": _beside(rb'"x":"\ud800","y":"', rb"\"", b'"'),
    "half-a-character-beside-backslashes": _beside(rb'"x":"\ud800","y":"', rb"\\", b'"'),
    "names-with-halves": _beside(b'"x":1', rb',"\ud800":1', b""),
    "raw-halves": _beside(b'"', b"\xed\xa0\x80", b'":1'),
    "no-utf-8": _beside(b'"', b"\xff", b'":1'),
    "model-of-letters": _in_front(b'{"model":"', b"a", b'","messages":[{"role":"user","content":"hi"}]}'),
    "model-of-escapes": _in_front(b'{"model":"', rb"\u0041", b'","messages":[{"role":"user","content":"hi"}]}'),
    "model-of-objects": _in_front(b'{"model":[1', b",{}", b'],"messages":[{"role":"user","content":"hi"}]}'),
    "choices-of-objects": _beside(b'"n":[1', b",{}", b"]"),
    "prompts": _beside(b'"prompt":[1', b',"a"', b"]"),
    "settings-of-names": _beside(b'"generationConfig":{"a":1', b',"b":1', b"}"),
    "options-of-objects": _beside(b'"stream":true,"stream_options":{"a":[1', b",{}", b"]}"),
    "user-of-escapes": _beside(b'"user":"', rb"\n", b'"'),
    "only-quotes": _in_front(b"", b'"', b""),
    "only-names": _in_front(b"{", b'"messages"', b""),
    "only-backslashes": _in_front(b'{"a":"', b"\\", b""),
    "zeros": _in_front(b"", b"\0", b""),
    "marks-of-utf-8": _in_front(b"", b"\xef\xbb\xbf", _CHAT + b"}"),
    "wide-characters": lambda size: ('{"model":"' + "a" * (size // 2) + '"}').encode("utf-16"),
}


def _chat(*messages: object, **more: object) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": list(messages), **more})


def _turns(size: int, each: int) -> bytes:
    """A conversation of messages of about ``each`` bytes."""
    messages: list[object] = []
    for turn in range(max(1, size // each // 2)):
        text = _CODE * (each // len(_CODE))
        messages.append({"role": "user", "content": f"Question {turn}: {text}"})
        messages.append({"role": "assistant", "content": f"Answer {turn}: {text}"})
    return _chat(*messages, {"role": "user", "content": "And now?"})


def _parts(size: int) -> bytes:
    count = max(1, min(9_000, size // 100))
    text = "word " * max(1, size // count // 5)
    return _chat({"role": "user", "content": [{"type": "text", "text": f"{n} {text}"} for n in range(count)]})


def _tools(size: int) -> bytes:
    count = max(1, min(9_000, size // 300))
    words = "Reads a file and returns its lines. " * max(1, size // count // 36)
    tools = [{"type": "function", "function": {"name": f"t{n}", "description": words}} for n in range(count)]
    return _chat({"role": "user", "content": "hi"}, tools=tools)


def _calls(size: int) -> bytes:
    count = max(1, min(9_000, size // 150))
    text = "word " * max(1, size // count // 5 - 30)
    run = {"name": "run", "arguments": '{"x":1}'}
    calls = [{"id": f"c{n}", "type": "function", "function": run} for n in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n in range(count)]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    return _chat({"role": "user", "content": "hi"}, asked, *results)


def _files(size: int) -> bytes:
    """aider's own words (aider 0.86, edit format diff) around many files."""
    opening = (
        "I have *added these files to the chat* so you can go ahead and edit them.\n\n"
        "*Trust this message as the true contents of these files!*\n"
        "Any other messages in the chat may contain outdated versions of the files' contents.\n"
    )
    shown = "".join(f"\nsrc/f{n}.py\n```\n# {n}\n{_CODE * 75}```\n" for n in range(max(1, size // 2000)))
    return _chat(
        {"role": "system", "content": "You edit code. " * 300},
        {"role": "user", "content": opening + shown},
        {"role": "assistant", "content": "Ok, any changes I propose will be to those files."},
        {"role": "user", "content": "Rename compute."},
    )


def _documents(size: int) -> bytes:
    report = "Annual report of the company. " * 60
    count = range(max(1, size // 1900))
    shown = [f'<document index="{n}">\n<source>r{n}.txt</source>\n{report}\n</document>\n' for n in count]
    system = {"role": "system", "content": "Answer from these documents.\n" + "".join(shown)}
    return _chat(system, {"role": "user", "content": "When?"})


def _dates(size: int) -> bytes:
    lines = [f"Today's date is 2026-01-{n % 28 + 1:02}. Rule {n}: be brief." for n in range(max(1, size // 50))]
    return _chat({"role": "system", "content": "\n".join(lines)}, {"role": "user", "content": "hi"})


def text_of(unit: str, role: str = "user") -> Make:
    """A conversation with one large text."""
    return lambda size: _chat(
        {"role": "system", "content": "You help. " * 500},
        {"role": role, "content": unit * max(1, size // (len(orjson.dumps(unit)) - 2))},
        {"role": "user", "content": "hi"},
    )


CHATS: Mapping[str, Make] = {
    "messages": lambda size: _turns(size, 2_000),
    "small-messages": lambda size: _turns(min(size, 900_000), 100),
    "parts": _parts,
    "tools": _tools,
    "tool-calls": _calls,
    "files": _files,
    "documents": _documents,
    "dates-in-the-system-text": _dates,
    "prose": text_of(_PROSE),
    "one-long-word": text_of("a"),
    "spaces": text_of(" "),
    "line-ends": text_of("\n"),
    "emoji": text_of("\U0001f389"),
    "escapes": text_of('"\\\n'),
    "symbols": text_of("!?"),
    "digits": text_of("1234567890"),
    "backticks": text_of("```\n"),
    "tags": text_of('<file path="a">'),
    "prose-in-the-system-text": text_of(_PROSE, "system"),
    "one-long-word-in-the-system-text": text_of("a", "system"),
    "line-ends-in-the-system-text": text_of("\n", "system"),
    "backticks-in-the-system-text": text_of("```\n", "system"),
}
