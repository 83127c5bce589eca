"""Templates of prompts: what is printed, what is refused, and in which words; their filters and tests."""

import re
from pathlib import Path

import pytest

from proxy.prompts import ROOTS, Json, Position, Prompt, RenderError, Variable
from proxy.services.prompting.language import FILTERS, TESTS, Uses, compiled
from proxy.services.prompting.sources import CompiledTemplates
from tests.examples import for_every

CONTEXT: dict[str, dict[str, Json]] = {
    **{root: {} for root in ROOTS},
    "mission": {
        "goal": "Fix {{ 7 * 7 }} {% include 'x' %}",
        "count": 3,
        "ratio": 0.5,
        "strict": True,
        "nothing": None,
        "files": ["a.py", "b.py"],
        "owner": {"name": "Ada", "teams": [{"id": 1}, {"id": 2}], "items": "mine"},
    },
}


def rendered(text: str, fragments: dict[str, str] | None = None, **variables: Json) -> str:
    prompt = Prompt("p", Position.SYSTEM, text, variables=tuple(map(Variable, variables)))
    return CompiledTemplates([prompt], fragments).render(prompt, CONTEXT, variables)


@for_every(
    [
        ("No template", "No template"),
        ("{{ mission.count }} {{ mission['ratio'] }}", "3 0.5"),
        ("{{ mission.strict }} {{ false }} [{{ mission.nothing }}]", "true false []"),
        ("{{ mission.owner.name }} {{ mission.owner.teams[1].id }} {{ mission.files[-1] }}", "Ada 2 b.py"),
        ("{{ mission.owner.items }}", "mine"),
        ("{{ 'a' ~ mission.count ~ true }} {{ 'a' + 'b' }} {{ '=' * 3 }}", "a3true ab ==="),
        ("{{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 10 }} {{ -mission.count }} {{ 1 / 2 }}", "3 1 1024 -3 0.5"),
        ("{{ ([1] + [2, 3]) | join(',') }} {{ 'abc'[1:] }}", "1,2,3 bc"),
        (
            "{% for f in mission.files %}{{ loop.index }}/{{ loop.length }} {{ f }}\n{% endfor %}",
            "1/2 a.py\n2/2 b.py\n",
        ),
        ("{% for n in range(3) %}{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}", "aba"),
        ("{% for n in [] %}{{ n }}{% else %}none{% endfor %}", "none"),
        ("{% for k, v in mission.owner | items if v is string %}{{ k }}={{ v }};{% endfor %}", "name=Ada;items=mine;"),
        ("{% if mission.count > 2 and 'a.py' in mission.files %}many{% elif x is defined %}x{% endif %}", "many"),
        ("{{ mission.missing is defined }} {{ mission.missing | default('-') }}", "false -"),
        ("{% macro twice(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ twice(1) }}{{ twice(3, b=4) }}", "1234"),
        ("{% set a %}x{{ mission.count }}{% endset %}{% with b = a %}{{ b }}{% endwith %}", "x3"),
        ("{% filter upper %}a{{ mission.count }}b{% endfilter %}", "A3B"),
        ("{# nothing #}{% raw %}{{ mission }}{% endraw %}", "{{ mission }}"),
        ("a\n  {%- if true %} b{% endif %}", "a b"),
        ("<b> & \"'", "<b> & \"'"),
    ]
)
def test_a_template_prints(template: str, expected: str) -> None:
    assert rendered(template, **({"x": 1} if "x is" in template else {})) == expected


def test_what_a_context_holds_is_text_and_never_a_template() -> None:
    assert rendered("{{ mission.goal }}{{ extra }}", extra="{{ mission.count }}") == (
        "Fix {{ 7 * 7 }} {% include 'x' %}{{ mission.count }}"
    )


def test_a_fragment_is_included_by_its_name_as_it_stands() -> None:
    assert rendered("{{ fragment('rules') }}", {"rules": "Use {{ braces }}."}) == "Use {{ braces }}."
    assert rendered("{{ fragment('ru' ~ 'les') }}", {"rules": "One"}) == "One"


@for_every(
    [
        ("{{ mission.missing }}", "line 1: 'missing' is undefined"),
        ("\n\n{{ mission.missing }}", "line 3: 'missing' is undefined"),
        ("{{ mission.missing.deeper }}", "line 1: 'missing' is undefined"),
        ("{% if mission.missing == 1 %}{% endif %}", "line 1: 'missing' is undefined"),
        ("{% for x in mission.missing %}{% endfor %}", "line 1: 'missing' is undefined"),
        ("{{ mission.missing | upper }}", "line 1: 'missing' is undefined"),
        ("{{ mission.missing() }}", "line 1: 'missing' is undefined"),
        ("{{ mission[mission.goal] }}", "line 1: a field or an item that is asked for is not there"),
        ("{{ mission.files[2] }}", "line 1: a field or an item that is asked for is not there"),
        ("{{ mission.files }}", "line 1: a list or an object is printed"),
        ("{{ mission.owner }}", "line 1: a list or an object is printed"),
        ("{{ mission.count / 0 }}", "line 1: ZeroDivisionError"),
        ("{{ mission.goal + 1 }}", "line 1: an operator or a filter takes numbers"),
        ("{{ mission.goal | int(x=1) }}", "line 1: TypeError"),
        ("{{ mission.count < mission.goal }}", "line 1: TypeError"),
        ("{{ fragment(mission.goal) }}", "line 1: a fragment is included that is not registered"),
        ("{% for x in mission.goal %}{% endfor %}", "line 1: a loop or a filter takes a list or an object"),
        ("{% macro m() %}{% endmacro %}{{ m }}", "line 1: a list or an object is printed"),
        ("{% macro m() %}\n{{ mission.missing }}{% endmacro %}{{ m() }}", "line 2: 'missing' is undefined"),
    ]
)
def test_a_failure_is_told_with_its_line_and_without_a_value_of_the_context(template: str, why: str) -> None:
    with pytest.raises(RenderError) as raised:
        rendered(template)
    assert str(raised.value).startswith(why)
    assert "Fix" not in str(raised.value)


@for_every(
    [
        ("{% if mission.count == 2 %}{{ 1 | missing }}{% endif %}", "there is no filter 'missing'"),
        ("{{ 1 | missing if mission.count == 2 }}", "there is no filter 'missing'"),
        ("{% if mission.count == 2 and 1 is missing %}{% endif %}", "there is no test 'missing'"),
    ]
)
def test_an_unknown_filter_is_refused_before_its_branch_is_rendered(template: str, why: str) -> None:
    with pytest.raises(RenderError, match=why):
        CompiledTemplates([Prompt("p", Position.SYSTEM, template)])


@for_every(
    [
        (("{{ " + "+".join(["1"] * 50) + " }}") * 80, "the template has more than 4000 parts"),
        ("{{ " + "not " * 70 + "1 }}", "the template is nested deeper than 60 levels"),
    ]
)
def test_a_template_of_too_many_parts_is_refused_before_it_is_compiled(template: str, why: str) -> None:
    with pytest.raises(RenderError, match=why):
        CompiledTemplates([Prompt("p", Position.SYSTEM, template)])


def test_two_templates_do_not_see_what_the_other_one_sets() -> None:
    setter = Prompt("a", Position.SYSTEM, "{% set mission = {'count': 9} %}{{ mission.count }}")
    reader = Prompt("b", Position.SYSTEM, "{{ mission.count }}")
    templates = CompiledTemplates([setter, reader])
    assert templates.render(setter, CONTEXT, {}) == "9"
    assert templates.render(reader, CONTEXT, {}) == "3"


def test_the_uses_of_a_template_are_the_names_paths_and_fragments_that_it_does_not_set_itself() -> None:
    text = (
        "{{ mission.a.b }}{{ who['k'][0].z }}{% set y = target.q %}{{ y.r }}"
        "{% for i in agent.list %}{{ i.name }}{% endfor %}{{ fragment('rules') }}{{ memory }}"
    )
    assert compiled(text)[1] == Uses(
        names=frozenset({"mission", "who", "target", "agent", "memory"}),
        paths=frozenset({"mission.a.b", "who.k", "target.q", "agent.list", "memory"}),
        fragments=frozenset({"rules"}),
    )


VALUES: dict[str, dict[str, Json]] = {
    **{root: {} for root in ROOTS},
    "mission": {
        "empty": [],
        "zero": 0,
        "none": None,
        "blank": "",
        "list": ["b", "a", "b"],
        "tree": {"z": 1, "a": [True, None, "é"]},
        "rows": [{"n": 2, "on": True}, {"n": 1, "on": False}, {}],
        "lines": "one\n\ntwo",
    },
}


def filtered(text: str) -> str:
    return CompiledTemplates([]).render(Prompt("p", Position.SYSTEM, text), VALUES, {})


PRINTED = {
    "abs": ("{{ (-3) | abs }}{{ 2 | abs }}", "32"),
    "capitalize": ("{{ 'ab CD' | capitalize }}", "Ab cd"),
    "coalesce": ("{{ mission.blank | coalesce(mission.nope, mission.zero, 'x', 'y') }}", "x"),
    "contains": ("{{ 'abc' | contains('bc') }} {{ mission.list | contains('c') }}", "true false"),
    "count": ("{{ mission.list | count }}", "3"),
    "default": (
        "{{ mission.nope | default(1) }}{{ mission.none | default(2) }}{{ mission.zero | default(3) }}"
        "{{ mission.zero | default(4, true) }}[{{ mission.blank | default('x') }}]",
        "1204[]",
    ),
    "dictsort": ("{% for k, v in mission.tree | dictsort %}{{ k }}{% endfor %}", "az"),
    "first": ("{{ mission.list | first }}[{{ mission.empty | first }}]", "b[]"),
    "float": ("{{ '1.5' | float + 1 }} {{ 'x' | float(2) }}", "2.5 2"),
    "fromJSON": ("{{ ('{\"a\": [1, 2]}' | fromJSON).a | sum }}", "3"),
    "fromjson": ("[{{ '{broken' | fromjson }}]", "[]"),
    "hasPrefix": ("{{ 'abc' | hasPrefix('ab') }} {{ 'abc' | hasPrefix('b') }}", "true false"),
    "hasSuffix": ("{{ 'abc' | hasSuffix('bc') }} {{ 'abc' | hasSuffix('b') }}", "true false"),
    "indent": ("{{ mission.lines | indent(2) }}|{{ mission.lines | indent(2, false) }}", "  one\n\n  two|one\n\n  two"),
    "int": ("{{ '12' | int + 1 }} {{ 'x' | int }} {{ 2.9 | int }} {{ '2.9' | int }}", "13 0 2 2"),
    "items": ("{% for k, v in mission.tree | items %}{{ k }}{% endfor %}", "za"),
    "join": ("{{ mission.list | join(', ') }} {{ mission.rows | join('-', attribute='n') }}", "b, a, b 2-1-"),
    "last": ("{{ [1, 2] | last }}[{{ mission.empty | last }}]", "2[]"),
    "length": ("{{ 'abc' | length }}{{ mission.tree | length }}", "32"),
    "list": ("{{ range(3) | list | tojson }}{{ 'ab' | list | tojson }}", '[0,1,2]["a","b"]'),
    "lower": ("{{ 'ÄB' | lower }}", "äb"),
    "map": ("{{ mission.rows | map(attribute='n') | tojson }}", "[2,1,null]"),
    "max": ("{{ [1, 3, 2] | max }}", "3"),
    "min": ("{{ [2, 1, 3] | min }}[{{ [] | min }}]", "1[]"),
    "nindent": ("a:{{ 'b\nc' | nindent(2) }}", "a:\n  b\n  c"),
    "quote": ("{{ 'say \"é\"\n' | quote }}", '"say \\"é\\"\\n"'),
    "reject": ("{{ mission.rows | reject('on') | map(attribute='n') | tojson }}", "[1,null]"),
    "replace": ("{{ 'aXbX' | replace('X', '--') }}", "a--b--"),
    "required": ("{{ 'x' | required }}", "x"),
    "reverse": ("{{ 'abc' | reverse }} {{ [1, 2] | reverse | join }}", "cba 21"),
    "round": ("{{ 2.567 | round(1) }} {{ 2.6 | round }}", "2.6 3"),
    "select": (
        "{{ mission.rows | select('on') | length }}{{ mission.rows | select('n', 1) | length }}"
        "{{ [0, 1] | select | join }}",
        "111",
    ),
    "sort": (
        "{{ mission.list | sort | join }} {{ [1, 3, 2] | sort(reverse=true) | join }} "
        "{{ mission.rows | select('n') | sort(attribute='n') | join(attribute='n') }}",
        "abb 321 12",
    ),
    "split": ("{{ 'a,b' | split(',') | tojson }}{{ ' a b ' | split | tojson }}", '["a","b"]["a","b"]'),
    "squote": ('{{ "it\'s" | squote }}', "'it's'"),
    "string": ("{{ (1 | string) + '1' }}", "11"),
    "sum": ("{{ [1, 2] | sum }} {{ mission.rows | select('n') | sum('n') }}", "3 3"),
    "ternary": ("{{ mission.zero | ternary('yes', 'no') }}{{ 1 | ternary('yes', 'no') }}", "noyes"),
    "title": ("{{ ' two  wORDS ' | title }}", "Two WORDS"),
    "toJSON": ("{{ mission.tree | toJSON }}", '{"z":1,"a":[true,null,"é"]}'),
    "toLower": ("{{ 'AB' | toLower }}", "ab"),
    "toPrettyJSON": ("{{ {'a': [1]} | toPrettyJSON }}", '{\n  "a": [\n    1\n  ]\n}'),
    "toUpper": ("{{ 'ab' | toUpper }}", "AB"),
    "tojson": ("{{ 'a\"b' | tojson }} {{ [1] | tojson(indent=2) }}", '"a\\"b" [\n  1\n]'),
    "trim": ("[{{ ' a ' | trim }}]", "[a]"),
    "trimPrefix": ("{{ 'aab' | trimPrefix('a') }}{{ 'b' | trimPrefix('a') }}", "abb"),
    "trimSuffix": ("{{ 'abb' | trimSuffix('b') }}{{ 'a' | trimSuffix('b') }}", "aba"),
    "truncate": (
        "{{ 'abcdef' | truncate(5) }} {{ 'abcde' | truncate(5) }} {{ 'abc' | truncate(2, '') }}",
        "ab... abcde ab",
    ),
    "unique": ("{{ mission.list | unique | join }} {{ mission.rows | unique(attribute='on') | length }}", "ba 3"),
    "upper": ("{{ 'äb' | upper }}", "ÄB"),
}


def test_every_filter_is_in_the_table() -> None:
    assert set(PRINTED) == set(FILTERS)


@for_every(PRINTED)
def test_a_filter_prints(name: str) -> None:
    template, expected = PRINTED[name]
    assert f"| {name}" in template
    assert filtered(template) == expected


def test_every_filter_and_every_test_is_documented() -> None:
    written = (Path(__file__).parents[4] / "proxy/services/prompting/README.md").read_text("utf-8")
    table, rest = written.partition("## Filters")[2].split("Tests (`is ...`): ")
    filters = set(re.findall(r"`(\w+)(?:\([^)`]*\))?`", "".join(re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE))))
    assert filters == set(FILTERS)
    assert set(re.findall(r"`(\w+)(?:\(\w+\))?`", rest.partition("\n\n")[0])) == set(TESTS)


HOLDS = {
    "boolean": ("true", "1"),
    "defined": ("mission.none", "mission.nope"),
    "divisibleby": ("9", "8"),
    "empty": ("mission.empty", "mission.list"),
    "eq": ("3", "4"),
    "equalto": ("3", "'3'"),
    "even": ("2", "3"),
    "false": ("false", "0"),
    "ge": ("3", "2"),
    "gt": ("4", "3"),
    "in": ("2", "4"),
    "le": ("3", "4"),
    "lt": ("2", "3"),
    "mapping": ("mission.tree", "mission.list"),
    "ne": ("4", "3"),
    "none": ("mission.none", "mission.zero"),
    "number": ("1.5", "true"),
    "odd": ("3", "2"),
    "sequence": ("mission.list", "'abc'"),
    "string": ("''", "1"),
    "true": ("true", "1"),
    "undefined": ("mission.nope", "mission.none"),
}
ARGUMENTS = {"in": "([1, 2])", **dict.fromkeys(("divisibleby", "eq", "equalto", "ge", "gt", "le", "lt", "ne"), "(3)")}


def test_every_test_is_in_the_table() -> None:
    assert set(HOLDS) == set(TESTS)


@for_every(HOLDS)
def test_a_test_tells_two_values_apart(name: str) -> None:
    holds, fails = HOLDS[name]
    test = name + ARGUMENTS.get(name, "")
    assert filtered(f"{{{{ {holds} is {test} }}}} {{{{ {fails} is {test} }}}}") == "true false"


@for_every(
    [
        ("{{ mission.blank | required }}", "a value that is required is empty"),
        ("{{ mission.nope | required }}", "a value that is required is empty"),
        ("{{ 3 | join }}", "a loop or a filter takes a list or an object"),
        ("{{ mission.nope | join }}", "'nope' is undefined"),
        ("{{ mission.nope | tojson }}", "'nope' is undefined"),
        ("{{ mission.tree | upper }}", "a list or an object is printed"),
        ("{{ 'a' | abs }}", "an operator or a filter takes numbers"),
        ("{{ 'a' | indent(-1) }}", "a filter takes a whole number from 0 to 1000"),
        ("{{ 'a' | indent(true) }}", "a filter takes a whole number from 0 to 1000"),
        ("{{ 3 | length }}", "length takes a text, a list or an object"),
        ("{{ 'a' | items }}", "items and dictsort take an object"),
        ("{{ [1, 'a'] | sort }}", "TypeError"),
        ("{{ 'a' | upper(1) }}", "TypeError"),
    ]
)
def test_a_filter_says_what_it_cannot_take(template: str, why: str) -> None:
    with pytest.raises(RenderError, match=why):
        filtered(template)
