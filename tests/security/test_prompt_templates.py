"""Attacks on templates: there is no way out of the sandbox, and no template takes long or makes much.

Templates are the operator's, and what they go over may be a client's.
"""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.prompts import ROOTS, Json, Position, Prompt, RenderError
from proxy.services.prompting.language import MOST_CHARS, PromptEnvironment
from proxy.services.prompting.sources import CompiledTemplates
from tests.examples import for_every, sampled

EMPTY = CompiledTemplates([])
CONTEXT: dict[str, dict[str, Json]] = {
    **{root: {} for root in ROOTS},
    "custom": {
        "text": "secret words",
        "long": "ab" * 60_000,
        "list": list(range(2_000)),
        "texts": ["x" * 100] * 500,
        "deep": [[[[[["leaf"]]]]]],
        "name": "text",
        "dunder": "__class__",
        "template": "{{ custom.text }}{% for x in custom.list %}{{ x }}{% endfor %}{# gone #}",
    },
}


def rendered(text: str, context: dict[str, dict[str, Json]] = CONTEXT) -> str:
    return EMPTY.render(Prompt("p", Position.SYSTEM, text), context, {})


def outcome(text: str) -> bool:
    """Whether the template gives a bounded text, or a failure that quotes no value. Any other error is raised."""
    try:
        return len(rendered(text)) <= MOST_CHARS
    except RenderError as error:
        return bool(str(error)) and "secret" not in str(error)


# What well-known ways out of a template sandbox begin with.
_OBJECTS = (
    "''", "'a'", "[]", "{}", "()", "0", "1.5", "true", "none", "custom", "custom.text", "custom.list", "range(3)",
    "loop", "range", "fragment", "self", "m", "nobody", "custom.text | upper", "custom.list | reverse",
    "custom | items", "caller", "varargs",
)  # fmt: skip
_ATTRIBUTES = (
    "__class__", "__mro__", "__globals__", "__init__", "__subclasses__", "__dict__", "__getattribute__",
    "__builtins__", "__call__", "__self__", "__func__", "__code__", "_TemplateReference__context", "_func",
    "_environment", "environment", "gi_frame", "gi_code", "f_globals", "mro", "format", "format_map", "upper", "join",
    "append", "update", "pop", "_iterable", "_recurse", "depth", "changed", "__html__", "__len__", "__reduce_ex__",
    "__module__", "real", "name",
)  # fmt: skip


@pytest.mark.parametrize("attribute", sampled(_ATTRIBUTES, 9))
def test_no_object_gives_an_attribute_of_pythons(attribute: str) -> None:
    for value in _OBJECTS:
        for path in (f"({value}).{attribute}", f"({value})[custom.wanted]"):
            context = {**CONTEXT, "custom": {**CONTEXT["custom"], "wanted": attribute}}
            del context["custom"]["name"]
            with pytest.raises(RenderError):
                rendered(
                    f"{{% macro m() %}}{{% endmacro %}}{{% for x in [1] %}}{{{{ {path} is string }}}}"
                    f"{{{{ {path} }}}}{{% endfor %}}",
                    context,
                )


@pytest.mark.parametrize(
    "call",
    sampled([
        "''.join(['a'])", "'{0.__class__}'.format(custom)", "'%s' % custom.text", "'{}' | format(1)",
        "custom.list.append(1)", "custom.text.upper()", "custom.update({})", "range.__class__()", "m.name",
        "m.__call__()", "(m | string)", "m ~ ''", "m == m", "[m] | tojson", "[m, m] | join", "loop | list",
        "[loop] == [loop]", "loop.cycle.__func__", "loop.cycle | string", "custom()", "custom.text()",
        "custom.list()", "3()", "(1).real", "[custom.list][0].sort()", "loop(custom.list)", "custom | attr('text')",
        "custom.list | map('upper')", "custom.list | map(filter='upper')", "lipsum()", "cycler(1)", "joiner()",
        "namespace()", "dict(a=1)", "self.m()", "custom.text | escape", "custom.text | safe", "custom | pprint",
        "custom.text | xmlattr", "custom.text | urlize", "custom.list | groupby('a')", "custom.list | random",
        "custom.text | filesizeformat", "custom.text is callable", "custom.text is filter",
        "custom.text is sameas(1)", "range(*custom.list)", "m(**custom)", "fragment(custom.text)", "fragment()",
        "fragment(custom)",
    ], 2),
)  # fmt: skip
def test_nothing_is_called_but_macros_and_what_is_offered(call: str) -> None:
    with pytest.raises(RenderError) as raised:
        rendered("{% macro m() %}{% endmacro %}{% for x in [1] %}{% set here = loop %}{{ " + call + " }}{% endfor %}")
    assert "secret" not in str(raised.value)


@for_every(
    [
        "{% include 'x' %}", "{% include custom.text %}", "{% include ['x'] ignore missing %}",
        "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% extends none %}",
        "{% block b %}{% endblock %}", "{{ super() }}", "{% call m() %}{% endcall %}",
        "{% autoescape true %}{% endautoescape %}", "{% do 1 %}", "{% debug %}", "{% trans %}a{% endtrans %}",
        "{% for x in custom.deep recursive %}{{ loop(x) }}{% endfor %}", "{% set custom.text = 1 %}",
        "{% set ns.x = 1 %}", "{% for x in [1] %}{% break %}{% endfor %}", "{% set range = 1 %}",
        "{% macro fragment() %}{% endmacro %}{{ fragment(1) }}", "{% for loop in [1] %}{% endfor %}",
        "{% block x %}",
    ]
)  # fmt: skip
def test_no_statement_reaches_beyond_its_template(statement: str) -> None:
    with pytest.raises(RenderError):
        rendered(statement)


def test_values_of_the_context_are_never_read_as_templates() -> None:
    template = CONTEXT["custom"]["template"]
    assert (
        rendered("{{ custom.template }}{{ custom.template | upper | lower }}") == f"{template}{str(template).lower()}"
    )
    assert rendered("{{ '{{' ~ ' custom.text }' ~ '}' }}") == "{{ custom.text }}"


_DOUBLED = "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60 + "{{ a | length }}"
_NESTED = "".join(f"{{% for x{n} in custom.list %}}" for n in range(8)) + "{{ x0 }}" + "{% endfor %}" * 8
BOMBS = {
    "a text that is doubled": _DOUBLED,
    "a text that is added up": _DOUBLED.replace("a ~ a", "a + a"),
    "a text that is set by blocks": "{% set a %}x{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
    "a list that is doubled": "{% set a = [1] %}" + "{% set a = a + a %}" * 60,
    "a list of lists": "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 30 + "{{ a | tojson }}",
    "lists of lists that are compared": "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 30 + "{{ a == a + [] }}",
    "lists of lists that are searched": "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 30 + "{{ 3 in a }}",
    "lists of lists that are sorted": "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 30 + "{{ a | sort | length }}",
    "loops within loops": _NESTED,
    "loops that print nothing": _NESTED.replace("{{ x0 }}", ""),
    "loops that leave everything out": _NESTED.replace("custom.list %}", "custom.list if x0 == -1 %}"),
    "loops in a macro": f"{{% macro m() %}}{_NESTED}{{% endmacro %}}{{{{ m() | length }}}}",
    "loops in a block": f"{{% set a %}}{_NESTED}{{% endset %}}",
    "loops below a filter": f"{{% filter length %}}{_NESTED}{{% endfilter %}}",
    "texts in a loop": "{% for x in custom.list %}{{ custom.long }}{% endfor %}",
    "texts in a loop of a macro": (
        "{% macro m() %}{% for x in custom.list %}{{ custom.long }}{% endfor %}{% endmacro %}{{ m() | length }}"
    ),
    "a template's own text in a loop": "{% for x in custom.list %}" + "words " * 2_000 + "{% endfor %}",
    "a template's own text in a loop of a block": (
        "{% set a %}{% for x in custom.list %}" + "words " * 2_000 + "{% endfor %}{% endset %}"
    ),
    "filters in a loop": "{% for x in custom.list %}{% if custom.long | upper == '' %}{% endif %}{% endfor %}",
    "comparisons in a loop": "{% for x in custom.list %}{% if custom.long == x ~ '' %}{% endif %}{% endfor %}",
    "searches in a loop": "{% for x in custom.list %}{% if 'b' * 50 in custom.long %}{% endif %}{% endfor %}",
    "slices in a loop": "{% for x in custom.list %}{% set y = custom.long[1:] %}{% endfor %}",
    "fragments in a loop": "{% for x in custom.list %}{{ fragment('f') }}{% endfor %}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a macro that calls itself twice": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "macros that call each other": (
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"
    ),
    "macros that multiply": "".join(
        f"{{% macro m{n}() %}}{f'{{{{ m{n - 1}() }}}}' * 10 if n else 'x'}{{% endmacro %}}" for n in range(10)
    )
    + "{{ m9() }}",
    "a macro that is handed its own text": (
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ " + "m(" * 25 + "'xxxx'" + ")" * 25 + " }}"
    ),
    "a repeated text": "{{ 'x' * 1000000000 }}",
    "a text repeated below zero and beyond": "{{ 'x' * -1 }}{{ 'x' * 9000000000000000000 }}",
    "a repeated list": "{{ [1] * 1000000000 }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a power of a power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "a large power": "{{ 2 ** 64 }}",
    "a small power": "{{ 2 ** -1000000000 }}",
    "a product": "{{ " + " * ".join(["9223372036854775807"] * 9) + " }}",
    "a number of many digits": "{{ " + "9" * 4_000 + " + 1 }}",
    "a range": "{{ range(1000000000) | list }}",
    "a range that is counted": "{{ range(-9000000000000000000, 9000000000000000000) | length }}",
    "a range that is added up in a loop": (
        "{% set r = range(10000) %}{% for x in custom.list %}{% set y = r | sum %}{% endfor %}"
    ),
    "a range that is joined in a loop": (
        "{% set r = range(10000) %}{% for x in custom.list %}{% set y = r | join %}{% endfor %}"
    ),
    "a formatted number": "{{ '%1000000000d' % 1 }}",
    "a wide indent": "{{ custom.long | indent(1000000000) }}",
    "an indent of many lines": "{{ ('\n' * 100000 ~ 'x') | replace('\n', 'y\n') | indent(1000) }}",
    "a replacement that multiplies": "{{ custom.long | replace('a', custom.long) }}",
    "a replacement of nothing": "{{ custom.long | replace('', custom.long) }}",
    "a join that multiplies": "{{ custom.list | join(custom.long) }}",
    "a list of characters": "{{ custom.long | list | length }}",
    "a text split into characters": "{{ custom.long | split('') | length }}",
    "a text split into many": "{{ custom.long | split('a') | length }}",
    "JSON within JSON": "{{ '\"' * 50 | tojson" + " | tojson" * 30 + " }}",
    "quotes within quotes": "{{ '\"'" + " | quote" * 40 + " }}",
    "JSON that is nested": "{{ (('[' * 500) ~ (']' * 500)) | fromjson | tojson }}",
    "JSON of many values": "{{ ('[' ~ ('0,' * 100000) ~ '0]') | fromjson | length }}",
    "a number out of many digits": "{{ ('9' * 200000) | int + 1 }}{{ custom.long }}{{ custom.long }}{{ custom.long }}",
    "an endless expression": "{{ " + "+".join(["1"] * 5_000) + " }}",
    "parentheses": "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "lists in lists": "{{ " + "[" * 300 + "1" + "]" * 300 + " }}",
    "signs": "{{ " + "-" * 5_000 + "1 }}",
    "negations": "{{ " + "not " * 5_000 + "1 }}",
    "nested conditions": "{% if 1 %}" * 300 + "{% endif %}" * 300,
    "nested loops that are never run": "{% for x in [] %}" * 25 + "{% endfor %}" * 25,
    "many parts": "{{ 1 }}" * 4_000,
}  # fmt: skip


@pytest.mark.parametrize("name", sampled(BOMBS, 4))
def test_a_template_that_would_never_end_is_stopped(name: str) -> None:
    templates = CompiledTemplates([], {"f": "words " * 2_000})
    with pytest.raises(RenderError):
        templates.render(Prompt("p", Position.SYSTEM, BOMBS[name]), CONTEXT, {})


def test_a_template_may_do_as_much_as_a_large_prompt_needs() -> None:
    assert len(rendered("{% for x in custom.list %}- {{ x }}\n{% endfor %}")) == 12_890
    assert len(rendered("{{ custom.long }}" * 2)) == 240_000


@given(st.text(max_size=60))
def test_any_text_is_a_template_or_a_failure_of_it(text: str) -> None:
    assert outcome(text)


_PIECES = st.sampled_from([
    "{{ custom.text }}", "{{ x }}", "{{ x.y }}", "{{ x | upper }}", "{{ [x, x] | join(',') }}",
    "{% for x in custom.list %}", "{% for x, y in custom | items %}", "{% endfor %}", "{% if x is defined %}",
    "{% else %}", "{% endif %}", "{% set x = custom.long %}", "{% set x = [x, x] %}", "{% set x = x ~ x %}",
    "{% set x %}", "{% endset %}", "{% macro m(x) %}", "{% endmacro %}", "{{ m(x) }}", "{{ m(m) }}",
    "{{ loop.index }}", "{{ x == x }}", "{{ x[0] }}", "{% with x = custom %}", "{% endwith %}", "{% filter length %}",
    "{% endfilter %}", "{{ x * 3 }}", "{{ -x }}", "words",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_any_template_ends_with_a_bounded_text_or_a_failure(text: str) -> None:
    assert outcome(text)


def test_every_rendering_has_its_own_share_of_work() -> None:
    prompt = Prompt("p", Position.SYSTEM, "{% for x in custom.list %}{{ x }}{% endfor %}" * 3)
    assert len({EMPTY.render(prompt, CONTEXT, {}) for _ in range(20)}) == 1


def test_an_environment_knows_no_filter_test_or_name_but_its_own() -> None:
    environment = PromptEnvironment({}, {})
    assert {name for name in environment.filters if not name.startswith(" ")} == set()
    assert set(environment.tests) == set()
    assert set(environment.globals) == {"fragment", "range"}
    assert environment.loader is None


class Weighable(list[str]):
    """A list that can be watched."""


def test_nothing_of_a_context_is_held_once_a_text_is_rendered() -> None:
    values = Weighable(["a"])
    watched = weakref.ref(values)
    prompt = Prompt("p", Position.SYSTEM, "{% macro m(x) %}{{ x | join }}{% endmacro %}{{ m(custom.values) }}")
    templates = CompiledTemplates([prompt])
    assert templates.render(prompt, {**CONTEXT, "custom": {"values": values}}, {}) == "a"
    del values
    gc.collect()
    assert watched() is None
