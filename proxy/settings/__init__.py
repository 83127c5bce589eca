"""Configuration: LiteLLM's config.yaml plus a ``stratiform`` section, read and checked once, at start."""

from proxy.settings.config_file import Settings, load, unused_on_http
from proxy.settings.environment import Environment, export
from proxy.settings.messages import ConfigError
from proxy.settings.schema import LiteLLMParams, ModelEntry, ModelInfo, Stratiform, Team

__all__ = [
    "ConfigError",
    "Environment",
    "LiteLLMParams",
    "ModelEntry",
    "ModelInfo",
    "Settings",
    "Stratiform",
    "Team",
    "export",
    "load",
    "unused_on_http",
]
