"""What is the operator's own serves no client who brings a key along."""

from proxy.core.providers import NONE
from proxy.engine.target import without_credentials
from proxy.ports import Deployment, Transport


def test_keys_and_what_could_stand_for_one_are_gone() -> None:
    deployment = Deployment(
        "m", "m", Transport.LITELLM, NONE, base_url="https://host/v1", api_key="sk-own",
        headers=[("authorization", "Bearer x"), ("x-api-key", "k"), ("cf-aig-authorization", "t"), ("cookie", "c"),
                 ("openai-organization", "org"), ("http-referer", "https://us"), ("anthropic-version", "2023-06-01")],
        params={"aws_secret_access_key": "a", "vertex_credentials": "v", "azure_ad_token": "t", "aws_role_name": "r",
                "api_version": "2026", "temperature": 0.5, "custom_llm_provider": "anthropic", "num_ctx": 1},
    )  # fmt: skip
    bare = without_credentials(deployment)
    assert bare.api_key is None
    assert [name for name, _ in bare.headers] == ["http-referer", "anthropic-version"]
    assert set(bare.params) == {"api_version", "temperature", "custom_llm_provider", "num_ctx"}
    assert (bare.name, bare.base_url, bare.transport) == ("m", "https://host/v1", Transport.LITELLM)
