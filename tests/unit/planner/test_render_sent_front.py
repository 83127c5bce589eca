"""The beginning of a request, made again from the digests of its elements."""

from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.orders import behind_prefix, moved_elements, request_elements
from proxy.planner.render import begun_with, digests_on_wire, laid_out_again, wire_order, written_front
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from tests.fidelity.chats import File
from tests.talk import MARK, assistant, lines, shown, system, text_part, user, view_of

COUNTER = TokenCounter(bytes_over_four)
SEED = PrefixSettings(b"", b"")
CLOCK = system(lines(9) + "Current time: 2026-01-01 10:00\n")
TALK = [CLOCK, user("q"), assistant("a"), *shown(File("a.py", "a\n"), File("b.py", "b\n")), user("r")]


def test_every_form_is_found_again() -> None:
    view = view_of(*TALK)
    elements = request_elements(view, (), COUNTER)
    moved = moved_elements(view, elements, COUNTER)
    assert moved is not None
    for some in (elements, moved):
        layout = Layout(SEED, behind_prefix(some, (), lambda item: len(item.key)))
        digests = digests_on_wire(layout)
        front = laid_out_again(view.messages, (), digests, COUNTER)
        assert front == tuple(layout.elements[i] for i in wire_order(layout.elements))
        assert laid_out_again(view.messages, (), [b"unknown"], COUNTER) is None


def test_what_follows_stands_behind_it() -> None:
    longer = view_of(*TALK, assistant("b"), user("s"))
    elements = request_elements(longer, (), COUNTER)
    front = (*elements.preamble, *elements.turns[:2])
    begun = begun_with(elements, front, 3, 4)
    assert begun.fixed == front
    assert begun.natural[: len(front)] == front
    assert all(element.message >= 3 for element in (*begun.turns, *begun.tail))
    assert behind_prefix(begun, front, lambda _: 1.0)[: len(front)] == front


def test_the_clients_markers_stay_on_messages_that_are_as_they_came() -> None:
    view = view_of(system([text_part("s", **MARK)]), user("q"))
    front = request_elements(view, (), COUNTER).natural
    assert b"".join(written_front(front, view.messages)).count(b"cache_control") == 1
