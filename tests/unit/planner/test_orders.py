import itertools
from collections.abc import Callable, Sequence

import pytest

from proxy.planner.orders import (
    RequestElements,
    behind_prefix,
    by_tiers,
    moved_elements,
    request_elements,
    valid_prefix,
)
from proxy.planner.tiers import Tier
from proxy.protocol.recognition import ContextPiece
from proxy.protocol.request.element import Element, ElementKind, form_digest
from proxy.protocol.request.message import piece_digest
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.request.transcript import RecognisedRequest
from tests.fidelity.chats import MAP_ACK, MAP_OPENING, READ_ONLY_ACK, READ_ONLY_OPENING, File
from tests.talk import Body, as_parts, assistant, calling, result, said, shown, system, user, view_of

A, B, C = (File(f"{name}.py", f"{name} = 1\n") for name in "abc")
HEAD = system("You are kind.")
EARLIER = [user("first"), assistant("done")]


def elements_of(recognised: RecognisedRequest) -> RequestElements:
    return request_elements(recognised, (), TokenCounter(bytes_over_four))


def show(elements: Sequence[Element]) -> str:
    """An order in short: the kind's first letter, and what it holds."""
    short = {
        ElementKind.MESSAGE: "m", ElementKind.WHOLE: "W", ElementKind.PART: "P", ElementKind.LAST_PART: "L",
        ElementKind.SYSTEM: "S", ElementKind.DOCUMENT: "D", ElementKind.TAG: "T", ElementKind.TOOLS: "t",
    }  # fmt: skip

    def name(element: Element) -> str:
        if element.item is not None:
            return element.item.key.rpartition("file:")[2].removesuffix(".py")
        return str(element.message) if element.message >= 0 else ""

    return " ".join(short[e.kind] + name(e) for e in elements)


def like(*order: str) -> Callable[[ContextPiece], float]:
    """A weight by which files stand in this order."""
    return lambda item: float(-next((i for i, name in enumerate(order) if f"{name}.py" in item.key), 99))


def before(*elements: Element) -> list[bytes]:
    return [e.digest for e in elements]


class TestNatural:
    def test_the_clients_order_with_context_whole(self) -> None:
        recognised = view_of(HEAD, *shown(A, B), *EARLIER, user("go"), calling("1"), result("1", "x"))
        assert show(elements_of(recognised).natural) == "m0 W1 m3 m4 m5 m6 m7"

    def test_nothing_to_move(self) -> None:
        assert not elements_of(view_of(HEAD, *EARLIER, user("go"))).is_movable
        assert elements_of(view_of(HEAD, *shown(A), user("go"))).is_movable

    def test_without_a_user_everything_stays(self) -> None:
        elements = elements_of(view_of(HEAD, assistant("hi")))
        assert show(behind_prefix(elements, (), like())) == show(elements.natural) == "m0 m1"


class TestBehindPrefix:
    def test_context_stands_behind_the_conversation_the_most_stable_first(self) -> None:
        recognised = view_of(HEAD, *shown(A, B, C), *EARLIER, user("go"))
        assert show(behind_prefix(elements_of(recognised), (), like("c", "a", "b"))) == "m0 m3 m4 Pc Pa Lb m5"

    def test_groups_are_laid_among_each_other_and_each_ends_with_its_own_last_part(self) -> None:
        recognised = view_of(
            HEAD,
            *shown(A, opening=READ_ONLY_OPENING, ack=READ_ONLY_ACK),
            user(MAP_OPENING + "\nsrc/x.py:\n│def f():\n"), assistant(MAP_ACK),
            *shown(B, C),
            user("go"),
        )  # fmt: skip
        assert show(behind_prefix(elements_of(recognised), (), like("b", "a", "c"))) == "m0 Pb W1 Lc W3 m7"

    def test_a_prefix_goes_on(self) -> None:
        recognised = view_of(HEAD, *shown(A, B, C), *EARLIER, user("go"))
        elements = elements_of(recognised)
        kept = valid_prefix(elements, before(*elements.preamble, elements.forms.parts["aider:files/file:b.py"]))
        assert show(kept) == "m0 Pb"
        assert show(behind_prefix(elements, kept, like("a", "c"))) == "m0 Pb m3 m4 Pa Lc m5"

    def test_a_prefix_with_turns_goes_on_behind_them(self) -> None:
        recognised = view_of(HEAD, *shown(A, B), *EARLIER, user("next"), assistant("done"), user("go"))
        elements = elements_of(recognised)
        part = elements.forms.parts["aider:files/file:b.py"]
        kept = valid_prefix(elements, before(*elements.preamble, *elements.turns[:2], part, elements.turns[2]))
        assert show(kept) == "m0 m3 m4 Pb m5"
        assert show(behind_prefix(elements, kept, like())) == "m0 m3 m4 Pb m5 m6 La m7"

    def test_nothing_stands_between_a_turn_and_its_answer(self) -> None:
        # The turn was sent before without its answer, which did not come or was thrown away.
        recognised = view_of(HEAD, *shown(A, B), *EARLIER, user("go"))
        elements = elements_of(recognised)
        part = elements.forms.parts["aider:files/file:b.py"]
        assert show(valid_prefix(elements, before(*elements.preamble, elements.turns[0], part))) == "m0 m3"

    @pytest.mark.parametrize(
        "answer", [said("tool", "x"), said("function", "x"), as_parts(calling("1"), result("1", "x"))[1]]
    )
    def test_nothing_stands_between_a_call_and_its_result(self, answer: Body) -> None:
        recognised = view_of(HEAD, *shown(A, B), *EARLIER, answer, assistant("done"), user("go"))
        elements = elements_of(recognised)
        part = elements.forms.parts["aider:files/file:b.py"]
        assert show(valid_prefix(elements, before(*elements.preamble, *elements.turns[:2], part))) == "m0 m3 m4"

    def test_documents_stay_behind_the_system_text(self) -> None:
        text = 'Answer.\n<document id="1">\none\n</document>\n<document id="2">\ntwo\n</document>\nBrief.\n'
        recognised = view_of(system(text), *shown(A), *EARLIER, user("go"))
        moved = moved_elements(recognised, elements_of(recognised), TokenCounter(bytes_over_four))
        assert moved is not None
        order = behind_prefix(moved, (), lambda item: 2.0 if "two" in item.text else 1.0)
        assert [e.kind for e in order[:3]] == [ElementKind.SYSTEM, ElementKind.DOCUMENT, ElementKind.DOCUMENT]
        assert [e.item.text for e in order[1:3] if e.item][0].startswith('<document id="2">')


class TestValidPrefix:
    def test_what_followed_the_documents_follows_them_again_where_all_of_them_are_there(self) -> None:
        texts = [f'<document id="{n}">\n{n} of them\n</document>\n' for n in range(3)]

        def laid_out(*documents: str) -> RequestElements:
            recognised = view_of(system("Answer.\n" + "".join(documents) + "Brief.\n"), *shown(A), *EARLIER, user("go"))
            moved = moved_elements(recognised, elements_of(recognised), TokenCounter(bytes_over_four))
            assert moved is not None
            return moved

        three = laid_out(*texts)
        sent = before(*three.preamble, *three.documents.values(), *three.turns)
        kinds = [e.kind for e in valid_prefix(three, sent)]
        assert kinds[1:] == [ElementKind.DOCUMENT] * 3 + [ElementKind.MESSAGE] * 2
        # Of three documents one was exchanged: the two in front of it go on, and nothing of what stood behind them.
        other = laid_out(texts[0], texts[1], '<document id="9">\nanother one\n</document>\n')
        assert [e.kind for e in valid_prefix(other, sent)][1:] == [ElementKind.DOCUMENT] * 2

    def recognised(self, *files: File) -> RecognisedRequest:
        return view_of(HEAD, *shown(*files), *EARLIER, user("go"))

    def test_another_head_keeps_nothing(self) -> None:
        elements = elements_of(self.recognised(A, B))
        assert valid_prefix(elements, [b"another head"]) == ()
        assert valid_prefix(elements, []) == ()

    def test_ends_at_what_is_gone_or_changed(self) -> None:
        elements = elements_of(self.recognised(A, B, C))
        parts = elements.forms.parts
        order = [*elements.preamble, parts["aider:files/file:a.py"], parts["aider:files/file:b.py"]]
        changed = elements_of(self.recognised(A, File("b.py", "b = 2\n"), C))
        assert show(valid_prefix(changed, before(*order))) == "m0 Pa"
        gone = elements_of(self.recognised(B, C, File("d.py", "d\n")))
        assert show(valid_prefix(gone, before(*order))) == "m0"

    def test_turns_only_in_their_order(self) -> None:
        elements = elements_of(self.recognised(A))
        first, second = elements.turns
        assert show(valid_prefix(elements, before(*elements.preamble, second, first))) == "m0"
        assert show(valid_prefix(elements, before(*elements.preamble, first, second))) == "m0 m3 m4"

    def test_the_last_exchange_is_never_reordered(self) -> None:
        elements = elements_of(self.recognised(A))
        assert show(valid_prefix(elements, before(*elements.natural))) == "m0 W1 m3 m4"
        assert show(valid_prefix(elements, before(*elements.preamble, *elements.tail))) == "m0"

    def test_a_piece_is_used_once(self) -> None:
        elements = elements_of(self.recognised(A, B))
        part = elements.forms.parts["aider:files/file:a.py"]
        assert show(valid_prefix(elements, before(*elements.preamble, part, part))) == "m0 Pa"

    def test_the_opening_stays_with_the_last_part(self) -> None:
        elements = elements_of(self.recognised(A, B))
        parts, lasts = elements.forms.parts, elements.forms.lasts
        a, b = "aider:files/file:a.py", "aider:files/file:b.py"
        # All pieces without the opening: the last of them must wait for it.
        assert show(valid_prefix(elements, before(*elements.preamble, parts[a], parts[b]))) == "m0 Pa"
        # The opening before the last piece.
        assert show(valid_prefix(elements, before(*elements.preamble, lasts[a], parts[b]))) == "m0"
        # Complete.
        assert show(valid_prefix(elements, before(*elements.preamble, parts[b], lasts[a]))) == "m0 Pb La"

    def test_a_new_file_reopens_a_group_that_was_complete(self) -> None:
        two, three = elements_of(self.recognised(A, B)), elements_of(self.recognised(A, B, C))
        sent = before(
            *two.preamble,
            two.forms.parts["aider:files/file:b.py"],
            two.forms.lasts["aider:files/file:a.py"],
            *two.turns,
        )
        kept = valid_prefix(three, sent)
        assert show(kept) == "m0 Pb"
        assert show(behind_prefix(three, kept, like("a"))) == "m0 Pb m3 m4 Pa Lc m5"

    def test_a_dropped_file_leaves_no_group_without_opening(self) -> None:
        three, two = elements_of(self.recognised(A, B, C)), elements_of(self.recognised(A, B))
        parts = three.forms.parts
        sent = before(*three.preamble, parts["aider:files/file:a.py"], parts["aider:files/file:b.py"])
        assert show(behind_prefix(two, valid_prefix(two, sent), like())) == "m0 Pa m3 m4 Lb m5"

    def test_whole_and_in_parts_exclude_each_other(self) -> None:
        elements = elements_of(self.recognised(A, B))
        whole, part = elements.forms.wholes[1], elements.forms.parts["aider:files/file:a.py"]
        assert show(valid_prefix(elements, before(*elements.preamble, whole, part))) == "m0 W1"
        assert show(valid_prefix(elements, before(*elements.preamble, part, whole))) == "m0"

    def test_several_messages_of_one_name_are_kept_whole(self) -> None:
        elements = elements_of(view_of(HEAD, *shown(A), *shown(B), *shown(C, A), *EARLIER, user("go")))
        sent = before(*elements.natural)
        assert show(valid_prefix(elements, sent)) == "m0 W1 W3 W5 m7 m8"
        wholes = elements.forms.wholes
        twice = before(*elements.preamble, wholes[1], wholes[3], wholes[1])
        assert show(valid_prefix(elements, twice)) == "m0 W1 W3"


class TestSpans:
    """Long files where the cache looks into a text."""

    LINES = tuple(f"line {number} of a file that is long enough\n" for number in range(300))
    OLD = File("a.py", "".join(LINES))
    NEW = File("a.py", "".join([*LINES[:200], "new\n", *LINES[200:]]))

    def of(self, file: File, other: File = B, *, has_spans: bool = True) -> RequestElements:
        recognised = view_of(HEAD, *shown(file, other), user("go"))
        return request_elements(recognised, (), TokenCounter(bytes_over_four), has_spans=has_spans)

    def test_a_long_file_is_several_positions_of_the_same_tokens(self) -> None:
        whole, cut = (self.of(self.OLD, has_spans=one).forms.parts["aider:files/file:a.py"] for one in (False, True))
        assert len(whole.parts) == 2
        assert len(cut.parts) > 4
        assert (cut.tokens, cut.digest) == (whole.tokens, whole.digest)

    def test_versions_share_positions_up_to_the_edit(self) -> None:
        old, new = (self.of(file).forms.parts["aider:files/file:a.py"] for file in (self.OLD, self.NEW))
        same = [a.digest == b.digest for a, b in zip(old.parts, new.parts, strict=False)]
        assert same[:3] == [True] * 3
        assert not all(same)

    def test_versions_of_a_whole_message_share_positions_up_to_the_edit(self) -> None:
        cut, edited, behind = (self.of(*files).natural[1] for files in ((self.OLD, B), (self.NEW, B), (self.OLD, C)))
        for other, least in ((edited, 0.6), (behind, 0.9)):
            pairs = zip(cut.parts, other.parts, strict=False)
            shared = itertools.takewhile(lambda pair: pair[0].digest == pair[1].digest, pairs)
            assert least * cut.tokens < sum(part.tokens for part, _ in shared) < cut.tokens

    def test_a_prefix_may_end_in_a_file_that_changed(self) -> None:
        old, new = self.of(self.OLD), self.of(self.NEW)
        key = "aider:files/file:a.py"
        sent = before(*old.preamble, old.forms.parts[key], old.forms.lasts["aider:files/file:b.py"])
        assert show(valid_prefix(new, sent)) == "m0"
        changed = {old.forms.parts[key].digest: new.forms.parts[key]}
        assert show(valid_prefix(new, sent, changed)) == "m0 Pa"
        lead, ack = piece_digest(new.forms.parts[key].lead), new.forms.parts[key].parts[-1]
        assert form_digest(lead, old.items[key].digest, ack) in changed


class TestByTiers:
    def test_tiers_then_the_conversation_then_what_is_active(self) -> None:
        recognised = view_of(HEAD, *shown(A, B, C), *EARLIER, user("go"))
        elements = elements_of(recognised)
        tiers = {"aider:files/file:c.py": Tier.L0, "aider:files/file:b.py": Tier.L3}
        order = by_tiers(elements, lambda k: tiers.get(k, Tier.ACTIVE), lambda _: 0, like(), frozenset())
        assert show(order) == "m0 Pc Pb m3 m4 La m5"

    def test_pieces_of_a_tier_stand_as_they_entered_it(self) -> None:
        recognised = view_of(HEAD, *shown(A, B, C), user("go"))
        entered = {"aider:files/file:a.py": 7, "aider:files/file:b.py": 3, "aider:files/file:c.py": 5}
        order = by_tiers(elements_of(recognised), lambda _: Tier.L3, entered.__getitem__, like(), frozenset())
        assert show(order) == "m0 Pb Pc La m3"

    def test_one_file_is_never_taken_apart(self) -> None:
        recognised = view_of(HEAD, *EARLIER, *shown(A), user("go"))
        assert (
            show(by_tiers(elements_of(recognised), lambda _: Tier.L1, lambda _: 0, like(), frozenset()))
            == "m0 W3 m1 m2 m5"
        )


def test_a_part_is_its_header_and_the_clients_bytes() -> None:
    recognised = view_of(HEAD, *shown(A, B), user("go"))
    elements = elements_of(recognised)
    part, last = elements.forms.parts["aider:files/file:a.py"], elements.forms.lasts["aider:files/file:a.py"]
    assert part.item.text == "\na.py\n```\na = 1\n```\n"
    assert part.lead.startswith("These files are in the chat and may be edited.")
    assert last.lead == recognised.groups[0].opening
    assert part.digest != last.digest


def test_a_digest_is_the_same_wherever_the_piece_stands() -> None:
    one = elements_of(view_of(HEAD, *shown(A, B), user("go")))
    other = elements_of(view_of(HEAD, *EARLIER, *shown(C, A), user("other")))
    key = "aider:files/file:a.py"
    assert one.forms.parts[key].digest == other.forms.parts[key].digest
