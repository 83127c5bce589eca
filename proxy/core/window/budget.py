"""How many tokens the prompt of one request may have."""

from dataclasses import dataclass, replace

from proxy.core.window.profile import CapabilityProfile


@dataclass(frozen=True, slots=True)
class Budget:
    """In tokens, as the model counts them. ``prompt_tokens`` is what is left for the prompt: the window without the
    answer and the margin, and never less than 0."""

    window_tokens: int
    output_tokens: int
    margin_tokens: int
    prompt_tokens: int

    def scaled(self, scale: float) -> "Budget":
        """A smaller budget for the prompt, for a request that an upstream has refused as too large."""
        return replace(self, prompt_tokens=int(self.prompt_tokens * min(1.0, max(0.0, scale))))


def budget_of(profile: CapabilityProfile, model_window: int | None, wanted_output: int | None) -> Budget | None:
    """The budget under a profile; None where neither the profile nor the model's data name a window, so that nothing
    is trimmed. Where both do, the smaller one counts. ``wanted_output`` is the answer's maximum that the request
    names."""
    windows = [window for window in (profile.window_tokens, model_window) if window is not None]
    if not windows:
        return None
    window = min(windows)
    output = profile.output_tokens if wanted_output is None else wanted_output
    return Budget(window, output, profile.margin_tokens, max(0, window - output - profile.margin_tokens))
