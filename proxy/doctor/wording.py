"""Sentences and figures that the text and the page have in common."""

from proxy.doctor.advice import happened
from proxy.doctor.findings import Culprit
from proxy.doctor.report import ClientReport, CulpritReport, FileProblem, usd

# What a terminal would obey instead of showing it.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


def visible(text: str) -> str:
    """A text that others wrote, with its control characters as escapes."""
    return text.translate(_CONTROLS)


def culprit_name(culprit: CulpritReport) -> str:
    """What has broken the cache, as a clause."""
    of = Culprit(culprit.kind, culprit.piece, culprit.piece_kind, culprit.line, culprit.sign, culprit.is_waste)
    return visible(happened(of))


def problem_text(problem: FileProblem) -> str:
    """One sentence, with the line where there is one."""
    where = f"{visible(problem.file)}:{problem.line}: the line" if problem.line else f"{visible(problem.file)}:"
    more = f" ({problem.count:,} such lines)" if problem.count > 1 else ""
    return f"{where} {problem.text}{more}"


def figures(client: ClientReport) -> list[str]:
    """What is told of a client's cache and money."""
    told = []
    if client.hit_ratio is not None:
        told.append(f"hit ratio {client.hit_ratio:.1%}")
    if client.context_written is not None:
        told.append(f"each context was written {client.context_written:.2f} times (1.00 is ideal)")
    if client.usd_month is not None:
        told.append(f"prompts cost {usd(client.usd_month)} a month")
    if client.lost_usd_month is not None:
        told.append(f"{usd(client.lost_usd_month)} a month are lost")
    if client.hours is not None:
        told.append(f"from {client.hours:,.1f} hours of log")
    if client.cause_agreement is not None:
        told.append(
            f"the provider names the same cause in {client.cause_agreement:.0%} of {client.causes_compared} breaks"
        )
    return told or ["the log tells no usage and no times"]
