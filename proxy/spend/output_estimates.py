"""What deployments usually do: how long their answers are, and by how much their token counts exceed ours.

It is learnt from what providers report and kept in memory, so that it begins anew with the process.
"""

from dataclasses import dataclass

from proxy.core.lru import LastUsed
from proxy.engine.exchange import Exchange
from proxy.ports import Deployment

_MOST_DEPLOYMENTS = 1000
_OUTPUT_TOKENS = 500.0
_OUTPUT_WEIGHT = 0.05

# Until enough was seen of a provider, it is assumed to count up to 1.5 times as many tokens as we do: Claude's
# tokenizer counts a fifth to a third more tokens in code than the tokenizer that we use. Later, a margin is added to
# the most seen.
_FACTOR = 1.5
_MARGIN = 1.15
_SEEN = 50
# No tokenizer of a language model of today counts more for ordinary text: what does was another prompt.
_MOST = 2.1
# Below this length the provider's template outweighs the text.
_LEAST_TOKENS = 500


@dataclass(slots=True)
class _Learnt:
    output_tokens: float = _OUTPUT_TOKENS
    highest: float = 1.0
    seen: int = 0
    tier: str = ""


class OutputEstimates:
    """What was learnt, by deployment."""

    def __init__(self) -> None:
        self._known: LastUsed[str, _Learnt] = LastUsed(_MOST_DEPLOYMENTS)

    def factor(self, deployment: Deployment) -> float:
        """By how much the provider's count of a prompt may pass ours."""
        habit = self._of(deployment)
        learnt = habit.highest * _MARGIN
        return learnt if habit.seen >= _SEEN else max(learnt, _FACTOR)

    def output_tokens(self, deployment: Deployment) -> int:
        """How long an answer probably is."""
        return round(self._of(deployment).output_tokens)

    def tier(self, deployment: Deployment) -> str:
        """The service tier of requests that name none, as the provider reported it last."""
        return self._of(deployment).tier

    def _of(self, deployment: Deployment) -> _Learnt:
        return self._known.get(deployment.name) or _Learnt()

    def learn(self, exchange: Exchange) -> None:
        """An exchange has ended."""
        usage, deployment = exchange.billed_usage, exchange.deployment
        if exchange.answer.further:
            # Neither is the sum of several prompts the length of one, nor that of several answers.
            usage = exchange.answer.outcome.usage
        if usage is None or usage.estimated or deployment is None:
            return
        habit = self._of(deployment)
        self._known.put(deployment.name, habit)
        if not exchange.requested.demand.wants.tier:
            habit.tier = exchange.answer.outcome.reported.tier
        habit.output_tokens += _OUTPUT_WEIGHT * (usage.output - habit.output_tokens)
        counted = exchange.counted_tokens
        if counted >= _LEAST_TOKENS:
            habit.seen += 1
            habit.highest = max(habit.highest, min(_MOST, usage.prompt / counted))
