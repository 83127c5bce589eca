"""Templates of prompts: what is printed, what is refused, and in which words."""

import pytest

from proxy.core.prompts.prompt import ROOTS, Json, Position, Prompt, RenderError, Variable
from proxy.prompting.templates import Templates, Uses, compiled
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
    return Templates([prompt], fragments).render(prompt, CONTEXT, variables)


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
        Templates([Prompt("p", Position.SYSTEM, template)])


@for_every(
    [
        (("{{ " + "+".join(["1"] * 50) + " }}") * 80, "the template has more than 4000 parts"),
        ("{{ " + "not " * 70 + "1 }}", "the template is nested deeper than 60 levels"),
    ]
)
def test_a_template_of_too_many_parts_is_refused_before_it_is_compiled(template: str, why: str) -> None:
    with pytest.raises(RenderError, match=why):
        Templates([Prompt("p", Position.SYSTEM, template)])


def test_two_templates_do_not_see_what_the_other_one_sets() -> None:
    setter = Prompt("a", Position.SYSTEM, "{% set mission = {'count': 9} %}{{ mission.count }}")
    reader = Prompt("b", Position.SYSTEM, "{{ mission.count }}")
    templates = Templates([setter, reader])
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
