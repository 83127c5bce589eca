"""What is booked for a call of which no usage came."""

import pytest

from proxy.core.money.charges import Heard, Speeds, runs_on, unanswered
from proxy.core.money.prices import Price
from proxy.core.request.demand import Demand, Kind, Tool, Wants
from proxy.core.response.usage import Usage


@pytest.mark.parametrize(
    ("demand", "heard", "output"),
    [
        (Demand(), Heard(40, 0.0, 9.0), 40),
        (Demand(), Heard(40, 3.0, 9.0), 40 + 300),
        (Demand(answers=3), Heard(40, 3.0, 9.0), 40 + 900),
        (Demand(max_output_tokens=100), Heard(40, 3.0, 9.0), 100),
        (Demand(max_output_tokens=100, answers=2), Heard(40, 3.0, 9.0), 200),
        (Demand(max_output_tokens=500), Heard(0, 0.1, 0.1, runs_on=True), 500),
        (Demand(), Heard(0, 1e9, 1e9), 4000),
        (Demand(max_output_tokens=500, predicted_tokens=30, answers=2), Heard(0, 0.0, 0.1, runs_on=True), 1060),
        (Demand(max_output_tokens=10**15), Heard(0, 0.1, 0.1, runs_on=True), 200_000),
        (Demand(kind=Kind.PROMPT), Heard(7, 3.0, 3.0, runs_on=True), 0),
        (Demand(max_output_tokens=100), Heard(117, 3.0, 9.0), 417),
        (Demand(max_output_tokens=100), Heard(117, 1e9, 1e9), 4100),
    ],
)
def test_output_is_what_came_and_what_may_have_been_thought_up_to_the_limit(
    demand: Demand, heard: Heard, output: int
) -> None:
    usage, _ = unanswered(demand, 70, heard, 100.0, Price(1.0, 1.0, 1.0, 1.0, 1.0, max_output_tokens=4000))
    assert usage == Usage(70, output, estimated=True)


def test_a_model_that_passes_limits_may_have_thought_beyond_its_limit() -> None:
    price = Price(1.0, 1.0, 1.0, 1.0, 1.0, max_output_tokens=4000)
    for heard, output in ((Heard(0, 3.0, 3.0), 300), (Heard(0, 0.1, 0.1, runs_on=True), 4001)):
        usage, _ = unanswered(Demand(max_output_tokens=1), 70, heard, 100.0, price, passes_limits=True)
        assert usage.output == output


def test_without_any_limit_an_answer_is_as_long_as_the_longest_that_is_assumed() -> None:
    assert unanswered(Demand(), 1, Heard(0, 0.0, 0.0, runs_on=True), 100.0, None)[0].output == 8192


def test_a_tool_of_the_providers_was_called_once_a_second_and_no_oftener_than_allowed() -> None:
    demand = Demand(wants=Wants(calls=((Tool.SEARCH, 5), (Tool.CODE, 8))))
    usage, ran = unanswered(demand, 1000, Heard(0, 0.0, 2.5), 100.0, None)
    assert (ran.searches, ran.codes) == (3, 1)
    assert usage.prompt == 200_000 * 7, "what a program prints may fill the window, each time"
    searches = Demand(wants=Wants(calls=((Tool.SEARCH, 5),)))
    assert unanswered(searches, 1000, Heard(0, 0.0, 2.5), 100.0, None)[0].prompt == 1000 * 4 + 8000 * (1 + 2 + 3)
    assert unanswered(demand, 1000, Heard(0, 0.0, 99.0), 100.0, None)[1].searches == 5


def test_a_summary_that_may_have_been_made_is_booked() -> None:
    demand = Demand(max_output_tokens=10, wants=Wants(is_summarised=True))
    assert unanswered(demand, 1000, Heard(3, 0.0, 0.5), 100.0, None)[0] == Usage(2000, 3 + 8192, estimated=True)


def test_a_model_is_as_fast_as_it_was_seen_to_be_once_enough_was_seen() -> None:
    speeds = Speeds()
    assert speeds.tokens_per_s("m", "") < speeds.tokens_per_s("m", "groq") < speeds.tokens_per_s("m", "cerebras")
    for _ in range(19):
        speeds.learn("m", 1000, 8.0)
        speeds.learn("m", 10, 0.001)
    assert speeds.tokens_per_s("m", "") == 300, "short answers teach nothing"
    speeds.learn("m", 1000, 10.0)
    assert speeds.tokens_per_s("m", "") == 125 * 1.5
    assert speeds.tokens_per_s("other", "") == 300
    speeds.learn("m", 1000, 1.0)
    assert speeds.tokens_per_s("m", "") == 1500


def test_a_client_that_reads_slowly_makes_no_model_slow() -> None:
    speeds = Speeds()
    for _ in range(40):
        speeds.learn("m", 300, 300.0)
    assert speeds.tokens_per_s("m", "") == 100


def test_who_finishes_a_call_whose_client_has_left() -> None:
    assert runs_on("openai", is_stream=False)
    assert runs_on("gemini", is_stream=True)
    assert not runs_on("", is_stream=True)
    assert runs_on("", is_stream=True, is_background=True)
