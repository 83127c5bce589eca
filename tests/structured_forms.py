"""Hypothesis strategies for valid ``stratiform`` sections of requests."""

from typing import Any

from hypothesis import strategies as st

from proxy.context.form import text_digest

_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_lines = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=12)
_names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), exclude_characters="/\\:."),
    min_size=1,
    max_size=6,
)
_clean = st.lists(_names, min_size=1, max_size=3).map("/".join)


@st.composite
def _paths(draw: st.DrawFn) -> str:
    """A path that may contain parts to resolve."""
    path = draw(_clean)
    before = draw(st.sampled_from(["", "", "./", "/", "x/../", "C:\\"]))
    return before + path.replace("/", draw(st.sampled_from(["/", "\\", "//", "/./"])))


def _contents() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"content": st.none() | _texts}, optional={"digest": st.none()}),
        st.fixed_dictionaries({"digest": _texts.map(text_digest)}, optional={"content": st.none()}),
    )


@st.composite
def _files(draw: st.DrawFn) -> list[dict[str, Any]]:
    files = []
    for number in range(draw(st.integers(0, 4))):
        content = draw(_contents())
        selected = draw(st.sampled_from([{}, {"selected": None}, {"selected": True}, {"selected": False}]))
        files.append({"path": f"{draw(_paths())}{number}", **content, **selected})
    return files


def _distinct_paths() -> st.SearchStrategy[list[str]]:
    return st.lists(_paths(), max_size=4).map(lambda paths: [f"{path}{n}" for n, path in enumerate(paths)])


_symbols = st.tuples(_distinct_paths(), _texts).map(
    lambda found: [{"path": path, "block": found[1]} for path in found[0]]
)
_urls = st.fixed_dictionaries(
    {"url": _lines.filter(bool), "content": _texts},
    optional={"title": st.none() | _lines, "symbols": st.none() | _texts},
)
_reviews = st.fixed_dictionaries(
    {},
    optional={
        "branch": st.none() | _texts,
        "commits": st.none() | st.lists(_texts, max_size=3),
        "stats": _texts,
        "log": _texts,
        "pre_change_symbols": _texts,
        "reverse_diffs": st.none() | _distinct_paths().map(lambda paths: dict.fromkeys(paths, "-x")),
    },
) | st.fixed_dictionaries({"digest": _texts.map(text_digest)})


_TERMS = ("chunk_messages", "chunk_tokens", "keep_messages", "keep_tokens")
_counts = st.none() | st.integers(1, 10_000_000)


@st.composite
def _panels(draw: st.DrawFn) -> list[dict[str, Any]]:
    panels = []
    for number in range(draw(st.integers(0, 3))):
        optional = {"kind": st.sampled_from([None, "file", "own_thing"]), "header": st.none() | _lines}
        rest = draw(st.fixed_dictionaries({"content": _texts}, optional=optional))
        panels.append({"id": f"P{number}", **rest})
    return panels


@st.composite
def _metas(draw: st.DrawFn) -> list[dict[str, Any]]:
    metas = []
    for index in draw(st.lists(st.integers(0, 9), max_size=3, unique=True)):
        status = draw(st.sampled_from(["active", "deleted", "detached", "summarized"]))
        said = {"tl_dr": "In short."} if status == "summarized" else draw(st.sampled_from([{}, {"tl_dr": None}]))
        metas.append({"index": index, "status": status, **said})
    return metas


_condition = {"field": "custom.a", "operator": "eq", "value": {"b": [1]}}
PROMPTS = st.fixed_dictionaries(
    {},
    optional={
        "persona": st.sampled_from([None, "", "terse"]),
        "override": st.none() | _texts,
        "tools": st.none() | st.booleans(),
        "agents": st.none() | st.booleans(),
        "context": st.none() | st.fixed_dictionaries({"custom": st.dictionaries(_names, _texts, max_size=2)}),
        "extra": st.none()
        | _texts.map(lambda text: [{"id": "a", "position": "user", "text": text, "conditions": [_condition]}]),
    },
)
WINDOWS = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from([None, "chat"]),
        "prefix": st.none() | _texts,
        "selection": st.none() | _texts,
        "virtual_files": st.none() | _texts.map(lambda text: [{"id": "a", "content": text, "active": True}]),
    },
)


@st.composite
def forms(draw: st.DrawFn) -> dict[str, Any]:
    """A valid section with at least one member."""
    optional = {
        "files": st.none() | _files(),
        "symbols": st.none() | _symbols,
        "legend": st.none() | _texts,
        "tree": st.none() | st.booleans() | _distinct_paths(),
        "use_repo_map": st.none() | st.booleans(),
        "urls": st.none() | st.lists(_urls, max_size=3),
        "review": st.none() | _reviews,
        "images": st.none()
        | st.lists(st.sampled_from(["https://e.example/i", "data:image/png;base64,AA=="]), max_size=3),
        "session": st.none() | _lines,
        "removed": st.none() | st.lists(_names.map("removed/{}".format), max_size=3),
        "modified": st.none() | st.lists(_paths(), max_size=3),
        "broken": st.none() | st.lists(st.sampled_from(["L0", "L1", "L2", "L3"]), max_size=5),
        "assembly": st.sampled_from([None, "tiered", "flat"]),
        "panels": st.none() | _panels(),
        "messages_meta": st.none() | _metas(),
        "detach": st.none() | st.booleans() | st.fixed_dictionaries({}, optional=dict.fromkeys(_TERMS, _counts)),
        "compaction": st.none() | st.booleans(),
    }
    return draw(st.fixed_dictionaries({}, optional=optional).filter(bool))
