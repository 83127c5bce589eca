"""The parts of a request as a client names them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VirtualFile:
    """A logical document of a ``chat_ops`` request. At most one of a request ``is_active``."""

    id: str
    content: str = field(repr=False)
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class WindowParts:
    """What ``stratiform.window`` names. None: the request does not have the part."""

    profile: str = ""
    instruction: str | None = field(default=None, repr=False)
    selection: str | None = field(default=None, repr=False)
    prefix: str | None = field(default=None, repr=False)
    suffix: str | None = field(default=None, repr=False)
    summary: str | None = field(default=None, repr=False)
    virtual_files: tuple[VirtualFile, ...] = ()

    @property
    def has_any(self) -> bool:
        """Whether any part is named."""
        texts = (self.instruction, self.selection, self.prefix, self.suffix, self.summary)
        return any(text is not None for text in texts) or bool(self.virtual_files)
