"""Every word that the transparent path may add to a prompt. None carries a time or a counter.

(Beside the prompt, this path may add markers, and the parameters in ``routing``: a routing key, or the request not to
cache.)

A message of context files may be taken apart, so that stable files stand in front of the conversation. Each part except
the last one opens with a header that repeats the client's own claim about the files (``CLAIM_HEADERS``). It is
acknowledged by ``PART_ACKNOWLEDGEMENT`` (a constant of the systems from which this proxy developed). The last part
keeps the client's own opening and acknowledgement, and stands behind the others (``AS_SAID`` refers to it). A volatile
line that was moved out of a system message stands between ``TAG_OPEN`` and ``TAG_CLOSE``.
"""

from enum import StrEnum
from types import MappingProxyType


class FileClaim(StrEnum):
    """The claim that a client makes about files that it shows to the model."""

    EDITABLE = "editable"
    SHOWN = "shown"
    READ_ONLY = "read-only"
    MAP = "map"
    DOCUMENT = "document"
    WORKING = "working"
    REFERENCE = "reference"
    AS_SAID = "as-said"
    """Only the claim of the message itself, whose words the proxy does not know and must not replace by others."""


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
