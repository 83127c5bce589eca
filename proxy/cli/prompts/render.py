"""``stratiform prompts render``: what one request gets, with the prompts that it is made of."""

import argparse
import sys
from dataclasses import asdict

from rich.text import Text

from proxy.cli.output import Output, fail, plain_table, print_json, visible
from proxy.cli.prompts.contexts import add_contexts, read_context
from proxy.cli.prompts.setup import ANY, add_setup, setup_of
from proxy.cli.prompts.variants import Variant, terms_of
from proxy.cli.prompts.version import WHY, PromptVersion, Sizes, mistakes
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import PromptFailure
from proxy.core.prompts.terms import PromptTerms
from proxy.errors import ProxyError
from proxy.planning.tokenizers import local_encode


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--model", default=ANY, help="the model that the request names")
    parser.add_argument("--team", help="the team of the request's key (default: that of --key, else `default`)")
    parser.add_argument("--key", default="", metavar="KEY_ID", help="the id of the request's key")
    parser.add_argument("--persona", default="", help="the persona that the client chooses")
    parser.add_argument("--profile", default="", help="the capability profile that the client chooses")
    add_contexts(parser, "several are joined")
    add_setup(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what is composed; 0 where no prompt is left out by mistake."""
    setup = setup_of(arguments)
    version = PromptVersion(setup, setup.snapshot())
    team = arguments.team or setup.team_of(arguments.key)
    variant = Variant((arguments.model,), team, arguments.key, arguments.persona, arguments.profile)
    context = merged(*map(read_context, arguments.context))
    try:
        terms, composition = terms_of(setup, variant), version.composition(variant, context)
    except ProxyError as error:
        fail(error.message)
    except PromptFailure as error:
        fail(f"the request would be refused: {error}")
    report = _report(version.snapshot.version, variant, terms, composition)
    wrong = version.mistake(variant, context) if any(mistakes(composition)) else ""
    if arguments.json:
        print_json({**report, "mistake": wrong or None})
    else:
        _print(composition, report)
    for root in sorted(root for root, values in context.items() if values and root not in terms.allowed.context):
        print(
            f"note: a request may not bring '{root}' by this configuration; it is taken as configured", file=sys.stderr
        )
    if wrong:
        print(f"error: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def _report(version: str, variant: Variant, terms: PromptTerms, composition: Composition) -> dict[str, object]:
    encode = local_encode()
    return {
        "version": version,
        "variant": variant.view(),
        "persona": terms.persona or None,
        "profile": terms.profile or None,
        "system": composition.system,
        "before_user": composition.inset.before,
        "after_user": composition.inset.after,
        "tokens": asdict(Sizes.of(composition, encode)),
        "prompts": [
            {"id": part.id, "position": part.position.value, "tokens": encode(part.text)} for part in composition.parts
        ],
        "skipped": {name: {"reason": reason, "why": WHY[reason]} for name, reason in composition.skipped.items()},
    }


def _print(composition: Composition, report: dict[str, object]) -> None:
    output, tokens = Output(), report["tokens"]
    assert isinstance(tokens, dict)
    texts = (
        ("system", "in front of the client's system text", composition.system),
        ("before_user", "in front of the newest user message", composition.inset.before),
        ("after_user", "behind the newest user message", composition.inset.after),
    )
    for name, place, text in texts:
        if text:
            output.print(f"--- {place} ({tokens[name]:,} tokens)", style="bold")
            output.print(Text(visible(text)), soft_wrap=True)
    if composition.is_empty:
        output.print("nothing is composed", style="bold")
    table = plain_table(("prompt", "position", "tokens", "outcome"), numbers=("tokens",))
    parts, skipped = report["prompts"], report["skipped"]
    assert isinstance(parts, list)
    assert isinstance(skipped, dict)
    for part in parts:
        table.add_row(part["id"], part["position"], f"{part['tokens']:,}", "composed")
    for name, told in skipped.items():
        table.add_row(name, "", "", f"left out: {told['why']}")
    if table.row_count:
        output.print()
        output.print(table)
    output.print(f"version {report['version']}", style="dim")
