"""The report as values: what ``--json`` prints, and what the text and the page show. It holds no text of a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.core.modes import Mode
from proxy.doctor.advice import advice
from proxy.doctor.findings import Culprit, Findings, Loss, worst
from proxy.doctor.intake import Kept
from proxy.doctor.modes import ModeBill
from proxy.doctor.readers.call import Gap, Wire

FORM = "stratiform-doctor/1"
MONTH_HOURS = 30 * 24
# A shorter log is taken as one hour: a single minute says little of a month.
LEAST_HOURS = 1.0
_MOST_CULPRITS = 100
_CHAT_ONLY = "the proxy plans chat completions; it forwards the requests of other forms as they are"
_NO_BODIES = "the log holds no whole requests that could be replayed"

_GAPS: Mapping[Gap, str] = {
    Gap.NO_REQUEST: "have no request: what broke the cache is told by usage and time alone",
    Gap.REDACTED: "are redacted: what broke the cache is told by usage and time alone",
    Gap.CUT: "are cut: their sizes are estimates, and they are not replayed",
    Gap.NO_USAGE: "have no usage: costs and losses follow the rules of the provider's cache, not its reports",
    Gap.NO_TIME: "have no time: what a month costs, and what has expired, is not known",
    Gap.NO_PROMPT_START: "go on from a conversation that the provider keeps: its answers are not compared",
}


@dataclass(frozen=True, slots=True)
class CulpritReport:
    """One culprit. ``usd_month`` is None where the log tells no times or the model has no price; ``tier_saves_month``
    is what mode tier would save of it. ``line`` counts from 1; 0: no line."""

    kind: str
    piece: str
    piece_kind: str
    line: int
    sign: str
    is_waste: bool
    breaks: int
    lost_tokens: int
    usd: float
    usd_month: float | None
    tier_saves_month: float | None
    advice: str


@dataclass(frozen=True, slots=True)
class ModeReport:
    """What a mode would cost, as a share of passthrough; ``saved_usd_month`` against passthrough."""

    mode: str
    cost_share: float
    hit_ratio: float
    saved_usd_month: float | None
    refused: int


@dataclass(frozen=True, slots=True)
class ClientReport:
    """One client.

    ``hit_ratio`` is read tokens / prompt tokens, and ``context_written`` the tokens that were not read / the largest
    prompt of each session (1.00 is ideal), both None where no usage is told. ``hours`` is the length of the log, and
    ``usd`` what the prompts have cost whose usage is told. The modes were tried on ``replayed`` of ``calls``;
    ``modes_untold`` says why there are none. ``gaps`` are sentences.
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
class FileProblem:
    """What was left out of a file: ``count`` records for the same reason, the first at ``line`` (0: the file)."""

    file: str
    line: int
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything, the client that loses most first. ``lost_usd_month`` and ``waste_usd_month`` are None where no client
    has one."""

    form: str
    files: int
    calls: int
    clients: Sequence[ClientReport]
    lost_usd_month: float | None
    waste_usd_month: float | None
    problems: Sequence[FileProblem]


def usd(amount: float) -> str:
    """An amount as a person writes it."""
    if amount >= 100:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"


def report_of(
    found: Mapping[str, Findings],
    kept: Mapping[str, Kept],
    bills: Mapping[str, Mapping[Mode, ModeBill]],
    problems: Sequence[FileProblem],
    files: int,
) -> Report:
    """The report."""
    clients = [_client(name, each, kept.get(name, Kept()), bills.get(name, {})) for name, each in found.items()]
    clients.sort(key=lambda each: (-(each.lost_usd_month or each.lost_usd), -each.calls))
    return Report(
        form=FORM,
        files=files,
        calls=sum(each.calls for each in clients),
        clients=clients,
        lost_usd_month=_sum([each.lost_usd_month for each in clients]),
        waste_usd_month=_sum([each.waste_usd_month for each in clients]),
        problems=problems,
    )


def _sum(amounts: Sequence[float | None]) -> float | None:
    told = [amount for amount in amounts if amount is not None]
    return sum(told) if told else None


def _client(name: str, found: Findings, kept: Kept, bills: Mapping[Mode, ModeBill]) -> ClientReport:
    monthly = _monthly(found)
    losses = worst(list(found.losses.items()))
    lost = sum(loss.usd for _, loss in losses)
    modes = _modes(kept, bills, monthly)
    tier = next((mode.saved_usd_month for mode in modes if mode.mode == Mode.TIER.name.lower()), None)
    # What a mode saves beyond the losses (markers where there were none) is no culprit's.
    tier_share = min(1.0, max(0.0, tier) / (lost * monthly)) if tier is not None and monthly and lost else None
    usage = found.usage
    return ClientReport(
        client=name,
        calls=found.calls,
        sessions=found.sessions,
        models=sorted(found.models, key=lambda model: -found.models[model]),
        hours=found.hours,
        usd=found.usd,
        usd_month=found.usd * found.calls / found.told * monthly if monthly and found.told else None,
        hit_ratio=usage.read / usage.prompt if usage.prompt else None,
        context_written=found.written / found.largest if found.largest else None,
        lost_usd=lost,
        lost_usd_month=lost * monthly if monthly else None,
        waste_usd_month=sum(loss.usd for each, loss in losses if each.is_waste) * monthly if monthly else None,
        cause_agreement=found.agreed / found.compared if found.compared else None,
        causes_compared=found.compared,
        culprits=[_culprit(each, loss, monthly, tier_share) for each, loss in losses[:_MOST_CULPRITS]],
        other_culprits=max(0, len(losses) - _MOST_CULPRITS),
        modes=modes,
        modes_untold="" if modes else kept.modes_untold or _untold(kept),
        replayed=len(kept.bodies),
        gaps=list(_gaps(found, kept)),
    )


def _untold(kept: Kept) -> str:
    return _CHAT_ONLY if kept.calls and not kept.calls[Wire.CHAT] else _NO_BODIES


def _monthly(found: Findings) -> float | None:
    """What an amount of the log is multiplied by for a month at this rate; None where that is not known."""
    if found.hours is None or found.unpriced == found.calls:
        return None
    return MONTH_HOURS / max(LEAST_HOURS, found.hours)


def _modes(kept: Kept, bills: Mapping[Mode, ModeBill], monthly: float | None) -> list[ModeReport]:
    own = bills.get(Mode.PASSTHROUGH)
    if own is None or not own.plain:
        return []
    # The kept requests stand for all chat requests of the client's.
    scale = kept.calls[Wire.CHAT] / len(kept.bodies)
    return [
        ModeReport(
            mode=mode.name.lower(),
            cost_share=bill.plain / own.plain,
            hit_ratio=bill.read / bill.prompt if bill.prompt else 0.0,
            saved_usd_month=(own.usd - bill.usd) * scale * monthly if monthly else None,
            refused=bill.refused,
        )
        for mode, bill in bills.items()
    ]


def _culprit(culprit: Culprit, loss: Loss, monthly: float | None, tier_share: float | None) -> CulpritReport:
    month = loss.usd * monthly if monthly else None
    saved = month * tier_share if month is not None and tier_share is not None and culprit.is_waste else None
    cost = f"{loss.lost:,} tokens in {loss.breaks} requests" if month is None else f"{usd(month)} a month"
    return CulpritReport(
        kind=culprit.kind,
        piece=culprit.piece,
        piece_kind=culprit.piece_kind,
        line=culprit.line,
        sign=culprit.sign,
        is_waste=culprit.is_waste,
        breaks=loss.breaks,
        lost_tokens=loss.lost,
        usd=loss.usd,
        usd_month=month,
        tier_saves_month=saved,
        advice=advice(culprit, cost, usd(saved) if saved and saved >= 0.005 else ""),
    )


def _gaps(found: Findings, kept: Kept) -> list[str]:
    of = f"of {found.calls:,} calls"
    told = [*kept.told, *(f"{count:,} {of} {_GAPS[gap]}" for gap, count in sorted(kept.gaps.items()))]
    if found.unpriced:
        told.append(
            f"{found.unpriced:,} {of} are of a model whose price is not known: they count in tokens, not in USD"
        )
    return told
