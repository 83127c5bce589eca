"""How an assembled chat is planned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.core.modes import Mode
from proxy.core.planner.in_flight import Moved
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Edit, Reason
from proxy.core.response.usage import Usage
from proxy.core.structured.blocks.blocks import Assembly
from proxy.planning.panel_bill import PanelBill


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The body, and the mode in which the planner takes it. ``kind`` is ``tiered``, ``economic`` or ``flat``.
    ``fallback`` is the body that is sent where an upstream refuses the other one; ``edits`` counts what was edited
    besides the layout, by the reason. ``reason`` takes the place of the planner's where the layout is fixed;
    ``counted`` is what happens when the exchange counts. ``moving`` are the messages that the proxy has put between the
    client's own, as ``Route.moving`` has them; ``bill`` says what the panels cost, None where there are none."""

    kind: str
    body: bytes
    fallback: bytes
    mode: Mode
    assembly: Assembly
    counted: Callable[[Usage | None], Sequence[Moved]]
    edits: Mapping[Edit, int] = field(default_factory=dict)
    reason: Reason | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    moving: Mapping[int, float] = field(default_factory=dict)
    bill: PanelBill | None = None

    def concluded(self, plan: Plan, mode: Mode) -> Plan:
        """The planner's plan with what the assembly has decided; ``mode`` is the one that was asked for."""
        plan = replace(plan, counted=self.counted, tier_tokens=self.tier_tokens, edits=self.edits)
        if self.reason is None or plan.surprise is not None:
            return plan
        return replace(plan, mode=mode, reason=self.reason, predicted=plan.own)
