"""The capability profiles that are there without being configured, as they were proved in use: small local models for
completions and edits, large ones for chats. None of them takes a value from another one.
"""

from collections.abc import Mapping

from proxy.core.window.profile import Capability, CapabilityProfile, OverBudget, PartCaps

BUILT_IN: Mapping[str, CapabilityProfile] = {
    profile.name: profile
    for profile in (
        CapabilityProfile(
            name="completion",
            capability=Capability.COMPLETION,
            window_tokens=4_096,
            output_tokens=256,
            caps=PartCaps(system=1_024, prefix=2_048, suffix=512),
            over_budget=OverBudget.EMPTY,
        ),
        CapabilityProfile(
            name="edit",
            capability=Capability.EDIT,
            window_tokens=4_096,
            output_tokens=512,
            caps=PartCaps(system=1_024, instruction=128, selection=896, prefix=1_024, suffix=256),
            over_budget=OverBudget.EMPTY,
        ),
        CapabilityProfile(
            name="chat",
            capability=Capability.CHAT,
            caps=PartCaps(system=8_192),
            tail_messages=60,
        ),
        CapabilityProfile(
            name="chat_ops",
            capability=Capability.CHAT_OPS,
            caps=PartCaps(system=8_192),
        ),
    )
}
