"""The rules that hold now."""

from proxy.core.prompts.rules import PromptRules
from proxy.core.prompts.terms import PromptTerms
from proxy.core.window.built_in import BUILT_IN
from proxy.core.window.rules import WindowRules
from proxy.prompting.rules_in_force import RulesInForce


def test_whoever_holds_the_rules_sees_those_that_replace_them() -> None:
    prompts, windows = PromptRules(PromptTerms(use=("new",))), WindowRules(BUILT_IN, "chat")
    rules = RulesInForce(PromptRules(), WindowRules())
    holder = rules

    rules.replace(prompts, windows)

    assert (holder.prompts, holder.windows) == (prompts, windows)
