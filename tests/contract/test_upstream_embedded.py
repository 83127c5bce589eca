from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import orjson
import pytest

from proxy.models.deployment import Deployment, Transport
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded import EmbeddedUpstream, account_name
from tests.contract.upstream_contract import Subject, UpstreamContract, body_of


@asynccontextmanager
async def embedded(profile: str = "anthropic") -> AsyncIterator[Subject]:
    deployment = Deployment("stratum", "stratum", Transport.EMBEDDED, PROFILES[profile])
    upstream = EmbeddedUpstream(bytes_over_four)
    yield Subject(
        upstream=upstream,
        deployment=deployment,
        paced=replace(deployment, params={"pace_s": 30}),
        refusing={"messages": []},
    )
    await upstream.aclose()


class TestEmbedded(UpstreamContract):
    def principal(self) -> AbstractAsyncContextManager[Subject]:
        return embedded()

    @pytest.mark.parametrize("profile", sorted(PROFILES))
    def test_the_ledger_is_the_sum_of_the_reported_usage(self, profile: str) -> None:
        async def scenario(principal: Subject) -> None:
            principal = replace(principal, deployment=replace(principal.deployment, profile=PROFILES[profile]))
            prompt = output = 0
            for i in range(3):
                answer = await principal.upstream.open(principal.call(user=str(i)))
                usage = orjson.loads(await body_of(answer))["usage"]
                prompt, output = prompt + usage["prompt_tokens"], output + usage["completion_tokens"]
            assert isinstance(principal.upstream, EmbeddedUpstream)
            ledger = principal.upstream.ledgers[account_name("Bearer contract")]
            assert (ledger.requests, ledger.answered, ledger.cancelled) == (3, 3, 0)
            assert (ledger.prompt, ledger.output) == (prompt, output)

        self.run(scenario)
