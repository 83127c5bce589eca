"""The rules of the tiered assembly, one test each. Every expected text is written out here: none is taken from the
product. ``TIERED.md`` says which rule of the two documents each test holds."""

import orjson
import pytest

from proxy.context import FetchedPage, Review, StructuredContext
from proxy.context.blocks import Circumstances
from proxy.context.placement import TierItems, TierPlacement
from proxy.planner.tiers import Tier
from proxy.protocol.request import Inset, with_inset
from proxy.protocol.request.tokens import TokenCounter
from tests.contexts import a_file, breakdown, conversation_of, flat_assembly, items_of, placed, sent, tiered
from tests.talk import Body, assistant, system, user

MARK = {"type": "ephemeral"}
MAP = (
    "# Repository Structure\n\nBelow is a map of the repository showing classes, functions, and their relationships.\n"
    "Use this to understand the codebase structure and find relevant code.\n\n"
)
INCLUDED = "These files are included for reference:\n\n"
OK = {"role": "assistant", "content": "Ok."}
TALK = [
    system("You are a coding agent."),
    *(message for n in range(5) for message in (user(f"question {n}"), assistant(f"answer {n}"))),
    user("prompt"),
]
QUESTIONS = {n: TALK[1 + 2 * n] for n in range(5)}
ANSWERS = {n: TALK[2 + 2 * n] for n in range(5)}


def marked(text: str, role: str = "user") -> Body:
    return {"role": role, "content": [{"type": "text", "text": text, "cache_control": MARK}]}


def assembled(
    context: StructuredContext, placement: TierPlacement | None = None, messages: list[Body] | None = None
) -> list[Body]:
    """The messages of the tiered assembly; without further ones a system prompt and a prompt."""
    talk = conversation_of(*(messages or [TALK[0], TALK[-1]]))
    return sent(tiered(context, talk, placement or placed()))


def files(*paths: str) -> StructuredContext:
    return StructuredContext(files=tuple(a_file(path, f"text of {path}") for path in paths))


def block(path: str) -> str:
    return f"{path}\n```\ntext of {path}\n```"


# The order of the whole


def test_the_whole_array() -> None:
    context = StructuredContext(
        files=tuple(a_file(f"{name}.py", f"text of {name}.py") for name in ("l0", "l1", "l2", "l3", "work")),
        symbols={f"{name}.map": f"{name}.map:" for name in ("l0", "l1", "l2", "l3")},
        legend="c=class",
        tree=("b", "a"),
        pages=(FetchedPage("http://x", "Page.", "Title"),),
        review=Review(branch="main"),
        images=("data:image/png;base64,AA",),
    )
    placement = placed(
        L0=TierItems(("l0.map",), ("l0.py",), (0, 1)),
        L1=TierItems(("l1.map",), ("l1.py",), (2, 3)),
        L2=TierItems(("l2.map",), ("l2.py",), (4, 5)),
        L3=TierItems(("l3.map",), ("l3.py",), (6, 7)),
    )
    assert assembled(context, placement, TALK) == [
        system(
            f"You are a coding agent.\n\n{MAP}c=class\n\nl0.map:\n\n"
            f"# Reference Files (Stable)\n\n{INCLUDED}{block('l0.py')}"
        ),
        marked("question 0"),
        ANSWERS[0],
        user(f"# Repository Structure (continued)\n\nl1.map:\n\n# Reference Files\n\n{INCLUDED}{block('l1.py')}"),
        OK,
        marked("question 1"),
        ANSWERS[1],
        user(f"# Repository Structure (continued)\n\nl2.map:\n\n# Reference Files (L2)\n\n{INCLUDED}{block('l2.py')}"),
        OK,
        marked("question 2"),
        ANSWERS[2],
        user(f"# Repository Structure (continued)\n\nl3.map:\n\n# Reference Files (L3)\n\n{INCLUDED}{block('l3.py')}"),
        OK,
        marked("question 3"),
        ANSWERS[3],
        user("# Repository Files\n\nComplete list of files in the repository:\n\n# File Tree (2 files)\n\na\nb"),
        OK,
        user(
            "# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\n"
            "Title\nhttp://x\n\nPage."
        ),
        assistant("Ok, I've reviewed the URL content."),
        user("# Code Review Context\n\n## Summary\n\nBranch: main"),
        assistant("Ok, I've reviewed the code changes."),
        user(f"# Working Files\n\nHere are the files:\n\n{block('work.py')}"),
        OK,
        QUESTIONS[4],
        ANSWERS[4],
        user(
            [
                {"type": "text", "text": "prompt"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ]
        ),
    ]


def test_flat_mode_has_the_same_parts_and_no_breakpoint() -> None:
    context = StructuredContext(
        files=(a_file("a.py", "text of a.py"), a_file("b.py", is_selected=False)),
        symbols={"a.py": "a.py:", "b.py": "b.py:", "c.py": "c.py:"},
        legend="c=class",
        tree=("a.py",),
        pages=(FetchedPage("u", "p", "t"),),
        review=Review(branch="main"),
    )
    found = sent(flat_assembly(context, conversation_of(*TALK)))

    assert found == [
        system(f"You are a coding agent.\n\n{MAP}c=class\n\nb.py:\nc.py:"),
        user("# Repository Files\n\nComplete list of files in the repository:\n\n# File Tree (1 files)\n\na.py"),
        OK,
        user(
            "# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\nt\nu\n\np"
        ),
        assistant("Ok, I've reviewed the URL content."),
        user("# Code Review Context\n\n## Summary\n\nBranch: main"),
        assistant("Ok, I've reviewed the code changes."),
        user(f"# Working Files\n\nHere are the files:\n\n{block('a.py')}"),
        OK,
        *TALK[1:],
    ]


# L0


def test_l0_without_history_is_a_block_with_the_breakpoint() -> None:
    found = assembled(files("a.py"), placed(L0=TierItems(files=("a.py",))))

    assert found[0] == marked(
        f"You are a coding agent.\n\n# Reference Files (Stable)\n\n{INCLUDED}{block('a.py')}", "system"
    )


def test_l0_with_history_is_a_plain_string_and_the_breakpoint_ends_the_history() -> None:
    found = assembled(StructuredContext(), placed(L0=TierItems(history=(0, 1, 2, 3))), TALK)

    assert found[:5] == [TALK[0], QUESTIONS[0], ANSWERS[0], marked("question 1"), ANSWERS[1]]


def test_the_legend_stands_under_the_header_of_the_map_and_no_header_without_it() -> None:
    assert assembled(StructuredContext(legend="c=class"))[0] == marked(
        f"You are a coding agent.\n\n{MAP}c=class", "system"
    )
    assert assembled(StructuredContext())[0] == marked("You are a coding agent.", "system")


def test_symbols_of_l0_stand_behind_the_legend_and_in_front_of_the_files() -> None:
    context = StructuredContext(
        files=(a_file("a.py", "text of a.py"),), symbols={"s": "s:\n  f", "t": "t:"}, legend="c=class"
    )
    found = assembled(context, placed(L0=TierItems(symbols=("t", "s"), files=("a.py",))))

    shown = f"{MAP}c=class\n\nt:\ns:\n  f\n\n# Reference Files (Stable)\n\n{INCLUDED}{block('a.py')}"
    assert found[0] == marked(f"You are a coding agent.\n\n{shown}", "system")


def test_symbols_of_l0_without_a_legend_have_the_header_of_the_map() -> None:
    found = assembled(StructuredContext(symbols={"s": "s:"}), placed(L0=TierItems(symbols=("s",))))

    assert found[0] == marked(f"You are a coding agent.\n\n{MAP}s:", "system")


# L1 to L3


@pytest.mark.parametrize(("tier", "name"), [("L1", ""), ("L2", " (L2)"), ("L3", " (L3)")])
def test_a_tier_is_a_pair_with_its_own_header(tier: str, name: str) -> None:
    found = assembled(files("a.py", "b.py"), placed(**{tier: TierItems(files=("b.py", "a.py"))}))

    assert found[1:3] == [marked(f"# Reference Files{name}\n\n{INCLUDED}{block('b.py')}\n\n{block('a.py')}"), OK]


def test_symbols_stand_in_front_of_files_under_the_continued_header() -> None:
    context = StructuredContext(files=(a_file("a.py", "text of a.py"),), symbols={"s": "s:", "t": "t:"})
    found = assembled(context, placed(L2=TierItems(symbols=("s", "t"), files=("a.py",))))

    text = f"# Repository Structure (continued)\n\ns:\nt:\n\n# Reference Files (L2)\n\n{INCLUDED}{block('a.py')}"
    assert found[1:3] == [marked(text), OK]


def test_the_history_of_a_tier_follows_its_pair_and_carries_the_breakpoint() -> None:
    found = assembled(
        files("a.py"), placed(L0=TierItems(history=(0, 1)), L2=TierItems(files=("a.py",), history=(2, 3))), TALK
    )

    assert found[3:7] == [
        user(f"# Reference Files (L2)\n\n{INCLUDED}{block('a.py')}"), OK, marked("question 1"), ANSWERS[1]
    ]  # fmt: skip


def test_a_tier_of_history_alone_has_no_pair() -> None:
    found = assembled(StructuredContext(), placed(L0=TierItems(history=(0, 1)), L3=TierItems(history=(2, 3))), TALK)

    assert found[3:6] == [marked("question 1"), ANSWERS[1], QUESTIONS[2]]


def test_empty_tiers_are_skipped_and_counted() -> None:
    talk = conversation_of(TALK[0], TALK[-1])
    found = tiered(files("a.py"), talk, placed(L2=TierItems(files=("a.py",))))

    assert [b.name for b in found.blocks] == ["L0", "L2", "prompt"]
    assert found.empty_tiers == 2
    assert tiered(files("a.py"), conversation_of(user("q")), placed()).empty_tiers == 4


def test_untracked_symbols_stand_in_l3_and_there_is_no_other_map() -> None:
    context = StructuredContext(symbols={"s": "s:", "t": "t:"}, legend="c=class")
    found = assembled(context, placed(L1=TierItems(symbols=("t",))))

    assert found == [
        marked(f"You are a coding agent.\n\n{MAP}c=class", "system"),
        marked("# Repository Structure (continued)\n\nt:"),
        OK,
        marked("# Repository Structure (continued)\n\ns:"),
        OK,
        user("prompt"),
    ]


def test_untracked_files_and_history_are_active() -> None:
    found = assembled(files("a.py"), placed(L0=TierItems(history=(0, 1))), TALK)

    assert found[3:] == [user(f"# Working Files\n\nHere are the files:\n\n{block('a.py')}"), OK, *TALK[3:]]


# The active part


def test_the_tree_is_flat_sorted_and_counted() -> None:
    found = assembled(StructuredContext(tree=("src/main.py", "README.md", ".gitignore")))

    listing = "# File Tree (3 files)\n\n.gitignore\nREADME.md\nsrc/main.py"
    assert found[1:3] == [
        user(f"# Repository Files\n\nComplete list of files in the repository:\n\n{listing}"), OK
    ]  # fmt: skip


def test_without_a_repository_map_there_is_neither_tree_nor_map() -> None:
    """``use_repo_map: false`` leaves tree, symbols and legend empty; tracked symbols are then not shown either."""
    found = assembled(files("a.py"), placed(L1=TierItems(symbols=("s", "a.py"))))

    assert found == [
        marked("You are a coding agent.", "system"),
        user(f"# Working Files\n\nHere are the files:\n\n{block('a.py')}"),
        OK,
        user("prompt"),
    ]


def test_pages_have_their_own_acknowledgement_and_lines_between_them() -> None:
    pages = (FetchedPage("http://a", "one", "A"), FetchedPage("http://b", "two", "B", "f()"))
    found = assembled(StructuredContext(pages=pages))

    header = "# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\n"
    assert found[1:3] == [
        user(f"{header}A\nhttp://a\n\none\n---\nB\nhttp://b\n\ntwo\n\nf()"),
        assistant("Ok, I've reviewed the URL content."),
    ]


def test_a_review_stands_between_pages_and_files_with_diffs_of_selected_files() -> None:
    review = Review(
        "topic", ("1a", "2b"), "3 files, +4 -5", "1a one\n2b two", "a.py: old", {"a.py": "-x", "b.py": "-y"}
    )
    context = StructuredContext(
        files=(a_file("a.py", "text of a.py"), a_file("b.py", is_selected=False)),
        pages=(FetchedPage("u", "p", "t"),),
        review=review,
    )
    found = assembled(context)

    assert [m["content"] for m in found if m["role"] == "assistant"] == [
        "Ok, I've reviewed the URL content.",
        "Ok, I've reviewed the code changes.",
        "Ok.",
    ]
    assert found[3]["content"] == (
        "# Code Review Context\n\n"
        "## Summary\n\nBranch: topic\nCommits:\n- 1a\n- 2b\n3 files, +4 -5\n\n"
        "## Commit Log\n\n1a one\n2b two\n\n"
        "## Symbols Before the Change\n\na.py: old\n\n"
        "## Reverse Diffs of the Selected Files\n\n"
        "The files are shown as they are after the change. Each diff leads back to the text from before it:\n\n"
        "a.py\n```\n-x\n```"
    )


def test_active_history_is_native_and_only_what_no_tier_has() -> None:
    found = assembled(StructuredContext(), placed(L1=TierItems(history=(0, 1, 2, 3))), TALK)

    assert found[5:] == TALK[5:]
    assert len(found) == len(TALK)


def test_nothing_active_carries_a_breakpoint() -> None:
    context = StructuredContext(
        files=(a_file("a.py"),),
        symbols={"s": "s:"},
        tree=("a",),
        pages=(FetchedPage("u", "p", "t"),),
        review=Review("b"),
    )
    placement = placed(ACTIVE=TierItems(symbols=("s",), files=("a.py",), history=(0, 1)))

    assert b"cache_control" not in orjson.dumps(assembled(context, placement, TALK)[1:])


def test_the_prompt_is_a_string_without_images_and_a_list_with_them() -> None:
    assert assembled(StructuredContext())[-1] == user("prompt")
    assert assembled(StructuredContext(images=("data:,a", "data:,b")))[-1] == user(
        [
            {"type": "text", "text": "prompt"},
            {"type": "image_url", "image_url": {"url": "data:,a"}},
            {"type": "image_url", "image_url": {"url": "data:,b"}},
        ]
    )


def test_the_reminder_ends_the_prompt_after_a_blank_line() -> None:
    found = tiered(files("a.py"), conversation_of(*TALK), placed())

    assert orjson.loads(with_inset(found.messages[-1], Inset(after="Close every block."))) == user(
        "prompt\n\nClose every block."
    )


# Files


def test_files_are_fenced_without_a_language_and_parted_by_a_blank_line() -> None:
    context = StructuredContext(files=(a_file("src/a.py", "x = 1"), a_file("b.ts", "")))

    assert assembled(context)[1]["content"] == (
        "# Working Files\n\nHere are the files:\n\nsrc/a.py\n```\nx = 1\n```\n\nb.ts\n```\n\n```"
    )


def test_fences_grow_past_those_of_the_content() -> None:
    context = StructuredContext(files=(a_file("a.md", "```\n"),))

    assert assembled(context)[1]["content"].endswith("a.md\n````\n```\n\n````")


def test_what_cannot_be_read_is_skipped_and_counted_and_leaves_no_header() -> None:
    context = StructuredContext(files=(a_file("a.bin", None), a_file("b.bin", None)))
    placement = placed(L1=TierItems(files=("a.bin",)))
    found = tiered(context, conversation_of(TALK[0], TALK[-1]), placement)

    assert sent(found) == [marked("You are a coding agent.", "system"), user("prompt")]
    assert found.skipped == {"unreadable": 2}
    assert found.empty_tiers == 3


# Exclusions


@pytest.mark.parametrize("tier", list(Tier))
def test_a_file_in_a_tier_is_shown_there_and_nowhere_else(tier: Tier) -> None:
    context = StructuredContext(files=(a_file("a.py", "text of a.py"),), symbols={"a.py": "map of a.py"})
    whole = orjson.dumps(assembled(context, placed(**{tier.name: TierItems(files=("a.py",))})))

    assert whole.count(b"text of a.py") == 1
    assert b"map of a.py" not in whole
    assert (b"# Working Files" in whole) is (tier is Tier.ACTIVE)


@pytest.mark.parametrize("tier", list(Tier))
def test_symbols_of_a_selected_file_are_not_shown(tier: Tier) -> None:
    """Also where the tracker has the symbols in a tier and the file has only just been selected."""
    context = StructuredContext(files=(a_file("a.py", "text of a.py"),), symbols={"a.py": "map of a.py"})
    found = assembled(context, placed(**{tier.name: TierItems(symbols=("a.py",))}))

    assert found == assembled(files("a.py"))


@pytest.mark.parametrize("tier", list(Tier))
def test_symbols_in_a_tier_are_shown_there_and_nowhere_else(tier: Tier) -> None:
    context = StructuredContext(files=(a_file("a.py", is_selected=False),), symbols={"a.py": "map of a.py"})
    assembly = tiered(context, conversation_of(*TALK), placed(**{tier.name: TierItems(symbols=("a.py",))}))

    assert [t for t, item in items_of(assembly) if item.text == "map of a.py"] == [tier]
    assert assembly.body().count(b"map of a.py") == 1
    assert b"x = 1" not in assembly.body()


# Breakpoints


def test_there_are_never_more_than_four_breakpoints_and_none_of_the_clients() -> None:
    one = [{"type": "text", "text": "question", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    talk = [system(one), *(message for _ in range(4) for message in (user(one), assistant("a"))), user(one)]
    tiers = {f"L{n}": TierItems(history=(2 * n, 2 * n + 1)) for n in range(4)}
    found = orjson.dumps(assembled(StructuredContext(), placed(**tiers), talk))

    assert found.count(b'"cache_control":') == found.count(b'"cache_control":{"type":"ephemeral"}') == 4


def test_a_list_gets_the_breakpoint_on_its_last_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    found = assembled(StructuredContext(), placed(L0=TierItems(history=(0,))), [user(parts), user("prompt")])

    assert found[0] == user([parts[0], {**parts[1], "cache_control": MARK}])


def test_a_tier_below_the_minimum_has_no_breakpoint() -> None:
    placement = placed(unmarked=(Tier.L2,), L1=TierItems(files=("a.py",)), L2=TierItems(files=("b.py",)))
    found = assembled(files("a.py", "b.py"), placement)

    assert found[3] == user(f"# Reference Files (L2)\n\n{INCLUDED}{block('b.py')}")
    assert found[1] == marked(f"# Reference Files\n\n{INCLUDED}{block('a.py')}")


# The breakdown


def test_the_breakdown_lists_the_tiers_of_the_request() -> None:
    context = StructuredContext(files=(a_file("a.py"), a_file("b.py")), symbols={"s": "s:"}, legend="c", tree=("a",))
    placement = placed(L1=TierItems(files=("a.py",)), counts={"file:a.py": 10})
    assembly = tiered(context, conversation_of(*TALK), placement)
    found = breakdown(assembly, TokenCounter(len), Circumstances("m", empty_tiers_total=5), placement.counts)

    assert isinstance(found["blocks"], list)
    assert [(b["tier"], b["cached"], b["threshold"], [c["type"] for c in b["contents"]]) for b in found["blocks"]] == [
        ("L0", True, 12, ["system", "legend"]),
        ("L1", True, 9, ["files"]),
        ("L3", True, 3, ["symbols"]),
        ("active", False, 0, ["tree", "files", "history", "prompt"]),
    ]
    item = {"key": "file:a.py", "tokens": 19, "n": 10, "next_tier": "L0", "next_threshold": 12, "progress": 10 / 12}
    assert found["blocks"][1]["contents"][0]["items"] == [item]
    header = len("# Reference Files\n\nThese files are included for reference:\n\n") + len("Ok.")
    assert found["blocks"][1]["tokens"] == 19 + header
    assert found["cached_tokens"] == sum(b["tokens"] for b in found["blocks"][:3])
    assert (found["empty_tiers"], found["empty_tiers_session_total"]) == (1, 5)


# The table
