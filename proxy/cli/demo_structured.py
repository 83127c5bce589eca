"""``stratiform demo structured``: coding sessions that follow a git history, as editor chats and as structured
context."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from plugins import symbol_index
from proxy.cli.demo_sessions import Scene, run_sessions, shown_table
from proxy.cli.output import fail, number_within
from proxy.demo.structured import (
    GOALS,
    PACKAGE,
    TURNS,
    Comparison,
    Form,
    GitError,
    History,
    busy,
    comparison,
    installed_files,
    package_source,
    quiet,
    read_history,
)
from proxy.demo.tally import FormTally, losses_of
from proxy.replay.totals import SYSTEM_LAST

NAME = "structured"
WORDS = "structured: coding sessions that follow a git history, as editor chats and as structured context"


def configure(parser: argparse.ArgumentParser) -> None:
    words = "with structured: follow the last commits of this git repository, not those of an installed package"
    parser.add_argument("--repository", type=Path, metavar="PATH", help=words)
    parser.add_argument(
        "--commits", type=number_within(int, 1, 500), help=f"with --repository: how many commits (default: {TURNS})"
    )


def run(arguments: argparse.Namespace, scene: Scene) -> int:
    """Send every session in every form, and show the results. Returns 0, or 1 if content was lost."""
    if not symbol_index.is_installed():
        fail("no symbol index: install the extra `symbols` (pip install 'stratiform[symbols]')")
    try:
        found = histories(arguments.repository, arguments.commits or TURNS)
    except (GitError, OSError, ValueError) as error:
        fail(str(error))
    compared = [comparison(history, scene.setting, scene.price) for history in found]
    return run_sessions(scene, compared, _table, _summary, _report)


def histories(repository: Path | None, commits: int) -> list[History]:
    """The last commits of a repository, or the quiet and the busy history of an installed package. Raises GitError,
    OSError, ValueError."""
    if repository is not None:
        return [read_history(repository, "repository", commits)]
    source, files = package_source(PACKAGE), installed_files(PACKAGE)
    return [quiet(source, files), busy(source, files)]


def _table(one: Comparison) -> Table:
    title = f"{one.history.name}: {len(one.history.commits)} commits, {one.file_count} files ({one.history.source})"
    table = shown_table(title, ("sent", "kB", "tokens", "cached", "USD", "share", "goal"))
    table.caption = "share: of the cost of the editor; kB: what the client has uploaded"
    table.caption_justify = "left"
    for form, tally in one.tallies.items():
        ratio, share = one.ratio(form), Text("" if form in GOALS else "1.000")
        if ratio is not None:
            share = Text(f"{ratio:.3f}", "green" if one.is_reached(form) else "red")
        table.add_row(
            form.value,
            f"{tally.requests}/{len(tally.sendings)}",
            f"{tally.uploaded // 1000:,}",
            f"{tally.total.prompt:,}",
            f"{tally.total.hit_rate:.0%}",
            f"{tally.usd:.4f}",
            share,
            f"{GOALS[form][1]:.1f}" if form in GOALS else "",
        )
    return table


def _summary(compared: Sequence[Comparison]) -> Iterator[str]:
    for one in compared:
        tally = one.tallies[Form.EDITOR_ALL]
        yield (
            f"{one.history.name}, editor, all files, for comparison: without a cache {tally.uncached_usd:.4f} USD, "
            f"markers on system + last message {tally.marked_usd:.4f} USD"
        )
        more = one.tallies[Form.SYMBOLS].usd - one.tallies[Form.FULL_SELECTED].usd
        yield f"{one.history.name}: the symbols of the other files cost {more:.4f} USD more than nothing of these files"
    yield "Who selects which file in which turn follows from the commits alone: this one, the last and the next one."


def _report(one: Comparison) -> dict[str, object]:
    return {
        "name": one.history.name,
        "source": one.history.source,
        "files": one.file_count,
        "turns": len(one.history.commits),
        "forms": [_form_report(one, form, tally) for form, tally in one.tallies.items()],
        "losses": losses_of(one.tallies),
    }


def _form_report(one: Comparison, form: Form, tally: FormTally) -> dict[str, object]:
    found: dict[str, object] = {
        "form": form.value,
        "requests": tally.requests,
        "uploaded_bytes": tally.uploaded,
        "prompt_tokens": tally.total.prompt,
        "hit_rate": tally.total.hit_rate,
        "usd": {NAME if form.is_structured else "transparent": tally.usd, "no caching": tally.uncached_usd},
    }
    if form in GOALS:
        found |= {"compared_with": GOALS[form][0].value, "ratio": one.ratio(form), "at_most": GOALS[form][1]}
        found["is_reached"] = one.is_reached(form)
    else:
        found["usd"] = {"transparent": tally.usd, SYSTEM_LAST: tally.marked_usd, "no caching": tally.uncached_usd}
    return found
