"""What can be wrong with a prompt. No message holds a text of a prompt or a value of the context."""


class ConditionError(Exception):
    """A condition cannot be evaluated. ``code`` is one of ``invalid_operator``, ``invalid_path``, ``invalid_pattern``,
    ``invalid_type`` and ``too_long``. The error's text says why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class RenderError(Exception):
    """A template cannot be rendered with this context, or a variable that the prompt requires has no value in it. The
    error's text says why."""


class PromptFailure(Exception):
    """In strict mode: a prompt cannot be composed. ``is_client`` says whether the prompt came with the request, so that
    the mistake is the client's and not the operator's. ``why`` says what is wrong."""

    def __init__(self, prompt_id: str, *, is_client: bool, why: str) -> None:
        super().__init__(f"the prompt '{prompt_id}' cannot be composed: {why}")
        self.prompt_id = prompt_id
        self.is_client = is_client
        self.why = why
