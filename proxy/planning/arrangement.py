"""How an assembled chat is planned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import msgspec

from proxy.core.layout.inventory import Inventory
from proxy.core.layout.tiers import Change
from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Edit, Reason
from proxy.core.response.usage import Usage
from proxy.core.structured.assembly.untiered import in_tiers
from proxy.core.structured.blocks.blocks import Assembly, AssemblyKind
from proxy.core.structured.blocks.breakdown import Measure, inventory_of
from proxy.core.structured.placement.placement import Placement
from proxy.planning.panel_bill import PanelBill

_SETTLED: Mapping[AssemblyKind, Reason] = MappingProxyType(
    {AssemblyKind.TIERED: Reason.ASSEMBLED_TIERS, AssemblyKind.FLAT: Reason.ASSEMBLED_FLAT}
)
"""The reasons of layouts that the planner only observes."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The body, and the ``mode`` in which the planner takes it: a lower one than was asked for where the ``kind`` of
    the assembly settles the layout. ``fallback`` is the body that is sent where an upstream refuses the other one;
    ``edits`` counts what was edited besides the layout, by the reason. ``counted`` is what happens when the exchange
    counts. ``moving`` are the messages that the proxy has put between the client's own, as ``Route.moving`` has them;
    ``bill`` says what the panels cost, None where there are none."""

    kind: AssemblyKind
    body: bytes
    fallback: bytes
    mode: Mode
    assembly: Assembly
    counted: Callable[[Usage | None], Sequence[Change]]
    edits: Mapping[Edit, int] = field(default_factory=dict)
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    moving: Mapping[int, float] = field(default_factory=dict)
    bill: PanelBill | None = None
    contents: Callable[[], Inventory] | None = None
    """Measures what is sent."""

    def concluded(self, plan: Plan, mode: Mode) -> Plan:
        """The planner's plan with what the assembly has decided; ``mode`` is the one that was asked for."""
        plan = replace(
            plan, counted=self.counted, tier_tokens=self.tier_tokens, edits=self.edits, contents=self.contents
        )
        if mode is self.mode or plan.surprise is not None:
            return plan
        return replace(plan, mode=mode, reason=_SETTLED[self.kind], predicted=plan.own)

    def inventory(self, placement: Placement | None, measure: Measure, freezing_cost: float) -> Inventory:
        """What the request consists of. ``freezing_cost`` is what freezing has cost the session so far."""
        counts = placement.counts if placement is not None else {}
        found = inventory_of(self.assembly_in(placement), measure, counts)
        panels = self.bill.value() if self.bill is not None else ()
        return msgspec.structs.replace(found, panels=panels, freezing_cost=freezing_cost)

    def measured(self, placement: Placement | None, measure: Measure, freezing_cost: float) -> "Arrangement":
        """The same, such that its ``contents`` can be measured later."""
        return replace(self, contents=partial(self.inventory, placement, measure, freezing_cost))

    def assembly_in(self, placement: Placement | None) -> Assembly:
        """The assembly. Items that no tier orders are shown in the tiers of the ``placement``."""
        is_untiered = placement is not None and self.kind is AssemblyKind.ECONOMIC
        return in_tiers(self.assembly, placement) if is_untiered and placement is not None else self.assembly
