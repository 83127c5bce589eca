"""Every word that the transparent path may add to a prompt. None carries a time or a counter.

(What it may add beside the prompt are markers, and the parameters in ``routing``: a key, or the wish for no cache.)

A message of context files may be taken apart, so that stable files stand in front of the conversation. Each part but
the last opens with the header that repeats the client's own claim about the files (``CLAIM_HEADERS``) and is
acknowledged by ``PART_ACKNOWLEDGEMENT`` (a constant of the systems that this proxy grew from); the last part keeps
the client's own opening and acknowledgement, and stands behind the others (``AS_SAID`` refers to it). A volatile line
that was moved out of a system message stands between ``TAG_OPEN`` and ``TAG_CLOSE``.
"""

from enum import StrEnum
from types import MappingProxyType


class FileClaim(StrEnum):
    """What a client says about files that it shows to the model."""

    EDITABLE = "editable"
    SHOWN = "shown"
    READ_ONLY = "read-only"
    MAP = "map"
    DOCUMENT = "document"
    WORKING = "working"
    REFERENCE = "reference"
    AS_SAID = "as-said"
    """No more than the message itself says, in words that we do not know: we must not put others in their place."""


CLAIM_HEADERS = MappingProxyType(
    {
        FileClaim.EDITABLE: (
            "These files are in the chat and may be edited. Trust this message as their true contents.\n\n"
        ),
        FileClaim.SHOWN: (
            "These files are in the chat for reference in this question. Trust this message as their true contents.\n\n"
        ),
        FileClaim.READ_ONLY: "These files are provided READ ONLY for reference. Do not edit them.\n\n",
        FileClaim.MAP: (
            "These are summaries of some files in the git repository. Treat them as read-only; "
            "ask for a file to be added to the chat before editing it.\n\n"
        ),
        FileClaim.DOCUMENT: "These documents are provided for reference.\n\n",
        FileClaim.WORKING: "These are working files.\n\n",
        FileClaim.REFERENCE: "These files are included for reference.\n\n",
        FileClaim.AS_SAID: (
            "These files belong to a later message of this conversation that only shows more files. "
            "What it says about those holds for these as well.\n\n"
        ),
    }
)

PART_ACKNOWLEDGEMENT = "Ok."

TAG_OPEN = "<stratiform-context>\n"
TAG_CLOSE = "\n</stratiform-context>"
