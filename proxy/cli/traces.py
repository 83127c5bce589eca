"""The common part of the commands that replay recorded sessions: their options, and their progress."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pluggy import PluginManager
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from proxy.app.factories import load_context_texts
from proxy.cli.output import add_json, number_within
from proxy.core.modes import Mode
from proxy.core.providers import PROFILES, CacheProfile, optimistic, pessimistic
from proxy.core.request.tokens import Encode, quick
from proxy.planning.context_assembler import ContextAssembler
from proxy.planning.context_sessions import AssemblyOptions
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers, symbol_indexer
from proxy.replay.runner import Setting
from proxy.replay.trace import Trace, read_trace, without_prompts

_UNKNOWNS: Mapping[str, Callable[[CacheProfile], CacheProfile]] = MappingProxyType(
    {"default": lambda profile: profile, "pessimistic": pessimistic, "optimistic": optimistic}
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default="anthropic",
        metavar="NAME",
        help="the provider whose cache rules hold (default: anthropic): " + ", ".join(PROFILES),
    )
    parser.add_argument(
        "--unknowns",
        choices=_UNKNOWNS,
        default="default",
        help="the value of rules that the provider does not document: the usual one, the worst one, or the best one",
    )
    parser.add_argument(
        "--mode", choices=[mode.name.lower() for mode in Mode], default="tier", help="the mode (default: tier)"
    )
    parser.add_argument(
        "--policy",
        choices=("economic", "classic"),
        default="economic",
        help="what decides the order of pieces: their price, or their stability (default: economic)",
    )
    parser.add_argument(
        "--min-tokens",
        type=number_within(int, 0),
        metavar="N",
        help="the shortest prefix that the provider caches, in tokens",
    )
    parser.add_argument("--short-life", action="store_true", help="do not use the one-hour life of cache entries")
    parser.add_argument(
        "--hoisting",
        action="store_true",
        help="simulate a provider that moves later system messages to the front; the planner has to learn that",
    )
    add_json(parser)


def setting(arguments: argparse.Namespace) -> Setting:
    profile = _UNKNOWNS[arguments.unknowns](PROFILES[arguments.profile])
    if arguments.min_tokens is not None:
        profile = replace(profile, min_tokens=arguments.min_tokens)
    if arguments.short_life:
        profile = replace(profile, long_life_s=0.0)
    manager, encode = build_plugin_manager(), local_encode()
    return Setting(
        profile=profile,
        served=replace(profile, hoists_system=True) if arguments.hoisting else None,
        encode=encode,
        recognisers=recognisers(manager),
        mode=Mode.parse(arguments.mode),
        policy=arguments.policy,
        assembler=assembler_maker(manager, encode, arguments.policy),
    )


def replayable(path: Path) -> Trace:
    """A recorded session, as far as it can be replayed. A message on the standard error tells what is left out. Raises
    TraceError."""
    trace, count = without_prompts(read_trace(path))
    if count:
        print(
            f"{trace.name}: {count} of {len(trace.steps)} requests have 'stratiform.prompts' or 'stratiform.window'. A"
            " replay composes no prompts, puts no parts into messages and fits nothing into a window: it leaves these"
            " members out, and the figures are those of the messages as they were recorded.",
            file=sys.stderr,
        )
    return trace


def assembler_maker(manager: PluginManager, encode: Encode, policy: str) -> Callable[[], ContextAssembler]:
    """A maker of assemblers that work as in the proxy by default. Each call gives an assembler with its own memory."""
    texts, indexer = load_context_texts(), symbol_indexer(manager)
    return lambda: ContextAssembler(texts, quick(encode), indexer, AssemblyOptions(policy))


@contextmanager
def progress(*columns: ProgressColumn) -> Iterator[Progress]:
    """A progress bar on the standard error while the block lasts, with these columns after it. There is no bar if the
    standard error is not a terminal."""
    shown = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not shown)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not shown,
    ) as bar:
        yield bar
