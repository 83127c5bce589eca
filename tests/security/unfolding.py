"""Requests with structured context that are short and stand for much, as Hypothesis draws them: digests that are named
many times, thousands of small things of every kind, deep nesting, and texts that are hard to parse."""

from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import strategies as st

from proxy.context.form import text_digest

_SUFFIXES = ("py", "ts", "tsx", "js", "go", "rs", "java", "c", "cpp", "rb", "php", "txt")
# What opens, what closes, and what stands inside.
_NESTS = (
    ("a<", ">", "b"), ("Map<String, ", ">", "X"), ("(", ")", "1"), ("[", "]", "1"), ("{", "}", "1"), ("a,", "", "b"),
    ("@a\n", "", "f"), ("a?b:", "", "c"), ("a:", "", ";"), ("a.", "", "b"), ("f(", "", "x"), ("`${", "}`", "1"),
    ("if(a){}else ", "", "{}"), ("&'a ", "", "x"), ("a::", "", "b"), ("template<", "> class a", ""),
    ("<a>", "</a>", "b"),
)  # fmt: skip
_FEWEST_TERMS = {"chunk_messages": 1, "chunk_tokens": 1, "keep_messages": 1, "keep_tokens": 1}


class Unfolding:
    """``bodies`` are the requests of one conversation, in their order. Texts that a later one names by their digests
    stand in an earlier one."""

    def __init__(self, kind: str, bodies: Sequence[bytes]) -> None:
        self.kind, self.bodies = kind, bodies

    def __repr__(self) -> str:
        """Short: Hypothesis would print all fields of a dataclass, and warn that they are too long."""
        return f"Unfolding({self.kind!r}, {[len(body) for body in self.bodies]} bytes)"


def body(section: object, messages: Sequence[object] = ({"role": "user", "content": "go on"},)) -> bytes:
    """A request with this section."""
    return orjson.dumps({"model": "cheap", "messages": messages, "max_tokens": 16, "stratiform": section})


def hard_text(suffix: str, nest: tuple[str, str, str], size: int, mark: object = "") -> str:
    """A text of about this size that is hard to parse."""
    opening, closing, inside = nest
    times = max(1, size // len(opening + closing))
    start = "<?php\n" if suffix == "php" else ""
    return f"{start}class A {{ {opening * times}{inside}{closing * times} f; }} {mark}\n"


def _turns(count: int, each: int) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": f"{number} " + "word " * (each // 5)} for number in range(count)]


@st.composite
def unfolding(draw: st.DrawFn, most_bytes: int) -> Unfolding:
    """A conversation whose requests have about ``most_bytes`` each at most."""
    kind = draw(st.sampled_from(["digests", "small files", "hard texts", "messages", "symbols", "panels", "review"]))
    each = draw(st.sampled_from([0, 20, 200, 2_000, 20_000]))
    count = max(1, min(draw(st.sampled_from([50, 500, 4_900])), most_bytes // (each + 80)))
    selected = draw(st.booleans())
    depth = draw(st.sampled_from([1, 5, 60]))

    def path(number: int, suffix: str = "py") -> str:
        return "/".join(f"d{(number * 7 + level) % 97}" for level in range(depth)) + f"/f{number}.{suffix}"

    turns = _turns(count, each)
    match kind:
        case "digests":
            text = "def f(a):\n    return a\n" * max(1, draw(st.sampled_from([1, 500, 40_000])))
            upload = body({"session": "s", "use_repo_map": False, "files": [{"path": "up.py", "content": text}]})
            files = [{"path": path(n), "digest": text_digest(text), "selected": selected} for n in range(count)]
            return Unfolding(kind, [upload, body({"session": "s", "files": files})])
        case "small files" | "hard texts":
            suffix, nest = draw(st.sampled_from(_SUFFIXES)), draw(st.sampled_from(_NESTS))
            made = [
                {
                    "path": path(n, suffix),
                    "selected": selected,
                    "content": hard_text(suffix, nest, each, n)
                    if kind == "hard texts"
                    else f"from f{n + 1} import a\n",
                }
                for n in range(count)
            ]
            return Unfolding(kind, [body({"files": made, "tree": True})])
        case "messages":
            section: dict[str, Any] = {"session": "s", "panels": [{"id": "a", "content": "x"}], "detach": _FEWEST_TERMS}
            status, described = (
                draw(st.sampled_from(["active", "deleted", "summarized", "detached"])),
                draw(st.booleans()),
            )
            meta = {"status": status} | ({"tl_dr": "short"} if status == "summarized" else {})
            bodies = []
            for shown in (turns[: count // 2 or 1], turns):
                # The newest message of the user, and what stands behind it, cannot be described.
                last_user = (len(shown) - 1) // 2 * 2
                metas = [{"index": n, **meta} for n in range(last_user)]
                bodies.append(body(section | ({"messages_meta": metas} if described else {}), shown))
            return Unfolding(kind, bodies)
        case "symbols":
            return Unfolding(
                kind, [body({"symbols": [{"path": path(n), "block": "b" * each or "b"} for n in range(count)]})]
            )
        case "panels":
            panels = [{"id": f"p{n}", "content": "x" * each} for n in range(min(500, count))]
            return Unfolding(kind, [body({"session": "s", "panels": panels}, turns[:2000])])
        case _:
            diffs = {path(n): "+x" * (each // 2) for n in range(count)}
            files = [{"path": name, "content": "x", "selected": True} for name in diffs]
            return Unfolding(
                kind, [body({"files": files, "review": {"commits": ["c"] * count, "reverse_diffs": diffs}})]
            )
