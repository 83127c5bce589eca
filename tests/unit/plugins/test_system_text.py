from contextlib import suppress
from itertools import product

import pytest

from plugins.system_text import SystemTextRecogniser, register_recognisers
from proxy.protocol.recognition import Bound, MessageKind, PieceKind, TooMuch, covers
from tests.examples import for_every, sampled
from tests.growth import assert_linear


def cut(text: str, role: str = "system") -> dict[PieceKind, list[str]]:
    """The texts of each kind; empty where nothing moves."""
    found = SystemTextRecogniser().recognise(role, text) if SystemTextRecogniser.texts.may_have(role, text) else None
    if found is None:
        return {}
    assert found.form is MessageKind.SYSTEM
    assert covers(found.cuts, len(text))
    kinds: dict[PieceKind, list[str]] = {}
    for each in found.cuts:
        kinds.setdefault(each.kind, []).append(text[each.start : each.end])
    return kinds


@pytest.mark.parametrize(
    "line",
    [
        "Current date and time: Saturday, 21 November 2026, 20:53:07",
        "Current time: 10:00",
        "The time is now 2026-11-21 21:08 UTC+00:00.",
        "Today is Monday; it is 9:05 am.",
        "<now>2026-11-21T20:53:07Z</now>",
        "datetime: 2026-11-21 20:53",
        "It is 23:59 now.",
    ],
)
def test_a_line_that_tells_the_time(line: str) -> None:
    assert cut(f"You are kind.\n{line}\nRules.\n") == {
        PieceKind.SECTION: ["You are kind.\n", "Rules.\n"],
        PieceKind.VOLATILE: [f"{line}\n"],
    }


@pytest.mark.parametrize(
    "line",
    [
        "Answer within 24:00 hours.", "Ratio 16:9, version 1.2:3.", "Current version: 10.2",
        "Today's date is 2026-11-21.", "The opening hours are 09:00 to 17:00.",
        "See 10.0.0.1:8080 for the current state.", "Current time: unknown",
    ],
)  # fmt: skip
def test_a_line_that_does_not(line: str) -> None:
    assert cut(f"You are kind.\n{line}\nRules.\n") == {}


def test_at_the_beginning_and_at_the_end() -> None:
    assert cut("Current time: 10:00\nRules.")[PieceKind.VOLATILE] == ["Current time: 10:00\n"]
    assert cut("Rules.\nCurrent time: 10:00")[PieceKind.VOLATILE] == ["Current time: 10:00"]


def test_a_long_paragraph_is_not_moved_for_the_time_in_it() -> None:
    assert cut("Rules.\n" + "Current time: 10:00 " + "and more " * 60 + "\n") == {}


def test_a_log_is_no_clock() -> None:
    log = "".join(f"2026-11-21 20:5{n}:00 started\n" for n in range(5))
    assert cut("An example:\n" + log + "Rules.\n") == {}


DOCUMENTS = '<document source="a" id="1">\none\n</document>\n\n<document id="2" source="b">two</document>'


def test_documents_with_the_blank_lines_behind_them() -> None:
    kinds = cut(f"Answer.\n{DOCUMENTS}\nBrief.\n")
    assert kinds[PieceKind.DOCUMENT] == [
        '<document source="a" id="1">\none\n</document>\n\n',
        '<document id="2" source="b">two</document>\n',
    ]
    assert kinds[PieceKind.SECTION] == ["Answer.\n", "Brief.\n"]


ONE, TWO = DOCUMENTS.split("\n\n")


@for_every(
    [
        # One break in front of each and one in front of the text behind; blank lines belong to the document above.
        (f"Answer.\n{DOCUMENTS}\nBrief.", ["Answer.", "\nBrief."], [f"\n{ONE}\n", f"\n{TWO}"]),
        (f"Use:\n\n{DOCUMENTS}\n\nBrief.", ["Use:\n", "\nBrief."], [f"\n{ONE}\n", f"\n{TWO}\n"]),
        (f"Use:\n\n{ONE}\n{TWO}\nBrief.", ["Use:\n", "\nBrief."], [f"\n{ONE}", f"\n{TWO}"]),
        (f"Use:\r\n{ONE}\n{TWO}\nBrief.", ["Use:\r", "\nBrief."], [f"\n{ONE}", f"\n{TWO}"]),
        # At the end of a text they belong to the document below.
        (f"Use:\n\n{DOCUMENTS}", ["Use:"], [f"\n\n{ONE}", f"\n\n{TWO}"]),
        (f"Use:\n \n{DOCUMENTS}", ["Use:"], [f"\n \n{ONE}", f"\n\n{TWO}"]),
        (f"Use:\r\n\r\n{ONE}", ["Use:\r"], [f"\n\r\n{ONE}"]),
        # The text ends in a break.
        (f"Use:\n\n{DOCUMENTS}\n", ["Use:\n\n"], [f"{ONE}\n\n", f"{TWO}\n"]),
        (f"{DOCUMENTS}\nBrief.\n", ["Brief.\n"], [f"{ONE}\n\n", f"{TWO}\n"]),
        (f"{ONE}\n \n{TWO}\n\nBrief.\n", ["Brief.\n"], [f"{ONE}\n \n", f"{TWO}\n\n"]),
    ]
)
def test_a_document_brings_line_breaks_along(text: str, sections: list[str], documents: list[str]) -> None:
    assert cut(text) == {PieceKind.SECTION: sections, PieceKind.DOCUMENT: documents}


@pytest.mark.parametrize(
    ("text", "volatile", "sections"),
    [
        ("Help.\n{}\n" + ONE + "\nBrief.", "\n{}", ["Help.", "\nBrief."]),
        ("Help.\r\n{}\r\n" + ONE + "\nBrief.", "\n{}\r", ["Help.\r", "\nBrief."]),
        ("Help.\n{}\n\n" + ONE + "\nBrief.", "{}\n", ["Help.\n", "\nBrief."]),
        ("Help.\n{}\n\n" + ONE, "\n{}", ["Help."]),
        ("{}\n" + ONE + "\nBrief.", "{}", ["\nBrief."]),
        ("Help.\n" + ONE + "\n{}\nBrief.", "{}\n", ["Help.", "\n", "Brief."]),
        ("Help.\n{}\n" + ONE + "\nBrief.\n", "{}\n", ["Help.\n", "Brief.\n"]),
    ],
)
def test_a_clock_beside_a_document_leaves_it_its_line_break(text: str, volatile: str, sections: list[str]) -> None:
    clock = "Current time: 10:00"
    kinds = cut(text.replace("{}", clock))
    assert kinds[PieceKind.VOLATILE] == [volatile.replace("{}", clock)]
    assert kinds[PieceKind.SECTION] == sections


def test_two_clocks_in_front_of_a_document_share_what_breaks_are_left() -> None:
    kinds = cut(f"Current time: 10:00\nIt is now 10:00.\n{ONE}\nBrief.")
    assert kinds[PieceKind.VOLATILE] == ["Current time: 10:00", "\nIt is now 10:00."]


@pytest.mark.parametrize("tag", ["document", "doc", "chunk", "passage", "excerpt", "source", "result"])
def test_every_common_tag(tag: str) -> None:
    assert cut(f'Answer.\n<{tag} id="1">one</{tag}>\n')[PieceKind.DOCUMENT] == [f'<{tag} id="1">one</{tag}>\n']


@pytest.mark.parametrize(
    "text",
    [
        "Wrap the answer in <result>yes or no</result> tags.\n",
        "Answer in this form:\n<result>\nyes or no\n</result>\nNothing else.\n",
        'Quote as <source id="1">the title</source>, no more.\n',
        '<source id="1">the title</source> is how to quote.\n',
        'As in: <doc id="1">\none\n</doc>\n',
    ],
)
def test_a_tag_that_the_prompt_speaks_of_stays_where_it_is(text: str) -> None:
    assert cut("You are kind.\n" + text + "Rules.\n") == {}


@for_every(
    [
        '<document-list id="1">\none\n</document-list>\n', '<document-list id="1">\none\n</document>\n',
        '<doc:part id="1">\none\n</doc:part>\n', '<document\ue03did="1">\none\n</document>\n',
        '<document\ud83did="1">\none\n</document>\n', '<document/id="1">\none\n</document>\n',
        '<document id="1"/>\none\n</document>\n', '<doc id="1"/>\n', '<document id="1">\none\n</document-list>\n',
    ]
)  # fmt: skip
def test_an_element_of_another_name_and_one_that_closes_itself_are_text(block: str) -> None:
    assert cut(f"Answer.\n{block}Rules.\n") == {}


def test_the_attributes_of_a_document_may_stand_on_a_line_of_their_own() -> None:
    block = '<document\nid="1">\none<doc/>\n<document-list>\n</document\n>\n'
    assert cut(f"Answer.\n{block}Rules.\n")[PieceKind.DOCUMENT] == [block]


def test_a_tag_that_is_never_closed_is_text() -> None:
    assert cut("Answer.\n<document>\nnever closed\n") == {}


def test_nothing_is_a_clock_behind_a_fence_that_nobody_can_pair() -> None:
    clock, code = "The current time is 10:00.\n", "```\n{}```\n"
    for document in ('<document id="1">\n', '<document id="1">\n```\n</document>\r\n', '<doc id="1">a</doc> b\n'):
        assert cut(f"Answer.\n{document}{code.format(clock)}") == {}
        assert cut(f"Answer.\n{document}{code.format('x')}{clock}{code.format('y')}") == {}
        assert cut(f"{clock}Answer.\n{document}{code.format(clock)}")[PieceKind.VOLATILE] == [clock]


@pytest.mark.parametrize("text", ["```\n{}```\n```\n{}", "```\nx\n```\n{}~~~\n", "```\n{}"])
def test_nothing_is_a_clock_where_there_is_one_fence_too_many(text: str) -> None:
    clock = "The current time is 10:00.\n"
    assert cut(f"Answer.\n{text.replace('{}', clock)}") == {}
    assert cut(f"{clock}Answer.\n{text.replace('{}', clock)}")[PieceKind.VOLATILE] == [clock]


def test_a_clock_inside_a_document_belongs_to_it() -> None:
    kinds = cut('Answer.\n<doc id="1">\nCurrent time: 10:00\n</doc>\nBrief.\n')
    assert PieceKind.VOLATILE not in kinds
    assert len(kinds[PieceKind.DOCUMENT]) == 1


def test_a_document_is_known_again_by_its_attributes_and_text() -> None:
    recogniser = SystemTextRecogniser()

    def keys(text: str) -> list[str]:
        found = recogniser.recognise("system", text)
        return [c.key for c in found.cuts if c.kind is PieceKind.DOCUMENT]

    one, two = keys(f"Answer.\n{DOCUMENTS}\n")
    assert keys(f"Other.\n{DOCUMENTS}\n") == [one, two]
    assert one != two
    assert keys('Answer.\n<doc id="1">a</doc>\n') != keys('Answer.\n<doc id="1">b</doc>\n')


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_only_system_texts_are_cut(role: str) -> None:
    assert cut(f"Current time: 10:00\n{DOCUMENTS}", role) == {}


def test_developers_texts_are_cut() -> None:
    assert cut("Rules.\nCurrent time: 10:00\n", "developer")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<doc id='1'>\n" * 20_000 + "</doc>x",
        "<doc" * 20_000,
        "<document>" * 2_000,
        "12:34" * 20_000,
        "current " * 30_000,
        "2026-01-01 " * 20_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    assert cut(text) == {}


def test_the_plugin_registers_one_recogniser() -> None:
    (one,) = register_recognisers()
    assert one.name == "system-text"


@pytest.mark.parametrize(
    "text",
    [
        'Answer in this form:\n```xml\n<result id="1">\nfirst\n</result>\n<result id="2">\n```\nRules.',
        '~~~\n<document source="a">\nx\n</document>\n~~~\nRules.',
        "```\nCurrent time: 10:00\n```\nRules.",
        '<document id="1">\nQ\n</document>\nA: for the one above it is 1.\n<document id="2">\nQ\n</document>\nEnd.',
        "Example of a log:\n2024-01-01 10:00 ERROR boom\nmeans failure.",
    ],
)
def test_examples_are_not_torn_out_of_their_place(text: str) -> None:
    assert cut(text) == {}


def test_documents_go_with_the_tag_that_encloses_them() -> None:
    one = '<context>\n<document id="1">\na\n</document>\n\n<document id="2">\nb\n</document>\n</context>\n'
    two = f'<data kind="x">\n{one}</data>\n'
    for block in (one, two):
        assert cut(f"Rules.\n{block}Answer only from <context>.\n") == {
            PieceKind.SECTION: ["Rules.\n", "Answer only from <context>.\n"],
            PieceKind.DOCUMENT: [block],
        }
    assert cut(f"Rules.\nSee <context>\n{one[len('<context>') + 1 :]}Answer.") == {}


@pytest.mark.parametrize(
    "text",
    [
        "Help.\n<rules>\nUse this:\n{}Say nothing else.\n</rules>\nBe exact.\n",
        "Help.\n<rules>\n<documents>\n{}</documents>\nSay nothing else.\n</rules>\n",
        "Answer as in <form>\n{}</form> and not otherwise.\n",
    ],
)
def test_documents_stay_in_a_tag_that_holds_more_than_them(text: str) -> None:
    block = '<document id="1">\nx\n</document>\n'
    assert cut(text.format(block)) == {}
    assert cut(f"<b>Help</b>\n<i>\n{block}<b>Be exact</b>\n")[PieceKind.DOCUMENT] == [block]


def test_a_document_within_a_document_is_a_part_of_it() -> None:
    inner = '<document source="inner">\nfoo\n</document>\n'
    outer = f'<document source="outer">\nExample:\n{inner}second half\n</document>\n'
    assert cut(f"Rules.\n{outer}More.\n")[PieceKind.DOCUMENT] == [outer]
    assert cut(f'Rules.\n<document source="outer">\n{inner}More.') == {}


def test_numbered_parts_of_one_source_stay_together() -> None:
    parts = [f'<document source="big" part="{n}">\ntext {n}\n</document>\n' for n in (1, 2, 3, 7)]
    other = '<document source="small" part="4">\ntext\n</document>\n'
    assert cut(f"Rules.\n{''.join(parts)}{other}More.\n")[PieceKind.DOCUMENT] == ["".join(parts[:3]), parts[3], other]
    ranked = [f'<document source="a.rst" section="{n}">\ntext\n</document>\n' for n in ("31.0", "6.1", "7.1")]
    assert cut(f"Rules.\n{''.join(ranked)}More.\n")[PieceKind.DOCUMENT] == ranked


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    sampled(
        [
            "time ", "10:00 x ", "```\n", '<document a="1">\n</document>\n', "<document a='b'>\n",
            '<document a="1" part="{n}">\n</document>\n', "It is 10:00 now.\n",
        ],
        3,
    ),
)  # fmt: skip
def test_the_time_grows_with_the_text(unit: str) -> None:
    def work(text: str) -> None:
        with suppress(TooMuch):
            SystemTextRecogniser().recognise("system", text)

    def text(size: int) -> str:
        return "".join(unit.replace("{n}", str(n)) for n in range(size // len(unit)))

    assert_linear(work, text, 250_000)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("10:00 x\n" * 5_001, Bound.MATCHES),
        ("```\n```\n" * 20_001, Bound.MATCHES),
        ("<b>" * 20_001 + '\n<doc id="1">\n</doc>\n', Bound.MATCHES),
        ("<docs\n" * 20_001 + '<doc id="1">\n</doc>\n</docs>\n', Bound.MATCHES),
        ("".join(f'<doc id="{n}">\n</doc>\n' for n in range(1_001)), Bound.PIECES),
    ],
    ids=["times", "fences", "tags", "lines that begin alike", "documents"],
)
def test_what_nobody_can_have_written_is_not_looked_through(text: str, bound: Bound) -> None:
    with pytest.raises(TooMuch) as raised:
        cut("Current time: 10:00\n" + text)
    assert raised.value.bound is bound


STABLE = "# Reference Files (Stable)\n\nThese files are included for reference:\n\n"
FILES = ["a.py\n```\nx = 1\n```", "src/b.md\n```\n# b\n\nCurrent time: 10:00\n```"]


WORKING = "# Working Files\n\nHere are the files:\n\n"


@for_every(product([STABLE, STABLE.replace(" (Stable)", ""), STABLE.replace("Stable", "L2"), WORKING], ["", "\n"]))
def test_reference_files_that_end_a_system_text_are_pieces(header: str, end: str) -> None:
    text = f"Help.\nCurrent time: 10:00\nBe exact.\n\n{header}" + "\n\n".join(FILES) + end
    kinds = cut(text)
    assert [each.strip("\n") for each in kinds[PieceKind.FILE]] == FILES
    assert kinds[PieceKind.VOLATILE] == ["Current time: 10:00\n"]
    assert kinds[PieceKind.SECTION][-1].rstrip("\n") == "Be exact.\n\n" + header.rstrip("\n")


@for_every(
    [
        f"Help.\n{STABLE}" + "\n\n".join(FILES) + "\n\nAnd more.",
        f"Help. {STABLE}" + "\n\n".join(FILES),
        f"Help.\n{STABLE}{FILES[0]}\n\n{STABLE}{FILES[1]}",
        f"Help.\n{STABLE}{FILES[0]}\n\n{WORKING}{FILES[1]}",
        f"Help.\n{STABLE}{FILES[0]}\n\n{FILES[0]}",
        f"Help.\n{STABLE}a.md\n```\n```\nx\n```\n```",
        f"Help.\n{STABLE}",
        f"Help.\n{STABLE}a.py\n```\nopen",
    ]
)
def test_half_of_a_match_is_none(text: str) -> None:
    assert PieceKind.FILE not in cut(text)
