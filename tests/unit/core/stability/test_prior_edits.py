from proxy.core.stability.prior_edits import told_rate
from proxy.core.stability.rates import FIRST_RATE
from tests.fidelity.chats import File
from tests.talk import Body, assistant, shown, system, user, view_of

PARSER, WRITER = File("src/parser.py", "x = 1\n"), File("src/writer.py", "y = 1\n")
EDITS = "Here is the change.\n\nsrc/parser.py\n```\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```\nDone."


def rates(*history: Body) -> list[float]:
    recognised = view_of(system("You are kind."), *history, *shown(PARSER, WRITER), user("Next."))
    return [told_rate(recognised, item.key) for item in recognised.items()]


def test_without_a_history_nothing_is_known() -> None:
    assert rates() == [FIRST_RATE, FIRST_RATE]


def test_a_file_that_the_answers_name_was_edited() -> None:
    parser, writer = rates(user("one"), assistant(EDITS), user("two"), assistant(EDITS))
    assert parser > 0.5 > FIRST_RATE > writer


def test_later_answers_say_more() -> None:
    other = EDITS.replace("parser", "lexer")
    early, _ = rates(user("one"), assistant(EDITS), user("two"), assistant(other))
    late, _ = rates(user("one"), assistant(other), user("two"), assistant(EDITS))
    assert late > early


def test_an_acknowledgement_is_no_answer() -> None:
    assert rates(user("I committed src/parser.py"), assistant("Ok, src/parser.py.")) == [FIRST_RATE, FIRST_RATE]


def test_a_path_is_a_word_of_its_own() -> None:
    parser, _ = rates(user("one"), assistant(EDITS.replace("src/parser.py", "src/parser.pyc")))
    assert parser < FIRST_RATE
