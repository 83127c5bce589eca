"""The options that the commands which replay recorded sessions share."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from proxy.core.modes import Mode
from proxy.core.providers import PROFILES, CacheProfile, optimistic, pessimistic
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from proxy.replay.runner import Setting, with_minimum, with_short_life

POLICIES = ("economic", "classic")

_UNKNOWNS: Mapping[str, Callable[[CacheProfile], CacheProfile]] = MappingProxyType(
    {"default": lambda profile: profile, "pessimistic": pessimistic, "optimistic": optimistic}
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """How to replay."""
    parser.add_argument("--profile", choices=PROFILES, default="anthropic", help="whose cache rules hold (anthropic)")
    parser.add_argument(
        "--unknowns", choices=_UNKNOWNS, default="default", help="how rules that no source states turn out (default)"
    )
    parser.add_argument("--mode", choices=[mode.name.lower() for mode in Mode], default="tier", help="(tier)")
    parser.add_argument("--policy", choices=POLICIES, default="economic", help="how pieces are ordered (economic)")
    parser.add_argument("--min-tokens", type=_count, metavar="N", help="the shortest prefix that the provider caches")
    parser.add_argument("--short-life", action="store_true", help="leave the one-hour life out")
    parser.add_argument(
        "--hoisting",
        action="store_true",
        help="the upstream takes later system messages to the front, which the planner has to learn",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def setting(arguments: argparse.Namespace) -> Setting:
    """The setting that the options ask for."""
    profile = with_minimum(_UNKNOWNS[arguments.unknowns](PROFILES[arguments.profile]), arguments.min_tokens)
    profile = with_short_life(profile) if arguments.short_life else profile
    return Setting(
        profile=profile,
        served=replace(profile, hoists_system=True) if arguments.hoisting else None,
        encode=local_encode(),
        recognisers=recognisers(build_plugin_manager()),
        mode=Mode.parse(arguments.mode),
        policy=arguments.policy,
        is_strict=False,
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number
