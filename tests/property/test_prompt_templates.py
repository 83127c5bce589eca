"""What a template prints is what Jinja2's own sandbox prints of it."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from proxy.prompts import ROOTS, Json, Position, Prompt, RenderError
from proxy.services.prompting.sources import CompiledTemplates
from tests.examples import examples

CONTEXT: dict[str, dict[str, Json]] = {
    **{root: {} for root in ROOTS},
    "mission": {
        "goal": "win {{ it }}",
        "count": 3,
        "none": None,
        "on": True,
        "list": ["b", "a", "c"],
        "tree": {"name": "x", "list": [1, 2]},
    },
}


def _printed(value: Any) -> Any:
    """The rules of printing that differ from Jinja2's."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


class _Joined(NodeTransformer):
    """What ``~`` joins is printed by these rules, too."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:
        each = [nodes.Filter(self.visit(one), "printed", [], [], None, None) for one in node.nodes]
        return nodes.Concat(each, lineno=node.lineno)


class _Jinja(ImmutableSandboxedEnvironment):
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        found = _Joined().visit(super()._parse(source, name, filename))
        assert isinstance(found, nodes.Template)
        return found.set_environment(self)


JINJA = _Jinja(undefined=StrictUndefined, finalize=_printed)
JINJA.filters["printed"] = _printed

_NAMES = st.sampled_from(["x", "y", "z"])
_VALUES = st.sampled_from([
    "mission.goal", "mission.count", "mission.none", "mission.on", "mission.tree.name", "mission.missing",
    "mission['count']", "mission.tree.list[0]", "mission.list[-1]", "mission.list[9]", "'text'", "7", "1.5", "true",
    "none", "x", "y", "z", "loop.index", "loop.last", "loop.length", "loop.cycle('a', 'b')",
])  # fmt: skip
_LISTS = st.sampled_from(
    ["mission.list", "mission.tree.list", "[1, 2]", "[]", "range(3)", "mission.tree", "x", "mission.list[1:]"]
)
_EXPRESSIONS = st.recursive(
    _VALUES,
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} * {})".format, inner, st.sampled_from(["2", "mission.count"])),
        st.builds("({} - {})".format, inner, inner),
        st.builds("({} ~ {})".format, inner, inner),
        st.builds("({} == {})".format, inner, inner),
        st.builds("({} < {})".format, inner, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or not {})".format, inner, inner),
        st.builds("({} in {})".format, inner, _LISTS),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} is defined)".format, inner),
        # A null is the empty text to a filter here and counts as missing; Jinja2 gives a filter "None".
        st.builds("({} | default('', true) | upper)".format, inner),
        st.builds("({} | default('-', true))".format, inner),
        st.builds("({} | join(', '))".format, _LISTS),
        st.builds("({} | length)".format, _LISTS),
        st.builds("m({})".format, inner),
        st.builds("m({}, b={})".format, inner, inner),
    ),
    max_leaves=5,
)
_LEAVES = st.one_of(
    st.sampled_from(["words ", "a\n  b", "  \n", "<&>", "{# remark #}", "{% raw %}{{ x }}{% endraw %}"]),
    st.builds("{{{{ {} }}}}".format, _EXPRESSIONS),
    st.builds("{{{{- {} -}}}}".format, _EXPRESSIONS),
    st.builds("{{% set {} = {} %}}".format, _NAMES, _EXPRESSIONS),
    st.builds("{{% set {} = {} %}}".format, _NAMES, _LISTS),
)


def _within(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, max_size=3).map("".join)
    return st.one_of(
        body,
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, _EXPRESSIONS, body, body),
        st.builds("{{% for {} in {} -%}}{}{{%- else %}}{}{{% endfor %}}".format, _NAMES, _LISTS, body, body),
        st.builds("{{% for {} in {} if {} %}}{}{{% endfor %}}".format, _NAMES, _LISTS, _EXPRESSIONS, body),
        st.builds("{{% with {} = {} %}}{}{{% endwith %}}".format, _NAMES, _EXPRESSIONS, body),
        st.builds("{{% set {} %}}{}{{% endset %}}".format, _NAMES, body),
        st.builds("{{% filter upper %}}{}{{% endfilter %}}".format, body),
        st.builds("{{% macro m(a, b=1) %}}{{{{ a }}}}{}{{% endmacro %}}".format, body),
    )


TEMPLATES = st.recursive(_LEAVES, _within, max_leaves=8)


def ours(text: str) -> str | None:
    try:
        return CompiledTemplates([]).render(Prompt("p", Position.SYSTEM, text), CONTEXT, {})
    except RenderError:
        return None


def of_jinja(text: str) -> str | None:
    try:
        return JINJA.from_string(text).render(CONTEXT)
    except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None


@settings(max_examples=examples(800), deadline=None)
@example("{{ (mission.goal ~ true) }}")
@example("{{ mission.none ~ mission.on ~ 'x' }}")
@given(TEMPLATES)
def test_what_is_printed_is_what_jinja_prints(text: str) -> None:
    """Only less is possible: a list that is printed, for instance, is an error here."""
    printed = ours(text)
    assert printed is None or printed == of_jinja(text)
