"""A file editing chat in the shape of aider 0.86 (edit format ``diff``, a Claude model), with commit message calls.

A request consists of the system text, the repository map and its acknowledgement, the conversation so far, the current
files and their acknowledgement, and the prompt. Each request renders map and files anew. The framing words are aider's;
all other text is written here.
"""

import difflib
from collections.abc import Iterator, Mapping
from hashlib import sha256

from proxy.core.value import dataclass
from proxy.demo.sample import BEGIN, Message, Request, Sample, assistant, chat, system, user
from proxy.demo.source import TEST_LOOKUP, TEST_NAME, SourceFile, file_of_tests, function, source_file

# The fences around files in an editor chat of this kind. The first pair is used that begins no line of any file.
_FENCES = (
    ("```", "```"), ("````", "````"), ("<source>", "</source>"), ("<code>", "</code>"), ("<pre>", "</pre>"),
    ("<codeblock>", "</codeblock>"), ("<sourcecode>", "</sourcecode>"),
)  # fmt: skip
FILES_OPENING = (
    "I have *added these files to the chat* so you can go ahead and edit them.\n\n"
    "*Trust this message as the true contents of these files!*\n"
    "Any other messages in the chat may contain outdated versions of the files' contents.\n"
)
FILES_ACK = "Ok, any changes I propose will be to those files."
_MAP = (
    "Here are summaries of some files present in my git repository.\n"
    "Do not propose changes to these files, treat them as *read-only*.\n"
    "If you need to edit any of these files, ask me to *add them to the chat* first.\n"
)
_MAP_ACK = "Ok, I won't try and edit those files without asking first."
_COMMIT_SYSTEM = (
    "You are an expert software engineer that generates concise, one-line Git commit messages based on the provided "
    "diffs.\nLook at the context and at the diffs below. Say what changed in the imperative mood, in lower case, with "
    "a prefix (fix, feat, build, chore, ci, docs, style, refactor, perf, test), in at most 72 characters.\n\n"
    "Answer with the message and nothing else.\n"
)
RULES = """Act as an expert software developer.
Always use best practices when coding.
Keep to the conventions, the libraries and the layout that the code already has.
Take requests for changes to the code in the chat. Where a request can be read in two ways, ask.

Once you understand the request:

1. Decide whether a file has to change that is not in the chat yet. If so, name it by its full path, and stop: it will
   be added. Never change a file that you have not been shown.
2. Think step by step, and say in a few sentences what you are going to do.
3. Describe every change by a *SEARCH/REPLACE block*. Code is returned in no other form.

# *SEARCH/REPLACE block* Rules:

Every block is written like this:
1. The full path of the file alone on a line. No bold, no quotes, no escapes.
2. The opening fence and the language: ```python
3. The start of the search block: <<<<<<< SEARCH
4. Lines that stand in the file now, one after another, character by character, with comments and white space.
5. The dividing line: =======
6. The lines that take their place.
7. The end of the replace block: >>>>>>> REPLACE
8. The closing fence: ```

A block replaces the first place that matches, so show enough lines to make the place unique, and no more than that.
Break a long change up into several small blocks. To move code within a file, use two blocks: one that removes it, and
one that puts it in. An empty search part makes a new file. A path that only differs in its folder is another file.

# Example conversations:

## USER: Use math.prod in area()
## ASSISTANT: `area` multiplies by hand. I import `math` and let `prod` do it.

geometry/shapes.py
```python
<<<<<<< SEARCH
def area(sides):
    result = 1
    for side in sides:
        result *= side
    return result
=======
import math


def area(sides):
    return math.prod(sides)
>>>>>>> REPLACE
```

## USER: Give the greeting a file of its own
## ASSISTANT: I make `greeting.py` with the function in it, and import it where it was.

greeting.py
```python
<<<<<<< SEARCH
=======
def greeting(name):
    return f"Good morning, {name}"
>>>>>>> REPLACE
```

hello.py
```python
<<<<<<< SEARCH
def greeting(name):
    return f"Good morning, {name}"
=======
from greeting import greeting
>>>>>>> REPLACE
```

The user's machine:
- Platform: Linux-6.8-x86_64
- Shell: SHELL=/bin/bash
- Language: English
- Current date: 2026-11-21
- The user is operating inside a git repository

Only ever return code in a *SEARCH/REPLACE block*!
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """One turn: the request, and the change that answers it. If ``old`` is empty, the new function ``added`` is
    appended."""

    path: str
    prompt: str
    commit: str
    function: int = 0
    old: str = ""
    new: str = ""
    added: tuple[int, int] = (0, 0)
    pause_s: float = 100.0


_LIMIT = "limit: int = 20"
_GUARD = "    row = store.get("
_ROUND = "quantize(CENT)"
_PUT = "        transaction.put("
_LOGGED = '        log.info("order %s: total is now %s", order_id, value)\n' + _PUT
_EMPTY = '        problems.append("name is empty")\n'

EDITS = (
    Edit("shop/pricing.py", "total_discount rounds the wrong way for half a cent. Round half up there.",
         "fix: round voucher totals half up", 1, _ROUND, "quantize(CENT, rounding=ROUND_HALF_UP)"),
    Edit("shop/pricing.py", "The same for total_amount, please.",
         "fix: round invoice totals half up", 8, _ROUND, "quantize(CENT, rounding=ROUND_HALF_UP)"),
    Edit("shop/orders.py", "Looking up an order with an empty id should fail early instead of asking the store.",
         "feat: refuse empty order ids", 0, _GUARD,
         '    if not order_id.strip():\n        raise ValueError("order_id must not be empty")\n' + _GUARD,
         pause_s=160),
    Edit("shop/orders.py", "Now the same check for baskets.", "feat: refuse empty basket ids", 7,
         _GUARD,
         '    if not basket_id.strip():\n        raise ValueError("basket_id must not be empty")\n' + _GUARD),
    Edit("tests/test_orders.py", "Add a test for the basket lookup.", "test: cover the basket lookup",
         added=(TEST_LOOKUP, 1)),
    Edit("shop/orders.py", "List 50 orders instead of 20 where nobody says how many.",
         "feat: list 50 orders by default", 3, _LIMIT, "limit: int = 50", pause_s=70),
    Edit("shop/orders.py", "And customers, too. 50 as well.", "feat: list 50 customers by default", 17, _LIMIT,
         "limit: int = 50", pause_s=55),
    Edit("shop/api.py", "A parcel with a name of more than 200 characters breaks the label printer. Check for it.",
         "fix: refuse parcel names that do not fit the label", 2, _EMPTY,
         _EMPTY + '    if len(parcel.name) > 200:\n        problems.append("name does not fit the label")\n',
         pause_s=520),
    Edit("shop/api.py", "Stalls are printed by the same printer.", "fix: refuse stall names that do not fit the label",
         9, _EMPTY, _EMPTY + '    if len(stall.name) > 200:\n        problems.append("name does not fit the label")\n'),
    Edit("tests/test_orders.py", "Tests for that in test_orders.py, please.", "test: cover names that do not fit",
         added=(TEST_NAME, 13), pause_s=85),
    Edit("shop/pricing.py", "Prices will depend on the season. Add the lookup, like the others.",
         "feat: look up seasons", added=(0, 14), pause_s=140),
    Edit("shop/orders.py", "Write the order's total to the log when it is changed.", "feat: log changed totals", 4,
         _PUT, _LOGGED, pause_s=120),
)  # fmt: skip


def editor_chat() -> Sample:
    """Twelve turns over five files. Each turn changes one file, and a commit message call follows it."""
    return Sample("editor", "aider-style editor", tuple(_requests()))


def chat_files() -> list[SourceFile]:
    """The five files in the chat, in their state at the beginning."""
    return [
        source_file("shop/orders.py", "Orders, and what they are made of.", range(4)),
        source_file("shop/ledger.py", "The ledger: every booking and its counterpart.", range(8, 14)),
        source_file("shop/pricing.py", "Prices, vouchers and invoices.", (6, 5, 11)),
        source_file("shop/api.py", "What the web site calls.", (4, 13, 12, 14)),
        file_of_tests("tests/test_orders.py", "Tests of orders.", range(15)),
    ]


def _requests() -> Iterator[Request]:
    files, done, at = chat_files(), list[Message](), BEGIN
    for number, edit in enumerate(EDITS):
        at += edit.pause_s
        messages = [
            system(RULES), user(repository_map(number)), assistant(_MAP_ACK), *done,
            user(shown({file.path: file.text for file in files})), assistant(FILES_ACK), user(edit.prompt),
        ]  # fmt: skip
        yield Request(at, chat(messages, stream=True, temperature=0))
        before = next(file for file in files if file.path == edit.path)
        after = changed(before, edit)
        files = [after if file is before else file for file in files]
        answer = _answer(before, after, edit)
        at += 21
        commit = user(f"\nUSER: {edit.prompt}\n\nASSISTANT: {answer}\n\n\n# Diffs:\n{_diff(before, after)}")
        yield Request(at, chat([system(_COMMIT_SYSTEM), commit], stream=False, temperature=0))
        done += committed(edit.prompt, answer, edit.commit, after.text)


def committed(prompt: str, answer: str, commit: str, text: str) -> list[Message]:
    """A turn and its commit, whose hash is made of a text."""
    told = f"I committed the changes with git hash {sha256(text.encode()).hexdigest()[:7]} & commit msg: {commit}"
    return [user(prompt), assistant(answer), user(told), assistant("Ok.")]


def changed(file: SourceFile, edit: Edit) -> SourceFile:
    """The file after a turn."""
    if not edit.old:
        return file.with_function(function(*edit.added))
    return file.with_change(edit.function, edit.old, edit.new)


def shown(files: Mapping[str, str]) -> str:
    """The message that shows the files, in the form that aider writes."""
    lines = [line for text in files.values() for line in text.splitlines()]
    fitting = (pair for pair in _FENCES if not any(line.startswith(pair) for line in lines))
    opening, closing = next(fitting, _FENCES[0])
    texts = ((path, line_ended(text) or "\n") for path, text in files.items())
    return FILES_OPENING + "".join(f"\n{path}\n{opening}\n{text}{closing}\n" for path, text in texts)


def line_ended(text: str) -> str:
    """The text with a line break at its end. An empty text stays empty."""
    return text if not text or text.endswith("\n") else text + "\n"


def repository_map(turn: int) -> str:
    """The map with the signatures of other files. It shows the files that the chat has mentioned, so it changes from
    turn to turn."""
    entries, shift = [_MAP], turn - (turn % 3 == 2)
    for number in range(14):
        file = source_file(f"shop/area_{number}/service.py", "", (number, number + 3))
        names = [f for i, f in enumerate(file.functions) if (i * 7 + number + (shift + number) // 5) % 3]
        lines = "".join(f"⋮\n│{f.signature}\n" for f in names)
        entries.append(f"\n{file.path}:\n{lines}⋮\n")
    return "".join(entries)


def _answer(before: SourceFile, after: SourceFile, edit: Edit) -> str:
    if edit.old:
        searched, replaced = before.functions[edit.function].text, after.functions[edit.function].text
    else:
        searched = before.functions[-1].text
        replaced = searched + "\n" + after.functions[-1].text
    blocks = f"<<<<<<< SEARCH\n{searched}=======\n{replaced}>>>>>>> REPLACE\n"
    return f"This is one change in `{edit.path}`; the callers stay as they are.\n\n{edit.path}\n```python\n{blocks}```"


def _diff(before: SourceFile, after: SourceFile) -> str:
    old, new = (file.text.splitlines(keepends=True) for file in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{before.path}", f"b/{after.path}"))
