"""What becomes of the messages of a request with its parts, within a budget."""

from proxy.kit.modes import Edit
from proxy.prompts.window import Capability, CapabilityProfile, PartCaps, VirtualFile, WindowParts
from proxy.prompts.window.fitting import Terms, fitted_messages
from tests.growth import assert_linear
from tests.talk import as_parts, assistant, calling, result, system, user
from tests.windows import CHAT, TEXTS, Body, fit, sent, text_of, transcript_of, unpaired

RULES = system(text_of(96, "rules"))
LENIENT = CapabilityProfile("c", Capability.COMPLETION, caps=PartCaps(), may_shorten_system=True)


def loop(groups: int, tokens: int = 100) -> list[Body]:
    """A tool loop behind one user message."""
    found = [user("the task")]
    for number in range(groups):
        found += [calling(f"c{number}"), result(f"c{number}", text_of(tokens, f"r{number}"))]
    return found


def test_results_in_users_messages_stay_with_their_calls_and_behind_the_question() -> None:
    for budget in range(150, 1_200, 50):
        talk = as_parts(*loop(10))
        found = sent(talk, fit(talk, budget))
        assert found[0] == user("the task")
        assert not unpaired(found)


def test_a_request_that_fits_and_names_no_parts_is_not_written_anew() -> None:
    found = fit([RULES, user("q")], 1_000)
    assert (found.messages, found.edits, found.excess_tokens) == (None, {}, 0)
    assert found.sizes == {"system": 100, "newest": 5, "prompt": 105}


def test_what_the_operator_adds_counts() -> None:
    messages = [RULES, user(text_of(96)), assistant(text_of(96)), user("q")]
    assert fit(messages, 310, extra_tokens=0).edits == {}
    found = fit(messages, 310, extra_tokens=50)
    assert found.edits == {Edit.WINDOW_TRIMMED: 2}
    assert found.sizes["extra"] == 50


def test_a_tool_loop_that_outgrows_the_window_loses_its_oldest_groups_and_keeps_its_task() -> None:
    talk = [user("before"), assistant("done"), *loop(20)]
    out = sent(talk, fit(talk, 1_500))
    assert out[0] == user("the task")
    assert out[1:] == talk[-len(out) + 1 :]
    assert out[1]["role"] == "assistant"
    assert 8 < len(out) < len(talk) - 3


def test_a_newest_group_that_does_not_fit_makes_the_request_too_long() -> None:
    talk = [*loop(2), calling("big"), result("big", text_of(2_000))]
    found = fit(talk, 1_500)
    assert found.messages is None
    assert found.excess_tokens > found.sizes["prompt"] - 1_500 > 0


def test_the_parts_stand_in_front_of_the_newest_text_in_their_order() -> None:
    parts = WindowParts(instruction="i", selection="s", prefix="p", suffix="x")
    messages = [user("before"), assistant("a"), user("now"), calling("1"), result("1", "r")]
    out = sent(messages, fit(messages, 1_000, parts))
    assert out[2]["content"] == ("Text before:\np\n\nSelected text:\ns\n\nText after:\nx\n\nInstruction:\ni\n\nnow")
    assert [*out[:2], *out[3:]] == [*messages[:2], *messages[3:]]


def test_blank_parts_say_nothing() -> None:
    assert fit([user("q")], 1_000, WindowParts(prefix="", suffix=" \n", summary="")).messages is None


def test_parts_without_a_user_message_become_one() -> None:
    out = sent([RULES], fit([RULES], 1_000, WindowParts(prefix="p")))
    assert out == [RULES, user("Text before:\np")]


def test_each_part_that_is_shortened_or_left_out_counts_once() -> None:
    files = tuple(VirtualFile(f"f{n}", text_of(100)) for n in range(3))
    parts = WindowParts(prefix=text_of(300), suffix=text_of(300), virtual_files=files)
    found = fit([user("q")], 320, parts, LENIENT)
    assert found.edits == {Edit.WINDOW_SHORTENED: 2 + 1}
    assert found.sizes["prompt"] <= 320


def test_the_conversation_goes_before_the_summary_and_the_summary_before_the_system_text() -> None:
    messages = [RULES, user(text_of(96)), assistant(text_of(96)), user("q")]
    parts = WindowParts(summary=text_of(128, "summary"))
    kept = []
    for budget in (600, 300, 200, 120, 100):
        out = sent(messages, fit(messages, budget, parts, LENIENT))
        summary = next((len(one["content"]) for one in out if "summary" in one["content"]), 0)
        kept.append((len(out), summary, out[0] == RULES))
    assert kept == [(6, 530, True), (4, 530, True), (4, 274, True), (2, 0, True), (2, 0, False)]


def test_a_conversation_that_fits_without_the_suffix_is_not_trimmed_for_it() -> None:
    messages = [user(text_of(96)), assistant(text_of(96)), user("q")]
    # It has 205 tokens; the room is no multiple of the step to which it is rounded where something must go.
    found = fit(messages, 206, WindowParts(suffix=text_of(100)))
    assert found.edits == {Edit.WINDOW_SHORTENED: 1}
    assert sent(messages, found) == messages
    assert fit(messages, 206).edits == {}


def test_the_time_is_linear_in_the_messages() -> None:
    def make(count: int) -> list[Body]:
        return [turn for n in range(count // 2) for turn in (user(f"q{n}"), assistant(f"a{n}"))]

    read = {size: transcript_of(make(size)) for size in (1_250, 5_000)}
    terms = Terms(CHAT, 3_000, {"tools": 0}, TEXTS, len)
    assert_linear(lambda messages: fitted_messages(read[len(messages)], WindowParts(), terms), make, 1_250)
