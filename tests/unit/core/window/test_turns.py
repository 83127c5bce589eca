"""In which steps the oldest messages of a conversation may be left out."""

from proxy.core.window.trimming import kept
from proxy.core.window.turns import Spoken, Steps, steps_of
from tests.examples import for_every


def spoken(notation: str) -> list[Spoken]:
    """``u`` a user, ``a`` an answer, ``c1`` a call, ``r1`` its result, ``s`` a notice; each has one token."""
    found = []
    for word in notation.split():
        role = {"u": "user", "a": "assistant", "c": "assistant", "r": "tool", "s": "system"}[word[0]]
        found.append(Spoken(role, 1, (word[1:],) if word[0] == "c" else (), word[1:] if word[0] == "r" else None))
    return found


def rests(notation: str) -> list[str]:
    """What is kept after each step."""
    words = notation.split()
    steps = steps_of(spoken(notation))
    return [" ".join(words[i] for i in kept(cut, steps, len(words))) for cut in range(len(steps.tokens_before))]


@for_every(
    [
        ("u", ["u"]),
        ("u a u", ["u a u", "u"]),
        ("u a u a", ["u a u a", "u a"]),
        ("u u u", ["u u u", "u u", "u"]),
        ("u c1 r1 a u", ["u c1 r1 a u", "u a u", "u"]),
        ("u c1 r1 c2 r2", ["u c1 r1 c2 r2", "u c2 r2"]),
        ("a a u", ["a a u", "u"]),
        ("c1 r1 c2 r2", ["c1 r1 c2 r2", "c2 r2"]),
        ("u c1 s r1 a u", ["u c1 s r1 a u", "u a u", "u"]),
        ("r9 a u", ["r9 a u", "u"]),
    ]
)
def test_groups_go_one_by_one_and_a_turn_of_a_user_with_its_last_group(talk: str, after: list[str]) -> None:
    assert rests(talk) == after


def test_nothing_at_all_has_no_steps() -> None:
    assert steps_of([]) == Steps([], [0], [0], [], [0])


def test_a_result_that_comes_later_than_its_call_keeps_both_together() -> None:
    steps = steps_of(spoken("u a u c1 c2 r2 u r1 a u"))
    legal = [cut for cut in range(len(steps.legal)) if steps.legal[cut] == cut]
    assert [rests("u a u c1 c2 r2 u r1 a u")[cut] for cut in legal] == [
        "u a u c1 c2 r2 u r1 a u",
        "u c1 c2 r2 u r1 a u",
        "u",
    ]


def test_each_request_so_far_is_a_moment() -> None:
    steps = steps_of(spoken("u c1 r1 a u"))
    assert [(m.tokens, m.older_messages, m.droppable) for m in steps.moments] == [
        (1, 0, 0),
        (3, 0, 0),
        (4, 0, 1),
        (5, 4, 2),
    ]
    assert steps.tokens_before == [0, 2, 4]
