"""Reads the configuration.

LiteLLM's config.yaml with its ``stratiform`` section and the environment come in, once at the start and once for each
reload. Checked, frozen settings go out, or ``ConfigError``. This package never starts anything.
"""

from proxy.app.settings.config_file import NO_SHARED_STORE, Settings, key_digest, load, load_section, places, read
from proxy.app.settings.litellm_schema import ModelEntry, ModelInfo, Routing, weights_of
from proxy.app.settings.prompts import AllowedPrompts, PromptLevel
from proxy.app.settings.schema import MOST_WORKERS, Budget, Key, Limits, Stratiform, Team
from proxy.app.settings.unsupported import IGNORE_FLAG, Effect, Unused, unused_on_http
from proxy.kit.messages import ConfigError, Environment, Mistakes, export, nearest

__all__ = [
    "IGNORE_FLAG",
    "MOST_WORKERS",
    "NO_SHARED_STORE",
    "AllowedPrompts",
    "Budget",
    "ConfigError",
    "Effect",
    "Environment",
    "Key",
    "Limits",
    "Mistakes",
    "ModelEntry",
    "ModelInfo",
    "PromptLevel",
    "Routing",
    "Settings",
    "Stratiform",
    "Team",
    "Unused",
    "export",
    "key_digest",
    "load",
    "load_section",
    "nearest",
    "places",
    "read",
    "unused_on_http",
    "weights_of",
]
