"""The rules that hold now."""

from proxy.core.prompts.rules import PromptRules
from proxy.core.window.rules import WindowRules


class RulesInForce:
    """The rules of composed prompts and of context windows, as the configuration was last read. Whoever serves a
    request asks once for each of them: a reload replaces them between two questions."""

    def __init__(self, prompts: PromptRules, windows: WindowRules) -> None:
        self.prompts = prompts
        self.windows = windows

    def replace(self, prompts: PromptRules, windows: WindowRules) -> None:
        """Let these hold for all requests that begin from now on."""
        self.prompts, self.windows = prompts, windows
