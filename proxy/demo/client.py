"""A client like any other: the real ``openai`` SDK, pointed at the proxy by its base URL."""

from collections.abc import Mapping
from types import MappingProxyType

from openai import AsyncOpenAI

from proxy.clock import TIME_HEADER
from proxy.core.response.usage import Usage, usage_of
from proxy.demo.sample import Request

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_TIMEOUT_S = 30.0


class SampleClient:
    """Sends one session. Each has a key of its own, so that the proxy and the provider keep them apart. ``headers`` go
    with every request."""

    def __init__(self, base_url: str, key: str, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._headers = headers
        self._openai = AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=_TIMEOUT_S)

    async def send(self, request: Request) -> Usage:
        """The usage that the answer reports. Raises openai.OpenAIError."""
        answer = await self._openai.chat.completions.create(
            **request.body, extra_headers={**self._headers, TIME_HEADER: f"{request.at:.3f}"}
        )
        report = answer.usage if not request.body.get("stream") else None
        if request.body.get("stream"):
            async for chunk in answer:
                report = chunk.usage or report
        usage = usage_of({"usage": report.model_dump()}) if report is not None else None
        if usage is None:
            raise ValueError("an answer came without usage")
        return usage

    async def aclose(self) -> None:
        """Close the connections."""
        await self._openai.close()
