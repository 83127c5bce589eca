"""What a deployment knows about itself."""

from proxy.models import Deployment, Transport
from proxy.protocol.providers import ANTHROPIC


def test_the_secrets_of_a_deployment() -> None:
    chosen = Deployment(
        "alias",
        "anthropic/claude",
        Transport.LITELLM,
        ANTHROPIC,
        base_url="https://me:the-password@host.example",
        api_key="sk-operator-0123",
        params={"aws_secret_access_key": "aws-secret", "api_version": "2024-10-21", "max_tokens": 100_000_000},
        headers=(("Authorization", "Bearer header-secret"), ("x-team", "blue-blue-blue")),
    )
    assert set(chosen.secrets) == {"sk-operator-0123", "aws-secret", "Bearer header-secret", "the-password"}
