import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.model_names import captured

few = st.text("ab/*", max_size=8)


@given(few, st.text("ab/", max_size=10))
def test_each_star_stands_for_what_a_regular_expression_would_find(pattern: str, name: str) -> None:
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "(.*)"), name, re.DOTALL)
    assert captured(pattern, name) == (found.groups() if found is not None else None)


def test_a_star_stands_for_line_ends_too() -> None:
    assert captured("a*c", "a\nb\nc") == ("\nb\n",)
    assert captured("a", "a") == ()
    assert captured("a", "b") is None
