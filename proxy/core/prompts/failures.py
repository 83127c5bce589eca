"""What can be wrong with a prompt. No message holds a text of a prompt or a value of the context."""


class ConditionError(Exception):
    """A condition cannot be evaluated. ``code`` is one of ``invalid_operator``, ``invalid_path``, ``invalid_pattern``,
    ``invalid_type`` and ``too_long``."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class RenderError(Exception):
    """A template cannot be rendered with this context, or a variable that the prompt requires has no value in it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class PromptFailure(Exception):
    """In strict mode: a prompt cannot be composed. ``is_client`` says whether the prompt came with the request, so that
    the mistake is the client's and not the operator's. ``why`` says what is wrong."""

    def __init__(self, prompt_id: str, *, is_client: bool, why: str) -> None:
        super().__init__(f"the prompt '{prompt_id}' cannot be composed: {why}")
        self.prompt_id = prompt_id
        self.is_client = is_client
        self.why = why
