import json

from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import PROFILES
from proxy.core.request.route import Route
from proxy.core.sessions.document_sets import DocumentSets
from proxy.plugins import build_plugin_manager, recognisers

RULES = "\n".join(f"Rule {number}: a rule of the house, of some length." for number in range(150))


def test_a_set_changes_when_another_stands_in_the_same_prompt() -> None:
    sets = DocumentSets()
    for documents in ([b"a", b"b"], [b"a", b"b"]):
        sets.notice(b"prompt", documents)
        assert not sets.is_changing(b"prompt")
    sets.notice(b"other prompt", [b"c"])
    assert not sets.is_changing(b"prompt")
    assert not sets.is_changing(b"other prompt")
    sets.notice(b"prompt", [b"b", b"a"])
    assert sets.is_changing(b"prompt")
    sets.notice(b"prompt", [b"b", b"a"])
    assert sets.is_changing(b"prompt")
    assert sets.changing() == [b"prompt"]


def test_the_longer_a_set_stays_the_less_it_is_expected_to_change() -> None:
    sets = DocumentSets()
    chances = [sets.change(b"prompt")]
    for _ in range(4):
        sets.notice(b"prompt", [b"a"])
        chances.append(sets.change(b"prompt"))
    assert chances[0] == chances[1] == 0.4
    assert chances[1:] == sorted(chances[1:], reverse=True)
    assert chances[-1] == 0.1


def test_both_tables_are_bounded() -> None:
    sets = DocumentSets()
    for number in range(500):
        sets.notice(b"%d" % number, [b"a"])
        sets.notice(b"%d" % number, [b"b"])
    assert sets.changing() == [b"%d" % number for number in range(468, 500)]
    assert not sets.is_changing(b"0")


def asked(planner: TierPlanner, documents: str, question: str, at: float, scope: str = "team") -> Plan:
    system = f"You answer by the documents.\n{documents}{RULES}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    plan = planner.plan(body, Route(scope, "m", "m", PROFILES["openai"]), Mode.TIER, at)
    assert plan.surprise is None
    planner.began(plan, at)
    planner.settled(plan, None, at + 1)
    return plan


def document(name: str) -> str:
    return f'<document source="{name}">\n{name} says this and that, at some length.\n</document>\n'


def test_documents_move_once_they_were_seen_to_change_from_a_clients_next_request_on() -> None:
    planner = TierPlanner(len, recognisers(build_plugin_manager()))
    first = asked(planner, document("a") + document("b"), "one?", 0.0)
    again = asked(planner, document("a") + document("b"), "two?", 10.0)
    assert not first.rewritten
    assert not again.rewritten
    changed = asked(planner, document("b") + document("c"), "three?", 20.0)
    assert changed.rewritten
    system = json.loads(changed.body)["messages"][0]["content"]
    assert [part["text"][:40] for part in system] == [
        "You answer by the documents.\nRule 0: a r", "\n" + document("b")[:39], "\n" + document("c")[:39],
    ]  # fmt: skip
    assert not asked(planner, document("b") + document("c"), "three?", 20.0, scope="another team").rewritten


def test_examples_that_never_change_stay_where_they_are() -> None:
    planner = TierPlanner(len, recognisers(build_plugin_manager()))
    plans = [asked(planner, document("a") + document("b"), f"question {n}?", 10.0 * n) for n in range(12)]
    assert not any(plan.rewritten for plan in plans)


def test_others_go_on_from_the_last_set() -> None:
    sets, other = DocumentSets(), DocumentSets()
    for _ in range(3):
        sets.notice(b"prompt", [b"a"])
    other.notice(b"prompt", [b"z"])
    other.adopt(sets.last())
    assert other.change(b"prompt") == sets.change(b"prompt")
    other.notice(b"prompt", [b"a"])
    assert not other.is_changing(b"prompt")
    other.notice(b"prompt", [b"b"])
    assert other.is_changing(b"prompt")
    assert len(other) == 2
