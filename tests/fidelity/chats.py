"""Values that tests build request bodies from: files, and a chat as aider lays it out, its structure still known."""

from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

# aider 0.86 tries these in turn and takes the first that begins no line of any file.
AIDER_FENCES = (
    ("```", "```"), ("````", "````"), ("<source>", "</source>"), ("<code>", "</code>"), ("<pre>", "</pre>"),
    ("<codeblock>", "</codeblock>"), ("<sourcecode>", "</sourcecode>"),
)  # fmt: skip
EDITABLE_OPENING = (
    "I have *added these files to the chat* so you can go ahead and edit them.\n\n"
    "*Trust this message as the true contents of these files!*\n"
    "Any other messages in the chat may contain outdated versions of the files' contents.\n"
)
EDITABLE_ACK = "Ok, any changes I propose will be to those files."
SHOWN_OPENING = (
    "I have *added these files to the chat* so you see all of their contents.\n"
    "*Trust this message as the true contents of the files!*\n"
    "Other messages in the chat may contain outdated versions of the files' contents.\n"
)
SHOWN_ACK = "Ok, I will use that as the true, current contents of the files."
READ_ONLY_OPENING = "Here are some READ ONLY files, provided for your reference.\nDo not edit these files!\n"
READ_ONLY_ACK = "Ok, I will use these files as references."
MAP_OPENING = (
    "Here are summaries of some files present in my git repository.\n"
    "Do not propose changes to these files, treat them as *read-only*.\n"
    "If you need to edit any of these files, ask me to *add them to the chat* first.\n"
)
ASK_MAP_OPENING = (
    "I am working with you on code in a git repository.\n"
    "Here are summaries of some files present in my git repo.\n"
    "If you need to see the full contents of any files to answer my questions, ask me to *add them to the chat*.\n"
)
MAP_ACK = "Ok, I won't try and edit those files without asking first."
EXAMPLES = (
    ("user", "Change get_factorial() to use math.factorial"),
    ("assistant", "To make this change we need to modify `mathweb/flask/app.py` to:\n\n1. Import the math package."),
    ("user", "I switched to a new code base. Please don't consider the above files or try to edit them any longer."),
    ("assistant", "Ok."),
)


@dataclass(frozen=True, slots=True)
class File:
    """A path and its content."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Context:
    """One of aider's context messages: its opening, its entries' own bytes, the acknowledgement, our header's name."""

    opening: str
    entries: tuple[str, ...]
    acknowledgement: str
    header: str

    @property
    def text(self) -> str:
        return self.opening + "".join(f"\n{entry}\n" for entry in self.entries)

    def messages(self) -> list[Message]:
        return [said("user", self.text), said("assistant", self.acknowledgement)]


@dataclass(frozen=True, slots=True)
class AiderChat:
    """A request of aider's, as a structure. ``body`` renders it as aider does."""

    system: str
    examples: bool
    read_only: tuple[File, ...]
    outline: tuple[str, ...]
    history: tuple[tuple[str, str], ...]
    files: tuple[File, ...]
    asks: bool
    reflections: tuple[tuple[str, str], ...]
    prompt: str
    reminder: str
    reminder_role: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def fence(self) -> tuple[str, str]:
        """aider's choice: the first fence that begins no line of any file, else the first of all."""
        return self._free_fence() or AIDER_FENCES[0]

    @property
    def is_fence_free(self) -> bool:
        """Whether no line of a file begins with the fence, so that the borders of the files can be read."""
        return self._free_fence() is not None

    def _free_fence(self) -> tuple[str, str] | None:
        lines = [line for file in (*self.files, *self.read_only) for line in file.content.splitlines()]
        free = (fence for fence in AIDER_FENCES if not any(line.startswith(fence) for line in lines))
        return next(free, None)

    def _entry(self, file: File) -> str:
        opener, closer = self.fence
        return f"{file.path}\n{opener}\n{file.content}{closer}"

    def before_history(self) -> list[Context]:
        """Read-only files and the repository map."""
        contexts = []
        if self.read_only:
            entries = tuple(map(self._entry, self.read_only))
            contexts.append(Context(READ_ONLY_OPENING, entries, READ_ONLY_ACK, "read-only"))
        if self.outline:
            opening = ASK_MAP_OPENING if self.asks else MAP_OPENING
            contexts.append(Context(opening, self.outline, MAP_ACK, "map"))
        return contexts

    def behind_history(self) -> list[Context]:
        """The chat files."""
        entries = tuple(map(self._entry, self.files))
        if not entries:
            return []
        if self.asks:
            return [Context(SHOWN_OPENING, entries, SHOWN_ACK, "shown")]
        return [Context(EDITABLE_OPENING, entries, EDITABLE_ACK, "editable")]

    def contexts(self) -> list[Context]:
        """All context messages in aider's order."""
        return self.before_history() + self.behind_history()

    def preamble(self) -> list[Message]:
        """System message and examples."""
        return [said("system", self.system)] + [said(*turn) for turn in EXAMPLES if self.examples]

    def turns(self) -> list[Message]:
        """The settled history."""
        return _dialogue(self.history)

    def current(self) -> list[Message]:
        """The turn at hand up to, not including, the last user message."""
        return _dialogue(self.reflections)

    def tail(self) -> list[Message]:
        """From the last user message on."""
        if self.reminder and self.reminder_role == "user":
            return [said("user", f"{self.prompt}\n\n{self.reminder}")]
        behind = [said("system", self.reminder)] if self.reminder else []
        return [said("user", self.prompt), *behind]

    def body(self) -> dict[str, Any]:
        """The request as aider posts it."""
        messages = self.preamble()
        for context in self.before_history():
            messages += context.messages()
        messages += self.turns()
        for context in self.behind_history():
            messages += context.messages()
        messages += self.current() + self.tail()
        return {"model": "gpt-4o", "messages": messages, "stream": True, "temperature": 0, **self.parameters}


def said(role: str, text: str) -> Message:
    """A message of one string."""
    return {"role": role, "content": text}


def _dialogue(turns: tuple[tuple[str, str], ...]) -> list[Message]:
    return [said(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]
