"""A form, its contents and the session's review become the context of the request."""

import json

from proxy.core.layout.tiers import Tier
from proxy.core.structured.context import ContextFile, Page, Review, StructuredContext
from proxy.core.structured.form.form import read_form, text_digest
from proxy.core.structured.session.uploads import Uploads

FIELDS = {
    "files": [{"path": "a.py", "content": "x", "selected": True}],
    "symbols": [{"path": "b.py", "block": "b.py:"}],
    "legend": "l",
    "tree": True,
    "urls": [{"url": "u", "content": "c"}],
    "images": ["data:,x"],
    "session": "s",
    "removed": ["c.py"],
    "modified": ["a.py"],
    "broken": ["L1"],
}


def context_of(fields: dict[str, object], session_review: Review | None = None) -> StructuredContext:
    form = read_form(json.dumps(fields).encode())
    assert form is not None
    return Uploads().resolve(form, "s").shown(session_review)


def test_every_field_arrives() -> None:
    assert context_of(FIELDS) == StructuredContext(
        files=(ContextFile("a.py", "x", text_digest("x"), True),),
        symbols={"b.py": "b.py:"},
        legend="l",
        tree=("a.py",),
        pages=(Page("u", "", "c"),),
        images=("data:,x",),
        session="s",
        removed=frozenset({"c.py"}),
        modified=frozenset({"a.py"}),
        broken=frozenset({Tier.L1}),
    )


def test_the_review_is_what_the_session_has_from_this_request_on() -> None:
    former = Review(branch="former")
    assert context_of(FIELDS, former).review is former
    assert context_of({**FIELDS, "review": None}, former).review is None
    assert context_of({**FIELDS, "review": {"branch": "new"}}, former).review == Review(branch="new")
