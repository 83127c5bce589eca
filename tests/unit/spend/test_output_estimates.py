"""What is learnt of deployments."""

from proxy.core.response.outcome import Outcome
from proxy.core.response.usage import Usage
from proxy.engine.exchange import Settlement
from proxy.spend.output_estimates import OutputEstimates
from tests.money import MODEL, exchange


def learn(
    output_estimates: OutputEstimates,
    reported: int,
    counted: int,
    output: int = 100,
    times: int = 1,
    estimated: bool = False,
) -> None:
    for _ in range(times):
        seen = exchange(settlement=Settlement(Usage(reported, output, estimated=estimated)))
        seen.counted_tokens = counted
        output_estimates.learn(seen)


def test_a_provider_is_assumed_to_count_half_as_much_again_until_it_is_known() -> None:
    output_estimates = OutputEstimates()
    assert output_estimates.factor(MODEL) == 1.5
    learn(output_estimates, 1100, 1000, times=49)
    assert output_estimates.factor(MODEL) == 1.5
    learn(output_estimates, 1100, 1000)
    assert 1.2 < output_estimates.factor(MODEL) < 1.3


def test_a_provider_that_counts_more_is_believed_at_once() -> None:
    output_estimates = OutputEstimates()
    learn(output_estimates, 2000, 1000)
    assert output_estimates.factor(MODEL) > 2.0
    learn(output_estimates, 1000, 1000, times=100)
    assert output_estimates.factor(MODEL) > 2.0


def test_short_prompts_and_estimates_teach_nothing_of_counts() -> None:
    output_estimates = OutputEstimates()
    learn(output_estimates, 400, 100, times=100)
    learn(output_estimates, 4000, 1000, times=100, estimated=True)
    assert output_estimates.factor(MODEL) == 1.5


def test_what_was_no_count_of_the_same_prompt_teaches_no_more_than_any_tokenizer_could() -> None:
    output_estimates = OutputEstimates()
    learn(output_estimates, 900_000, 1000)
    assert output_estimates.factor(MODEL) < 2.5


def test_answers_are_expected_to_be_as_long_as_former_answers() -> None:
    output_estimates = OutputEstimates()
    assert output_estimates.output_tokens(MODEL) == 500
    learn(output_estimates, 1, 1, output=20, times=200)
    assert output_estimates.output_tokens(MODEL) == 20


def test_of_several_calls_the_first_teaches_how_long_prompts_and_answers_are() -> None:
    output_estimates = OutputEstimates()
    seen = exchange(settlement=Settlement(Usage(2100, 1000)), usage=Usage(1000, 500))
    seen.counted_tokens = 1000
    seen.answer.further = (Outcome(usage=Usage(1100, 500)),)
    for _ in range(50):
        output_estimates.learn(seen)
    assert output_estimates.factor(MODEL) < 1.2
    assert output_estimates.output_tokens(MODEL) == 500
