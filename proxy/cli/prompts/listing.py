"""``stratiform prompts list``: the prompts of the registry, in the order in which they are composed."""

import argparse
from collections.abc import Sequence
from typing import Any

from proxy.cli.output import Output, plain_table, print_result
from proxy.cli.prompts.variants import Reach, add_setup, reach, setup_of
from proxy.core.prompts.assembler import in_order
from proxy.core.prompts.prompt import Condition, Prompt
from proxy.core.request.tokens import Encode
from proxy.planning.tokenizers import local_encode
from proxy.prompting.sources import Snapshot


def configure(parser: argparse.ArgumentParser) -> None:
    add_setup(parser)


def run(arguments: argparse.Namespace) -> int:
    setup = setup_of(arguments)
    snapshot = setup.snapshot()
    found = reach(snapshot.prompts, setup)
    rows = [_row(prompt, found, local_encode()) for prompt in in_order(snapshot.prompts)]
    print_result(arguments, {"version": snapshot.version, "prompts": rows}, lambda: _print(snapshot, rows))
    return 0


def condition_text(condition: Condition) -> str:
    """A condition in one line: "agent.debug eq true"."""
    if condition.operator in ("exists", "not_exists"):
        return f"{condition.field} {condition.operator}"
    return f"{condition.field} {condition.operator} {_value(condition.value)}"


def _value(value: object) -> str:
    names = {True: "true", False: "false", None: "null"}
    return names[value] if value is None or isinstance(value, bool) else repr(value)


def _row(prompt: Prompt, found: Reach, encode: Encode) -> dict[str, Any]:
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


def _print(snapshot: Snapshot, rows: Sequence[dict[str, Any]]) -> None:
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
