"""``stratiform doctor``: why caches missed in logs, or at a running proxy, what it costs, and what would help.

The report consists of values and of the sentences in it; it holds no text of a prompt. ``examine`` reads log files.
``report_of`` makes the report: ``--json`` prints its values, and the text and the page show them. ``advice`` makes a
sentence for each culprit: what it is, what it costs, and what a developer can do. ``figures`` are those of a client,
written for people. ``page`` is the report as one HTML page (``page.html``).
"""

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType

from rich.progress import DownloadColumn, TimeRemainingColumn

from proxy.cli import Output, add_json, fail, number_within, plain_table, print_result, write_file
from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.errors import NotFound
from proxy.kit.messages import visible
from proxy.kit.modes import Mode
from proxy.kit.value import dataclass, replace
from proxy.lab.doctor import (
    UNTOLD_CULPRIT,
    CacheRules,
    CallIntake,
    Culprit,
    DiagnosedClient,
    Entries,
    Loss,
    Runs,
    count_entry,
    diagnose_all,
    mode_runs,
    name_pieces,
)
from proxy.lab.doctor.reader import Progress, read_logs
from proxy.lab.doctor.records import LoggedCall, MissingPart, Problem
from proxy.lab.replay import Setting, counted_once
from proxy.lab.replay.command import assembler_maker, progress
from proxy.models.deployments import load_price_map
from proxy.planner.diagnose import CONTENT, PARAMETER
from proxy.planner.record import IMAGES, SYSTEM, TOOL, TURN, BreakKind
from proxy.planner.shadow import Deviation
from proxy.protocol.providers import PROFILES
from proxy.protocol.request.tokens import bytes_over_four, quick
from proxy.protocol.wire.json_body import printable

# Characters that a terminal would obey instead of showing them.
_SIGNS: Mapping[str, str] = MappingProxyType(
    {"time": "is a clock", "date": "is a date", "random": "is a random id", "counter": "is a counter"}
)
_BEHIND = "put it behind the last user message"
_NOT_LOGGED = "less was read than the request before has left, and the log does not hold the prompts that would say why"
# For each kind: what has happened, and what helps. For a system text, other advice may apply.
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        BreakKind.CHANGED: ("changes", "append what is new, and leave earlier turns as they were"),
        BreakKind.APPEARED: ("appears in front of what was sent before", "append it behind the last turn"),
        BreakKind.DISAPPEARED: ("disappears", "leave earlier turns where they are, or remove many of them at once"),
        BreakKind.REORDERED: ("changes its place", "keep the order of the first request, and append what is new"),
        BreakKind.TOOLS: (
            "changes in the list of tools", "send the same tools in the same order in every request",
        ),
        BreakKind.PARAMETERS: ("changes within conversations", "keep it the same for a whole conversation"),
        BreakKind.MODEL_SWITCHED: (
            "takes over conversations of another model",
            "each model has a cache of its own: switch where a conversation begins",
        ),
        BreakKind.ROUTE_SWITCHED: (
            "takes over conversations of another deployment", "keep a conversation at one deployment",
        ),
        BreakKind.COMPACTED: ("is shortened within conversations", "shorten rarely, and much at a time"),
        BreakKind.BELOW_MINIMUM: ("prompts are shorter than the provider stores", "nothing is lost by it"),
        Deviation.EXPIRED: (
            "entries of the cache expire in pauses",
            "ask for the longer life where pauses are usual, or let keep_alive refresh the prefix",
        ),
        Deviation.EVICTED: ("the provider drops entries before their life is over", ""),
        Deviation.PARTITIONED: ("requests reach machines that do not hold their prefix", ""),
        Deviation.OUT_OF_REACH: (
            "markers stand too far behind the last entry", "set a marker in between, or let mode mark do it",
        ),
        Deviation.MARKERS_IGNORED: (
            "the provider ignores the markers", "find out whether a gateway on the way removes cache_control",
        ),
        Deviation.HIGHER_MINIMUM: (
            "the provider stores no prefix as short as these", "set the markers behind a longer prefix",
        ),
        Deviation.LIFE_DOWNGRADED: (
            "entries that were paid for an hour live five minutes",
            "find out whether a gateway on the way removes the ttl",
        ),
    }
)  # fmt: skip
_SYSTEM_FIXES: Mapping[str, str] = MappingProxyType(
    {
        BreakKind.CHANGED: _BEHIND,
        BreakKind.APPEARED: f"send it from the first request on, or {_BEHIND}",
        BreakKind.DISAPPEARED: f"send it in every request, or {_BEHIND}",
    }
)
_NO_KEY = "keep a conversation at one account, one region and one gateway"


def usd(amount: float) -> str:
    """An amount in USD, written for people."""
    if amount < 0:
        return f"-{usd(-amount)}"
    if amount >= 100:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"


def place_of(culprit: Culprit) -> str:
    """The culprit's name for people; empty if it is not a piece of the request."""
    name, kind = culprit.piece, culprit.piece_kind
    if kind == SYSTEM:
        return f"line {culprit.line} of your system text" if culprit.line else "your system text"
    if kind == TURN:
        return f"an earlier {'tool result' if name == TOOL else name + ' message'}"
    if (kind, name) == (PARAMETER, IMAGES):
        return "whether any image is shown"
    return f"the {kind} {name.removeprefix(kind + ':')}" if kind else ""


def happened(culprit: Culprit) -> str:
    """A clause that says what breaks the cache."""
    place, (what, _) = place_of(culprit), _KINDS.get(culprit.kind, (culprit.kind, ""))
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        return _NOT_LOGGED
    if culprit.kind not in tuple(BreakKind) or culprit.kind == BreakKind.BELOW_MINIMUM:
        return f"{what}, and {place} differs there" if place else what
    is_sign = culprit.kind == BreakKind.CHANGED and culprit.sign in _SIGNS
    return f"{place or 'a piece of the prompt'} {_SIGNS[culprit.sign] if is_sign else what}"


def advice(culprit: Culprit, cost: str, tier_saves: str, keys: Collection[str]) -> str:
    """The sentence. ``cost`` is the culprit's cost, and ``tier_saves`` is the part of it that mode tier would save.
    Both are amounts written for people; ``tier_saves`` is empty if mode tier saves nothing, or if the saving is not
    known. ``keys`` as in ``Client``."""
    fix = _KINDS.get(culprit.kind, ("", ""))[1]
    if culprit.piece_kind in CONTENT and culprit.kind in _SYSTEM_FIXES:
        fix = "send it behind what stays the same"
    if culprit.piece_kind == SYSTEM:
        fix = _SYSTEM_FIXES.get(culprit.kind, fix)
    if culprit.kind in (Deviation.EVICTED, Deviation.PARTITIONED):
        named = " or ".join(sorted(filter(None, keys)))
        fix = f"send requests of one conversation with the same {named}" if named and "" not in keys else _NO_KEY
    if culprit.piece == UNTOLD_CULPRIT and not culprit.piece_kind:
        fix = "log the requests, or set stratiform.fingerprints"
    if tier_saves:
        fix += f", or let mode tier do it: {tier_saves} saved"
    return f"{happened(culprit)}: {cost}; {fix}"


def problem_text(problem: Problem) -> str:
    """One sentence, with the line number if there is one."""
    where = f"{visible(problem.file)}:{problem.line}: the line" if problem.line else f"{visible(problem.file)}:"
    more = f" ({problem.count:,} such lines)" if problem.count > 1 else ""
    return f"{where} {problem.text}{more}"


FORM = "stratiform-doctor/1"
MONTH_HOURS = 30 * 24
# A shorter log is taken as one hour: a single minute says little of a month.
LEAST_HOURS = 1.0
_MOST_CULPRITS = 100
_CHAT_ONLY = "the proxy plans chat completions; it forwards the requests of other forms as they are"
_NO_BODIES = "the log holds no whole requests that could be replayed"
_NO_PRICE = "are of a model whose price is not known: they count in tokens, not in USD"

_GAPS: Mapping[MissingPart, str] = {
    MissingPart.NO_REQUEST: "have no request: what broke the cache is told by usage and time alone",
    MissingPart.REDACTED: "are redacted: what broke the cache is told by usage and time alone",
    MissingPart.CUT: "are cut: their sizes are estimates, and they are not replayed",
    MissingPart.NO_USAGE: "have no usage: costs and losses follow the rules of the provider's cache, not its reports",
    MissingPart.NO_TIME: "have no time: what a month costs, and what has expired, is not known",
    MissingPart.NO_PROMPT_START: "go on from a conversation that the provider keeps: its answers are not compared",
}


@dataclass(frozen=True, slots=True)
class CulpritReport(Culprit):
    """One culprit. ``usd_month`` is None if the log tells no times or the model has no price. ``tier_saves_month`` is
    the part of it that mode tier would save. ``line`` counts from 1; 0: no line."""

    breaks: int
    lost_tokens: int
    usd: float
    usd_month: float | None
    tier_saves_month: float | None
    advice: str


@dataclass(frozen=True, slots=True)
class ModeReport:
    """The cost of a mode, as a share of the cost of passthrough. ``saved_usd_month`` is the saving against
    passthrough."""

    mode: str
    cost_share: float
    hit_ratio: float
    saved_usd_month: float | None
    refused: int


@dataclass(frozen=True, slots=True)
class ClientReport:
    """One client.

    ``hit_ratio`` is read tokens / prompt tokens, and ``context_written`` is the tokens that were not read / the largest
    prompt of each session (1.00 is ideal). Both are None if no usage is known. ``hours`` is the length of the log, and
    ``usd`` is the cost of the prompts whose usage is known. The modes were tried on ``replayed`` of ``calls``;
    ``modes_untold`` says why there are no modes. ``gaps`` are sentences.
    """

    client: str
    calls: int
    sessions: int
    models: Sequence[str]
    hours: float | None
    usd: float
    usd_month: float | None
    hit_ratio: float | None
    context_written: float | None
    lost_usd: float
    lost_usd_month: float | None
    waste_usd_month: float | None
    cause_agreement: float | None
    causes_compared: int
    culprits: Sequence[CulpritReport]
    other_culprits: int
    modes: Sequence[ModeReport]
    modes_untold: str
    replayed: int
    gaps: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. The client that loses most comes first. ``lost_usd_month`` and ``waste_usd_month`` are None if
    no client has such an amount."""

    form: str
    files: int
    calls: int
    clients: Sequence[ClientReport]
    lost_usd_month: float | None
    waste_usd_month: float | None
    problems: Sequence[Problem]


def report_of(
    clients: Mapping[str, DiagnosedClient], runs: Mapping[str, Runs], problems: Sequence[Problem], files: int
) -> Report:
    """The report."""
    shown = [_client(name, client, runs.get(name, {})) for name, client in clients.items()]
    shown.sort(key=lambda each: (-(each.lost_usd_month or each.lost_usd), -each.calls))
    return Report(
        form=FORM,
        files=files,
        calls=sum(each.calls for each in shown),
        clients=shown,
        lost_usd_month=_sum([each.lost_usd_month for each in shown]),
        waste_usd_month=_sum([each.waste_usd_month for each in shown]),
        problems=problems,
    )


def _sum(amounts: Sequence[float | None]) -> float | None:
    told = [amount for amount in amounts if amount is not None]
    return sum(told) if told else None


def _client(name: str, client: DiagnosedClient, runs: Runs) -> ClientReport:
    hours = None if client.last is None else client.span_s / 3600
    # An amount of the log is multiplied by this factor to get the amount of a month at the same rate.
    is_known = hours is not None and client.unpriced < client.calls
    monthly = MONTH_HOURS / max(LEAST_HOURS, hours or 0.0) if is_known else None
    losses = sorted(client.losses.items(), key=lambda item: (-item[1].usd, -item[1].lost))
    lost, usage = sum(loss.usd for _, loss in losses), client.usage
    modes = _modes(client, runs, monthly)
    tier = next((mode.saved_usd_month for mode in modes if mode.mode == Mode.TIER.name.lower()), None)
    # A mode may save more than the losses (by markers where there were none). That part belongs to no culprit.
    share = min(1.0, max(0.0, tier) / (lost * monthly)) if tier is not None and monthly and lost else None
    of = f"of {client.calls:,} calls"
    gaps = [f"{count:,} {of} {_GAPS[gap]}" for gap, count in sorted(client.gaps.items())]
    return ClientReport(
        client=name,
        calls=client.calls,
        sessions=client.sessions,
        models=[model for model, _ in client.models.most_common()],
        hours=hours,
        usd=client.usd,
        usd_month=client.usd * client.calls / client.told * monthly if monthly and client.told else None,
        hit_ratio=usage.read / usage.prompt if usage.prompt else None,
        context_written=(usage.prompt - usage.read) / client.largest if client.largest else None,
        lost_usd=lost,
        lost_usd_month=lost * monthly if monthly else None,
        waste_usd_month=sum(loss.usd for each, loss in losses if each.is_waste) * monthly if monthly else None,
        cause_agreement=client.agreed / client.compared if client.compared else None,
        causes_compared=client.compared,
        culprits=[_culprit(client, each, loss, monthly, share) for each, loss in losses[:_MOST_CULPRITS]],
        other_culprits=max(0, len(losses) - _MOST_CULPRITS),
        modes=modes,
        modes_untold="" if modes else client.modes_untold or (_NO_BODIES if client.chats else _CHAT_ONLY),
        replayed=len(client.bodies),
        gaps=[*client.notes, *gaps, *([f"{client.unpriced:,} {of} {_NO_PRICE}"] if client.unpriced else [])],
    )


def _modes(client: DiagnosedClient, runs: Runs, monthly: float | None) -> list[ModeReport]:
    plain = {mode: sum(total.cost(held.profile) for total, held in some) for mode, some in runs.items()}
    own = plain.get(Mode.PASSTHROUGH)
    if not own:
        return []
    cost_usd = {
        mode: sum(total.cost(held.profile) * held.price.input for total, held in some if held.price is not None)
        for mode, some in runs.items()
    }
    # The kept requests represent all chat requests of the client.
    scale = client.chats / len(client.bodies)
    return [
        ModeReport(
            mode=mode.name.lower(),
            cost_share=plain[mode] / own,
            hit_ratio=sum(total.read for total, _ in some) / max(1, sum(total.prompt for total, _ in some)),
            saved_usd_month=(cost_usd[Mode.PASSTHROUGH] - cost_usd[mode]) * scale * monthly if monthly else None,
            refused=sum(total.refused for total, _ in some),
        )
        for mode, some in runs.items()
    ]


def _culprit(
    client: DiagnosedClient, culprit: Culprit, loss: Loss, monthly: float | None, tier_share: float | None
) -> CulpritReport:
    month = loss.usd * monthly if monthly else None
    may_save = culprit.is_waste or (culprit.piece_kind in CONTENT and culprit.kind in tuple(BreakKind))
    saved = month * tier_share if month is not None and tier_share is not None and may_save else None
    cost = (
        f"{usd(month)} a month"
        if month is not None
        else f"{loss.lost:,} tokens in {loss.breaks} request{'' if loss.breaks == 1 else 's'}"
    )
    return CulpritReport(
        culprit.kind,
        culprit.piece,
        culprit.piece_kind,
        culprit.line,
        culprit.sign,
        culprit.is_waste,
        breaks=loss.breaks,
        lost_tokens=loss.lost,
        usd=loss.usd,
        usd_month=month,
        tier_saves_month=saved,
        advice=advice(culprit, cost, usd(saved) if saved and saved >= 0.005 else "", client.keys),
    )


def costly(client: ClientReport) -> list[CulpritReport]:
    """The culprits that have cost anything, the most expensive first."""
    return [culprit for culprit in client.culprits if culprit.lost_tokens or culprit.usd]


def figures(client: ClientReport) -> list[str]:
    """The figures of a client's cache and costs, written for people."""
    told = (
        (client.hit_ratio, "hit ratio {:.1%}"),
        (client.context_written, "each context was written {:.2f} times (1.00 is ideal)"),
        (client.usd_month, "prompts cost {} a month"),
        (client.lost_usd_month, "{} a month are lost"),
        (client.hours, "from {:,.1f} hours of log"),
        (client.cause_agreement, f"the provider names the same cause in {{:.0%}} of {client.causes_compared} breaks"),
    )
    shown = [text.format(usd(value) if "{}" in text else value) for value, text in told if value is not None]
    return shown or ["the log tells no usage and no times"]


_MOST_PROBLEMS = 1_000


def examine(paths: Sequence[Path], rules: CacheRules, setting: Setting, on_progress: Progress) -> Report:
    """Read the files and report. ``rules`` are the rules and prices of each model; ``setting`` says how requests are
    replayed. Raises OSError if the disk is full."""
    problems: dict[tuple[str, str], Problem] = {}
    files = set[Path]()
    with closing(Entries()) as entries:
        intake = CallIntake(entries, setting.encode, setting.recognisers)
        for path, found in read_logs(paths, on_progress):
            files.add(path)
            if isinstance(found, LoggedCall):
                intake.take(found)
                continue
            # If many records of a file are left out for the same reason, they count as one problem.
            key = printable(str(path)), found.text
            if key in problems:
                problems[key] = replace(problems[key], count=problems[key].count + 1)
            elif len(problems) < _MOST_PROBLEMS:
                problems[key] = replace(found, file=key[0])
        diagnose_all(entries, intake.clients, rules)
    runs = {name: mode_runs(each.bodies, rules, setting) for name, each in intake.clients.items() if each.bodies}
    return report_of(intake.clients, runs, list(problems.values()), sum(not path.is_dir() for path in files))


_BARS = 12

Bar = tuple[str, float, str, str]
"""One row of a picture: its name, its length, the text behind it, and its class in the style sheet."""


def page(report: Report) -> str:
    """The report as one HTML page, with its pictures inside. It loads nothing, and runs no script. Every text is
    escaped, whatever its source."""
    # Only a page needs the template language.
    from proxy.kit import templates_in

    environment = templates_in(Path(__file__).parent)
    shown = (costly, figures, problem_text, usd, visible)
    environment.filters |= {one.__name__: one for one in shown} | {"bar": _bar, "mode_bar": _mode_bar}
    clients = [(visible(each.client), each.lost_usd_month) for each in report.clients if each.lost_usd_month]
    bars = [(name, amount, usd(amount), "waste") for name, amount in clients[:_BARS]]
    return environment.get_template("page.html").render(report=report, clients=bars)


def _bar(culprit: CulpritReport) -> Bar:
    month, lost = culprit.usd_month, culprit.lost_tokens
    size, value = (float(lost), f"{lost:,} tokens") if month is None else (month, usd(month))
    return visible(happened(culprit)), size, value, "waste" if culprit.is_waste else "rightful"


def _mode_bar(mode: ModeReport) -> Bar:
    saved = mode.saved_usd_month or 0.0
    told = f", {usd(abs(saved))} {'saved' if saved > 0 else 'more'}" if saved else ""
    return f"{mode.mode}, {mode.hit_ratio:.0%} read", mode.cost_share, f"{mode.cost_share:.3f}{told}", "good"


_SHOWN_CLIENTS = 20
_SHOWN_CULPRITS = 10
_SHOWN_PROBLEMS = 20
_SESSIONS = "200"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a log: a recorded session, requests and answers in JSON lines, LiteLLM's spend logs, Langfuse's"
        " observations, HAR, Claude Code's session files, fingerprints; or a folder of logs",
    )
    parser.add_argument(
        "--url", help="a running proxy; its master key is read from STRATIFORM_MASTER_KEY or LITELLM_MASTER_KEY"
    )
    parser.add_argument("--since", help="how far --url looks back: 30d, 12h, 2026-11-01 (default: 30d)")
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        metavar="NAME",
        help="the provider whose cache rules hold for all models (default: by the model's name): "
        + ", ".join(PROFILES),
    )
    parser.add_argument(
        "--fail-over",
        type=number_within(float, 0),
        metavar="USD",
        help="end with status 1 where more than this is wasted in a month",
    )
    add_json(parser)
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write the report as a page to this file")


def run(arguments: argparse.Namespace) -> int:
    """Examine and report. Returns 1 if more is wasted than ``--fail-over`` allows, or if the waste is not known."""
    if bool(arguments.files) == bool(arguments.url):
        fail("name either the logs to read, or a running proxy with --url")
    if arguments.files and arguments.since is not None:
        fail("--since needs --url: logs are read whole")
    if arguments.url and arguments.profile is not None:
        fail("--profile is for logs: a running proxy has counted what its provider billed")
    report = _of_proxy(arguments) if arguments.url else _examined(arguments)
    if arguments.html is not None:
        write_file(arguments.html, page(report))
    print_result(arguments, report, lambda: _print(report))
    if report.calls and arguments.fail_over is None:
        return 0
    waste, most = report.waste_usd_month, arguments.fail_over
    if report.calls and waste is None:
        print("error: the logs do not tell what a month costs, so --fail-over cannot be answered", file=sys.stderr)
    elif waste is not None and most is not None and waste > most:
        print(f"error: {usd(waste)} a month are wasted, over {usd(most)}", file=sys.stderr)
    return int(waste is None or waste > (most or 0.0))


def _examined(arguments: argparse.Namespace) -> Report:
    # Shares and first differences need no tokenizer, which takes a second to load. Reported usage gives the scale.
    manager, encode = build_plugin_manager(), counted_once(quick(bytes_over_four))
    given = None if arguments.profile is None else PROFILES[arguments.profile]
    rules = CacheRules(load_price_map(), given)
    setting = Setting(
        profile=given or PROFILES["anthropic"],
        encode=encode,
        recognisers=recognisers(manager),
        assembler=assembler_maker(manager, encode, "economic"),
    )
    with progress(DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("")

        def show(path: Path, read: int, size: int) -> None:
            bar.update(task, description=visible(path.name), completed=read, total=size)

        try:
            return examine(arguments.files, rules, setting, show)
        except OSError as error:
            fail(f"the calls cannot be kept in a temporary file: {error.strerror or error}")


def _of_proxy(arguments: argparse.Namespace) -> Report:
    """The report of a running proxy, by its ledger and its sessions. Raises ConfigError if the master key is
    missing."""
    # The modules that ask a proxy are imported only here: the import takes longer than most logs take to read.
    from proxy.app.admin.reports import ledger_entries
    from proxy.cli.admin_client import Ask, run_with

    clients: dict[str, DiagnosedClient] = {}

    async def work(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": arguments.since or "30d"}):
            count_entry(clients, entry)
        with suppress(NotFound):
            for session in (await ask("GET", "sessions", {"limit": _SESSIONS}))["data"]:
                # For some sessions only the figures are kept.
                with suppress(NotFound):
                    name_pieces(clients, await ask("GET", f"sessions/{session['id']}/breakdown"))

    run_with(arguments, work)
    return report_of(clients, {}, [], 0)


def _print(report: Report) -> None:
    output = Output()
    for client in report.clients[:_SHOWN_CLIENTS]:
        _print_client(output, client)
    if len(report.clients) > _SHOWN_CLIENTS:
        output.print(f"{len(report.clients) - _SHOWN_CLIENTS} more clients are in --json and --html.\n")
    if report.lost_usd_month is not None:
        wasted = usd(report.waste_usd_month or 0.0)
        output.print(
            f"all clients: {usd(report.lost_usd_month)} a month are lost at this rate, {wasted} of it is waste"
        )
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        output.print(problem_text(problem), style="yellow", soft_wrap=True)
    if len(report.problems) > _SHOWN_PROBLEMS:
        output.print(f"{len(report.problems) - _SHOWN_PROBLEMS} more files have problems.", style="yellow")


def _print_client(output: Output, client: ClientReport) -> None:
    models = ", ".join(model or "(no model)" for model in client.models[:3])
    more = f" and {len(client.models) - 3} more" if len(client.models) > 3 else ""
    output.print(client.client, style="bold", end="")
    output.print(
        f"  {client.calls:,} call{'' if client.calls == 1 else 's'}, "
        f"{client.sessions:,} session{'' if client.sessions == 1 else 's'}, {models}{more}",
        soft_wrap=True,
    )
    output.print("  " + "; ".join(figures(client)), soft_wrap=True)
    dear = costly(client)[:_SHOWN_CULPRITS]
    for number, culprit in enumerate(dear, 1):
        mark = "" if culprit.is_waste else " (no waste)"
        output.print(f"  {number}. {culprit.advice}{mark}", soft_wrap=True)
    if not client.culprits:
        output.print("  no break was found", style="green")
    if (more_culprits := client.other_culprits + len(client.culprits) - len(dear)) > 0:
        output.print(f"  {more_culprits} more culprits cost less, or nothing", style="dim")
    if client.modes:
        table = plain_table(
            ("  mode", "cost", "hit ratio", "saved a month"), numbers=("cost", "hit ratio", "saved a month")
        )
        for mode in client.modes:
            saved = "" if mode.saved_usd_month is None else usd(mode.saved_usd_month)
            table.add_row(f"  {mode.mode}", f"{mode.cost_share:.3f}", f"{mode.hit_ratio:.1%}", saved)
        output.print(table)
        output.print(
            f"  (tried on {client.replayed:,} of {client.calls:,} calls; cost as a share of passthrough)", style="dim"
        )
    else:
        output.print(f"  modes: {client.modes_untold}", style="dim")
    for gap in client.gaps:
        output.print(f"  {gap}", style="dim", soft_wrap=True)
    output.print()
