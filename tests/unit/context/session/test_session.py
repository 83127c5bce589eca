"""The state of a conversation adds up what the provider reports, and knows about what it takes in memory."""

from proxy.context import MapChunks, Review
from proxy.context.placement import ContextTracker
from proxy.context.session import ContextSession
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.response.usage import Usage


def session() -> ContextSession:
    return ContextSession(ContextTracker(TokenCounter()))


def test_usage_is_added_up_and_the_last_one_is_kept() -> None:
    found = session()
    found.spent(Usage(100, 10, read=40, write_5m=50))
    found.spent(Usage(200, 20, read=150))

    assert found.last == Usage(200, 20, read=150)
    assert (found.total.prompt, found.total.output, found.total.read, found.total.write) == (300, 30, 190, 50)


def test_an_answer_without_a_report_adds_nothing() -> None:
    found = session()
    found.spent(Usage(100, 10))
    found.spent(None)

    assert (found.last, found.total) == (None, Usage(100, 10))


def test_a_review_and_the_paths_of_the_map_count_for_its_memory() -> None:
    found = session()
    empty = found.bytes
    found.review = Review(log="x" * 10_000)
    found.map = MapChunks().with_paths({f"{number}.py": 10 for number in range(100)})

    assert found.bytes > empty + 10_000 + 100 * 200
