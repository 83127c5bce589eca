"""A client like any other: the real ``openai`` SDK, pointed at the proxy by its base URL."""

from collections.abc import AsyncIterator, Iterable, Mapping

from openai import AsyncOpenAI

from proxy.clock import TIME_HEADER
from proxy.core.response.usage import Usage, usage_of
from proxy.demo.sample import Request

_TIMEOUT_S = 30.0


async def usages(
    base_url: str, key: str, requests: Iterable[Request], headers: Mapping[str, str]
) -> AsyncIterator[Usage]:
    """Send one session, and yield the usage that each answer reports. Each session has its own key, so that the proxy
    and the provider keep the sessions apart. ``headers`` go with every request. Raises openai.OpenAIError."""
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=_TIMEOUT_S) as client:
        for request in requests:
            timed = {**headers, TIME_HEADER: f"{request.at:.3f}"}
            answer = await client.chat.completions.create(**request.body, extra_headers=timed)
            report = answer.usage if not request.body.get("stream") else None
            if request.body.get("stream"):
                async for chunk in answer:
                    report = chunk.usage or report
            usage = usage_of({"usage": report.model_dump()}) if report is not None else None
            if usage is None:
                raise ValueError("an answer came without usage")
            yield usage
