"""Conversations in which files are edited, for tests of the planner."""

from proxy.planner.plan import Plan
from tests.fidelity.chats import File
from tests.talk import Body, Talk, assistant, chat, lines, shown, system, user

SYSTEM = system(lines(40, "rule"))
A, B, C = (File(f"{name}.py", lines(60, name)) for name in "abc")


def exchange(number: int) -> list[Body]:
    """A question and its answer."""
    return [user(f"question {number}"), assistant(lines(3, f"answer {number}"))]


def editing(talk: Talk, requests: int = 6) -> list[Plan]:
    """A chat with three files; one of them is edited with each request."""
    plans, turns = [], []
    for number in range(requests):
        changed = File("b.py", lines(60, "b") + f"edit {number}\n")
        body = chat(SYSTEM, *turns, *shown(changed, A, C), user(f"question {number}"))
        plans.append(talk.send(body))
        turns += exchange(number)
    return plans
