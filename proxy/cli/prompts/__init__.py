"""``stratiform prompts``: shows the prompts of the registry.

Prompt files or a configuration come in; lists, composed texts, findings and differences go out. No command changes a
prompt. ``list`` and ``render`` stand here, ``lint`` and ``diff`` in modules of their own.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from proxy.cli.output import Output, fail, plain_table, print_result, visible
from proxy.cli.prompts import diff, lint
from proxy.cli.prompts.lint import condition_text
from proxy.cli.prompts.variants import (
    ANY,
    WHY,
    PromptVersion,
    Reach,
    Sizes,
    Variant,
    add_contexts,
    add_setup,
    mistakes,
    reach,
    read_context,
    setup_of,
    terms_of,
)
from proxy.core.prompts.assembler import in_order
from proxy.core.prompts.prompt import Composition, Prompt, PromptFailure, merged
from proxy.core.request.tokens import Encode
from proxy.errors import ProxyError
from proxy.planning.tokenizers import local_encode
from proxy.prompting.sources import Snapshot


def configure(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (add_arguments, act, summary) in _ACTIONS.items():
        action = choices.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
        add_arguments(action)
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))


def _list(arguments: argparse.Namespace) -> int:
    setup = setup_of(arguments)
    snapshot = setup.snapshot()
    found = reach(snapshot.prompts, setup)
    rows = [_listed(prompt, found, local_encode()) for prompt in in_order(snapshot.prompts)]
    print_result(arguments, {"version": snapshot.version, "prompts": rows}, lambda: _print_list(snapshot, rows))
    return 0


def _listed(prompt: Prompt, found: Reach, encode: Encode) -> dict[str, Any]:
    return {
        "id": prompt.id,
        "position": prompt.position.value,
        "priority": prompt.priority,
        "profile": prompt.profile or None,
        "conditions": [condition_text(condition) for condition in prompt.conditions],
        "variables": [variable.name for variable in prompt.variables],
        "template_tokens": encode(prompt.text),
        "used": prompt.id not in found.unused,
        "description": prompt.description,
        "origin": prompt.origin,
    }


def _print_list(snapshot: Snapshot, rows: Sequence[dict[str, Any]]) -> None:
    headings = ("position", "priority", "id", "profile", "conditions", "tokens", "used", "origin")
    cells = (
        (
            row["position"], str(row["priority"]), row["id"], row["profile"] or "-",
            ", ".join(row["conditions"]) or "-", f"{row['template_tokens']:,}", "yes" if row["used"] else "no",
            row["origin"],
        )
        for row in rows
    )  # fmt: skip
    output = Output()
    output.print(plain_table(headings, ("priority", "tokens"), cells))
    output.print(f"version {snapshot.version}; tokens are those of the templates as they are written", style="dim")


def _configure_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=ANY, help="the model that the request names")
    parser.add_argument("--team", help="the team of the request's key (default: that of --key, else `default`)")
    parser.add_argument("--key", default="", metavar="KEY_ID", help="the id of the request's key")
    parser.add_argument("--persona", default="", help="the persona that the client chooses")
    parser.add_argument("--profile", default="", help="the capability profile that the client chooses")
    add_contexts(parser, "several are joined")
    add_setup(parser)


def _render(arguments: argparse.Namespace) -> int:
    """Print the composed text. Returns 0 if no prompt is left out by mistake."""
    setup = setup_of(arguments)
    version, team = PromptVersion(setup, setup.snapshot()), arguments.team or setup.team_of(arguments.key)
    variant = Variant((arguments.model,), team, arguments.key, arguments.persona, arguments.profile)
    context = merged(*map(read_context, arguments.context))
    try:
        terms, composition = terms_of(setup, variant), version.composition(variant, context)
    except ProxyError as error:
        fail(error.message)
    except PromptFailure as error:
        fail(f"the request would be refused: {error}")
    encode = local_encode()
    sizes = Sizes.of(composition, encode)
    rows = [(part.id, part.position.value, encode(part.text)) for part in composition.parts]
    wrong = version.mistake(variant, context) if any(mistakes(composition)) else ""
    report = {
        "version": version.snapshot.version,
        "variant": variant.view(),
        "persona": terms.persona or None,
        "profile": terms.profile or None,
        "system": composition.system,
        "before_user": composition.inset.before,
        "after_user": composition.inset.after,
        "tokens": sizes,
        "prompts": [{"id": name, "position": position, "tokens": tokens} for name, position, tokens in rows],
        "skipped": {name: {"reason": reason, "why": WHY[reason]} for name, reason in composition.skipped.items()},
        "mistake": wrong or None,
    }
    print_result(arguments, report, lambda: _print_rendered(composition, sizes, rows, version.snapshot.version))
    for root in sorted(root for root, values in context.items() if values and root not in terms.allowed.context):
        print(
            f"note: a request may not bring '{root}' by this configuration; it is taken as configured", file=sys.stderr
        )
    if wrong:
        print(f"error: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def _print_rendered(composition: Composition, sizes: Sizes, rows: Sequence[tuple[str, str, int]], version: str) -> None:
    output = Output()
    texts = (
        (sizes.system, "in front of the client's system text", composition.system),
        (sizes.before_user, "in front of the newest user message", composition.inset.before),
        (sizes.after_user, "behind the newest user message", composition.inset.after),
    )
    for tokens, place, text in texts:
        if text:
            output.print(f"--- {place} ({tokens:,} tokens)", style="bold")
            output.print(Text(visible(text)), soft_wrap=True)
    if composition.is_empty:
        output.print("nothing is composed", style="bold")
    cells = [(name, position, f"{tokens:,}", "composed") for name, position, tokens in rows]
    cells += [(name, "", "", f"left out: {WHY[reason]}") for name, reason in composition.skipped.items()]
    if cells:
        output.print()
        output.print(plain_table(("prompt", "position", "tokens", "outcome"), ("tokens",), cells))
    output.print(f"version {version}", style="dim")


_ACTIONS: Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str]] = {
    "list": (add_setup, _list, "list the prompts in the order in which they are composed"),
    "render": (_configure_render, _render, "show what one request gets"),
    "lint": (lint.configure, lint.run, "find mistakes, prompts that are never composed, and what breaks caches"),
    "diff": (diff.configure, diff.run, "show what a change does to texts, tokens, cached prefixes and the bill"),
}
