from proxy.protocol.providers.hosted import provider_at
from tests.examples import for_every


@for_every(
    [
        ("api.openai.com", "openai"), ("eu.api.openai.com", "openai"), ("notapi.openai.com", ""),
        ("mine.openai.azure.com", "azure"), ("dashscope-intl.aliyuncs.com", "dashscope"),
        ("openrouter.ai", "openrouter"), ("localhost", ""), ("", ""),
    ]
)  # fmt: skip
def test_the_host_says_who_answers(host: str, provider: str) -> None:
    assert provider_at(host) == provider
