"""In which order parts are shortened, and where a text is cut."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.prompts.window import PartCaps, PartName, behind_conversation, beside_conversation
from proxy.prompts.window.fitting import PIECE_CHARS, head, tail
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services import local_encode

CAPS = PartCaps(system=10, instruction=10, selection=10, prefix=10, suffix=10, summary=10)
SIZES = dict.fromkeys(PartName, 30)


def test_beyond_their_caps_both_give_before_either_gives_within_its_cap() -> None:
    kept = [beside_conversation(SIZES, CAPS, overflow)[0] for overflow in (10, 30, 45, 55)]
    found = [(each[PartName.SUFFIX], each[PartName.PREFIX]) for each in kept]
    assert found == [(20, 30), (10, 20), (5, 10), (0, 5)]


def test_what_is_behind_the_conversation_gives_in_the_documented_order() -> None:
    names = (PartName.SUMMARY, PartName.FILES, PartName.INSTRUCTION, PartName.SYSTEM)
    order = []
    before = dict(SIZES)
    for overflow in range(1, 111):
        kept, left = behind_conversation(SIZES, CAPS, overflow, may_shorten_system=True)
        assert left == 0
        changed = [name for name in PartName if kept[name] != before[name]]
        order += changed[:1] if order[-1:] != changed else []
        before = kept
    assert tuple(order) == names
    assert (before[PartName.SELECTION], before[PartName.INSTRUCTION], before[PartName.SYSTEM]) == (30, 10, 0)


def test_what_nobody_gives_is_still_too_much() -> None:
    assert behind_conversation(SIZES, CAPS, 100)[1] == 100 - 30 - 30 - 20
    assert behind_conversation({PartName.SELECTION: 50}, CAPS, 5) == ({PartName.SELECTION: 50}, 5)


@given(st.dictionaries(st.sampled_from(PartName), st.integers(0, 50)), st.integers(-20, 200), st.integers(0, 50))
def test_a_smaller_overflow_takes_no_more_from_any_part(sizes: dict[PartName, int], overflow: int, less: int) -> None:
    for reduce in (beside_conversation, behind_conversation):
        many, few = reduce(sizes, CAPS, overflow)[0], reduce(sizes, CAPS, overflow - less)[0]
        assert all(many[name] <= few[name] <= sizes[name] for name in sizes)


def test_a_small_cap_keeps_what_fits() -> None:
    text = "def f(x):\n    return x + 1"
    assert head(text, 5, local_encode()) == "def f(x):\n"
    assert tail(text, 4, local_encode()) == " x + 1"
    assert head(text, 0, bytes_over_four) == tail(text, 0, bytes_over_four) == ""


def test_a_text_is_filled_to_its_room_from_its_beginning() -> None:
    text = "a" * PIECE_CHARS + "b" * PIECE_CHARS + "c"
    assert head(text, 64, bytes_over_four) == "a" * PIECE_CHARS
    assert head(text, 63, bytes_over_four) == "a" * 4 * 62
    assert head(text, 1_000, bytes_over_four) == tail(text, 1_000, bytes_over_four) == text


def test_the_end_of_a_growing_text_begins_at_the_same_place_until_it_is_full() -> None:
    text = "".join(f"line {number:5}\n" for number in range(2_000))
    starts = [end - len(tail(text[:end], 1_000, bytes_over_four)) for end in range(4_000, 12_000, 3)]
    assert len(set(starts)) == 9
    assert starts == sorted(starts)
    assert all(start % PIECE_CHARS == 0 for start in starts)


def test_some_tokens_more_or_less_in_the_room_do_not_move_the_beginning_of_a_text() -> None:
    rng, text = random.Random(5), "".join(f"line {number:5}\n" for number in range(4_000))
    ends = range(9_000, 41_000, 20)
    starts = [end - len(tail(text[:end], rng.randrange(1_980, 1_990), bytes_over_four)) for end in ends]
    assert len(set(starts)) == 17
    assert sum(one != other for one, other in pairwise(starts)) < 25
