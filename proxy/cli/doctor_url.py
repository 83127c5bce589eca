"""``stratiform doctor --url``: the report of a running proxy, by its ledger."""

import argparse

from proxy.cli.admin_client import Ask, ledger_entries, run_with
from proxy.doctor.intake import Kept
from proxy.doctor.remote import NO_BREAKS, NO_MODES, NO_PIECES, Ledger
from proxy.doctor.report import Report, report_of


def examined(arguments: argparse.Namespace) -> Report:
    """Ask the proxy and report. Raises ConfigError where the master key is missing."""
    ledger = Ledger()

    async def work(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": arguments.since}):
            ledger.add(entry)

    run_with(arguments, work)
    gaps = [NO_PIECES if ledger.tells_breaks else NO_BREAKS]
    kept = {name: Kept(told=gaps, modes_untold=NO_MODES) for name in ledger.found}
    return report_of(ledger.found, kept, {}, [], 0)
