"""Every pattern of the tree, and every routine over text that a client or an upstream sends, is linear in its input.

A text is derived from each repetition of each pattern (``tests.security.pumps``); a shared list of hard texts goes
through the whole routines. What a pattern or a routine takes for a text is compared with what it takes for one that is
four times as long, in the processor's time of this thread.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import plugins
import proxy
from proxy.engine.bodies import FormScan, boundary_of
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.errors import ProxyError
from proxy.kit.secrets import without_keys
from proxy.planner.change_rates import stands
from proxy.planner.volatile_lines import Regions, learnt_lines, with_evidence
from proxy.protocol.access import captured, matches
from proxy.protocol.recognition import Recogniser, TooMuch
from proxy.protocol.recognition.lines import Lines, block_of, closes_fences
from proxy.protocol.request.message import Message, MessageReader
from proxy.protocol.request.tokens import Encode, TokenCounter, estimate, quick
from proxy.protocol.response import StreamFold
from proxy.services import local_encode
from tests.examples import examples, sampled
from tests.security.pumps import Pump, pumps, superlinear

_ROOT = Path(proxy.__file__).parent.parent
_CHUNK = 16
# A pattern may take exponential time, which shows in a tiny text.
_TINY = 6
_SHORT, _LONG = 6_144, 24_576
# A routine does some things once, and what it recognises is bounded: it is compared beyond both.
_ROUTINE_SIZES = 8_000, 32_000
# The short run pumps a pattern with fewer of its texts, and with shorter ones.
_LARGEST, _MOST_PUMPS = (_LONG, 120) if examples(100) >= 100 else (_SHORT, 50)


def _modules() -> Iterator[ModuleType]:
    for package in (proxy, plugins):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # The hook that LiteLLM loads has no pattern, and imports litellm.
            if not found.name.endswith(("__main__", ".litellm_hook")):
                yield importlib.import_module(found.name)


def _within(value: object, seen: set[tuple[int, int]], depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value of a module: itself, in collections, in fields and in attributes of classes; each value
    is looked through once at each depth."""
    if isinstance(value, re.Pattern):
        yield value
        return
    if depth > 4 or (id(value), depth) in seen:
        return
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif isinstance(value, type):
        inner = vars(value).values()
    elif is_dataclass(value):
        inner = (getattr(value, field.name, None) for field in fields(value))
    else:
        return
    seen.add((id(value), depth))
    for each in inner:
        yield from _within(each, seen, depth + 1)


def _patterns() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern of the tree, by the module that it is found in first and its text."""
    found: dict[tuple[Any, int], str] = {}
    seen: set[tuple[int, int]] = set()
    for module in _modules():
        for name, value in vars(module).items():
            for pattern in _within(value, seen):
                found.setdefault((pattern.pattern, pattern.flags), f"{module.__name__}.{name}#{len(found)}")
    return {name: re.compile(*key) for key, name in found.items()}


_PATTERNS = _patterns()


@pytest.mark.parametrize("name", sampled(_PATTERNS, 2))
def test_no_text_is_hard_for_a_pattern(name: str) -> None:
    assert _hard_for(_PATTERNS[name], _LARGEST) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        r'(?:^|\n)<file\b[^>\n]*?\b(?:path|name)=["\'][^"\'\n]+["\'][^>\n]*>',
        r"(?:^|\n)`{3,}(?:title=)?[\w./]+\.\w+[^\n]*\n",
        r"[\w-]+\s*=\s*\"[^\"]*\"",
        r"\s*Handle with",
        r"(\w+://)[^\s/@]+@",
        r"(a|b|ab)*c",
    ],
)
def test_a_text_is_hard_for_patterns_that_try_again_and_again(source: str) -> None:
    # In the longer text, since a fast machine takes no time for a short one that is worth a comparison.
    assert _hard_for(re.compile(source), _LONG)


def _hard_for(pattern: re.Pattern[Any], largest: int) -> str:
    is_bytes = isinstance(pattern.pattern, bytes)
    hard = pumps(pattern)
    for pump in hard[:: -(-len(hard) // _MOST_PUMPS) or 1]:
        for method in (pattern.search, pattern.fullmatch):

            def routine(text: str, method: Callable[[Any], object] = method) -> object:
                return method(text.encode("utf-8", "surrogatepass") if is_bytes else text)

            if found := superlinear(routine, pump, _TINY, largest):
                return f"{pump}: {found}"
    return ""


@pytest.mark.slow
def test_patterns_are_compiled_where_they_are_found() -> None:
    """None within a function, but of literal words: this file could not see it."""
    hidden = [
        f"{path.relative_to(_ROOT)}:{call.lineno}"
        for folder in ("proxy", "plugins")
        for path in (_ROOT / folder).rglob("*.py")
        if "re." in (source := path.read_text())
        for function in ast.walk(ast.parse(source))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and _is_pattern(call.func) and "re.escape" not in ast.unparse(call)
    ]
    assert hidden == []


def _is_pattern(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr != "escape"
    )


# Whole routines.

_BODIES = (
    "a", " ", "\n", "\r\n", "a.", "x y ", "\u00e9\u4e00", "0123456789", "\\", '"', "'", "`", "~", "<", ">", "=",
    "-", "/", "```\n", "```\n```\n", "```\nx\n", "~~~\n", "\n```a", "a.py\n```\n```\n", "f.py\n```\nx\n```\n\n",
    "<source>\n", "\nx\n<source>\n</source>\n", '<file path="a"', 'name="x" ', "<file\n",
    '<file path="a.py">x</file>\n', "<doc\n", '<doc a="1">\n', '<doc a="1">\nx\n</doc>\n',
    '<doc id="a" part="1">\nx\n</doc>\n', "</doc>\n", "<a>", "</a>", "<a>\n", "</a>\n", "<a>\n</a>\n",
    "<document " + "a" * 950 + ' b="1">\nx\n</document>\n', "10:00 ", "10:00\n", "It is 10:00 now\n", "now ",
    "now 10:00 x ", "- a\n", "# h\n", "x:\n", "a: b\n", "a\nb\n", "\n\nab", "(", "[", "../", "%2e", "%25", ";a=",
    '; name="', "\r\n\r\n", "data: {}\n\n", "data: x\n", "\r", 'api_key="', "Bearer ", "sk-", "http://a:", "eyJ",
    "\\u0041", "a*", "&#45;",
)  # fmt: skip
_BEFORE = (
    "", '<file path="a', "```", "\n```a.b", "<document a='1'>\n", "<documents>\n",
    "I have *added these files to the chat* so you can go ahead and edit them.\n\na.py\n```\n",
    "Current time: 10:00\n",
)  # fmt: skip
_BEHIND = ("", '"\n', '">x</file>', "</documents>\n", "\n```\n")


def _texts() -> Iterator[Pump]:
    for body in _BODIES:
        yield Pump("", body, "")
        yield Pump("", body, "\nIt is 10:00 now\n")
    for before in _BEFORE[1:]:
        for body in _BODIES[:16]:
            for behind in _BEHIND[:2]:
                yield Pump(before, body, behind)
    for behind in _BEHIND:
        for body in _BODIES[30:46]:
            yield Pump("<documents>\n", body, behind)


def _recognising(recogniser: Recogniser, role: str) -> Callable[[str], object]:
    def recognise(text: str) -> None:
        with suppress(TooMuch):
            recogniser.recognise(role, text)

    return recognise


def _pieces(text: str) -> Iterable[bytes]:
    data = text.encode("utf-8", "surrogatepass")
    return (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))


def _stream(text: str) -> None:
    fold = StreamFold()
    for piece in _pieces(f"data: {text}"):
        fold.feed(piece)
    fold.close()


def _form(text: str) -> None:
    scan = FormScan(b"b")
    with suppress(ProxyError):
        for piece in _pieces(f'--b\r\ncontent-disposition: form-data; name="x"{text}'):
            scan.feed(piece)


def _boundary(text: str) -> None:
    with suppress(ProxyError):
        boundary_of(f"multipart/form-data; boundary={text}")


def _block(text: str) -> None:
    lines = Lines(text.split("\n"))
    block_of(lines, len(lines) // 2, len(lines) // 2 + 1)


_RECOGNISERS = recognisers(build_plugin_manager())


def _read(text: str, reader: MessageReader) -> Message:
    return reader.read(msgspec.Raw(msgspec.json.encode({"role": "system", "content": text})))


def _evidence(text: str) -> None:
    """Two versions of a text, of which the later one is cut by what the earlier one tells."""
    reader = MessageReader(TokenCounter(), _RECOGNISERS)
    head: list[tuple[int, ...]] = []
    evidence: Regions = ()
    lines = text.split("\n")
    for number in range(2):
        changed = "\n".join(f"{line}{number}" if not at % 70 else line for at, line in enumerate(lines))
        message = _read(f"Rules.\n{changed}\nThe end.", reader)
        head, evidence = learnt_lines(head, [message], evidence)
        with_evidence(message, 0, evidence)


@cache
def _count() -> Encode:
    """The server's own count; to read its table takes a second."""
    return quick(local_encode())


def _routines() -> dict[str, Callable[[str], object]]:
    found: dict[str, Callable[[str], object]] = {
        f"{each.name} as {role}": _recognising(each, role) for each in _RECOGNISERS for role in ("user", "system")
    }
    return found | {
        "fences": closes_fences,
        "block": _block,
        "evidence": _evidence,
        "stream": _stream,
        "form": _form,
        "boundary": _boundary,
        "tokens": lambda text: _count()(text or "x"),
        "estimate": estimate,
        "redaction of keys": without_keys,
        "a name in a text": lambda text: stands(text[: len(text) // 2] or "x", text),
        "a wildcard": lambda text: matches("*a*a*/*.b*x", text),
        "what stars stand for": lambda text: captured("*a*a*/*.b*x", text),
    }


_ROUTINES = _routines()
# Of the texts for these, only every fifth is measured.
_SLOW = ("evidence", "redaction of keys")


@pytest.mark.slow
@pytest.mark.parametrize("name", _ROUTINES)
def test_no_text_is_hard_for_a_routine(name: str) -> None:
    for pump in islice(_texts(), None, None, 5 if name in _SLOW else 1):
        found = superlinear(_ROUTINES[name], pump, *_ROUTINE_SIZES)
        assert not found, f"{pump}: {found}"
