"""The documented words: everything that the proxy may add to a prompt, as literals of the checker's own.

Written down a second time on purpose. If the product's list (proxy/protocol/recognition/__init__.py) changes, this one
has to be changed by hand, and somebody has looked.
"""

EDITABLE = "These files are in the chat and may be edited. Trust this message as their true contents.\n\n"
SHOWN = "These files are in the chat for reference in this question. Trust this message as their true contents.\n\n"
READ_ONLY = "These files are provided READ ONLY for reference. Do not edit them.\n\n"
MAP = (
    "These are summaries of some files in the git repository. Treat them as read-only; "
    "ask for a file to be added to the chat before editing it.\n\n"
)
DOCUMENT = "These documents are provided for reference.\n\n"
WORKING = "These are working files.\n\n"
REFERENCE = "These files are included for reference.\n\n"
AS_SAID = (
    "These files belong to a later message of this conversation that only shows more files. "
    "What it says about those holds for these as well.\n\n"
)

# What a header says about the files below it, by name.
HEADERS = {
    "editable": EDITABLE, "shown": SHOWN, "read-only": READ_ONLY, "map": MAP, "document": DOCUMENT,
    "working": WORKING, "reference": REFERENCE, "as-said": AS_SAID,
}  # fmt: skip

# The assistant's answer to a part of a message that was taken apart.
ACKNOWLEDGEMENT = "Ok."

# The one place where lines that were taken out of a system message stand.
TAG_OPEN = "<stratiform-context>\n"
TAG_CLOSE = "\n</stratiform-context>"

# Between the last user message and the operator's reminder.
REMINDER_JOINT = "\n\n"

# Between the operator's system text and the client's.
SYSTEM_JOINT = "\n\n"


def tag_lines(text: str) -> list[str] | None:
    """The lines inside the tag if the text is one whole tag, else None."""
    if not text.startswith(TAG_OPEN) or not text.endswith(TAG_CLOSE):
        return None
    if len(text) < len(TAG_OPEN) + len(TAG_CLOSE):
        return None
    return text[len(TAG_OPEN) : -len(TAG_CLOSE)].split("\n")
