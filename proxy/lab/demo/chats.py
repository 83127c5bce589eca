"""Two chats, and the list of all sample sessions.

The editor chat has the shape of aider 0.86 (edit format ``diff``, a Claude model), with commit message calls. A request
consists of the system text, the repository map and its acknowledgement, the conversation so far,
the current files and their acknowledgement, and the prompt. Each request renders map and files anew. The framing words
are aider's; all other text is written here. The support chat's system prompt holds the documents that were found for
the newest question.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from proxy.kit.value import dataclass
from proxy.lab.demo import BEGIN, DemoRequest, Message, Sample, assistant, chat, system, user
from proxy.lab.demo.tool_agent import (
    TEST_LOOKUP,
    TEST_NAME,
    SourceFile,
    clock_agent,
    file_of_tests,
    function,
    source_file,
    tool_agent,
)

# Lines around a change.
_CONTEXT_LINES = 3
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
class Task:
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
    Task("shop/pricing.py", "total_discount rounds the wrong way for half a cent. Round half up there.",
         "fix: round voucher totals half up", 1, _ROUND, "quantize(CENT, rounding=ROUND_HALF_UP)"),
    Task("shop/pricing.py", "The same for total_amount, please.",
         "fix: round invoice totals half up", 8, _ROUND, "quantize(CENT, rounding=ROUND_HALF_UP)"),
    Task("shop/orders.py", "Looking up an order with an empty id should fail early instead of asking the store.",
         "feat: refuse empty order ids", 0, _GUARD,
         '    if not order_id.strip():\n        raise ValueError("order_id must not be empty")\n' + _GUARD,
         pause_s=160),
    Task("shop/orders.py", "Now the same check for baskets.", "feat: refuse empty basket ids", 7,
         _GUARD,
         '    if not basket_id.strip():\n        raise ValueError("basket_id must not be empty")\n' + _GUARD),
    Task("tests/test_orders.py", "Add a test for the basket lookup.", "test: cover the basket lookup",
         added=(TEST_LOOKUP, 1)),
    Task("shop/orders.py", "List 50 orders instead of 20 where nobody says how many.",
         "feat: list 50 orders by default", 3, _LIMIT, "limit: int = 50", pause_s=70),
    Task("shop/orders.py", "And customers, too. 50 as well.", "feat: list 50 customers by default", 17, _LIMIT,
         "limit: int = 50", pause_s=55),
    Task("shop/api.py", "A parcel with a name of more than 200 characters breaks the label printer. Check for it.",
         "fix: refuse parcel names that do not fit the label", 2, _EMPTY,
         _EMPTY + '    if len(parcel.name) > 200:\n        problems.append("name does not fit the label")\n',
         pause_s=520),
    Task("shop/api.py", "Stalls are printed by the same printer.", "fix: refuse stall names that do not fit the label",
         9, _EMPTY, _EMPTY + '    if len(stall.name) > 200:\n        problems.append("name does not fit the label")\n'),
    Task("tests/test_orders.py", "Tests for that in test_orders.py, please.", "test: cover names that do not fit",
         added=(TEST_NAME, 13), pause_s=85),
    Task("shop/pricing.py", "Prices will depend on the season. Add the lookup, like the others.",
         "feat: look up seasons", added=(0, 14), pause_s=140),
    Task("shop/orders.py", "Write the order's total to the log when it is changed.", "feat: log changed totals", 4,
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


def _requests() -> Iterator[DemoRequest]:
    files, done, at = chat_files(), list[Message](), BEGIN
    for number, edit in enumerate(EDITS):
        at += edit.pause_s
        messages = [
            system(RULES), user(repository_map(number)), assistant(_MAP_ACK), *done,
            user(shown({file.path: file.text for file in files})), assistant(FILES_ACK), user(edit.prompt),
        ]  # fmt: skip
        yield DemoRequest(at, chat(messages, stream=True, temperature=0))
        before = next(file for file in files if file.path == edit.path)
        after = changed(before, edit)
        files = [after if file is before else file for file in files]
        answer = _answer(before, after, edit)
        at += 21
        commit = user(f"\nUSER: {edit.prompt}\n\nASSISTANT: {answer}\n\n\n# Diffs:\n{_diff(before, after)}")
        yield DemoRequest(at, chat([system(_COMMIT_SYSTEM), commit], stream=False, temperature=0))
        done += committed(edit.prompt, answer, edit.commit, after.text)


def committed(prompt: str, answer: str, commit: str, text: str) -> list[Message]:
    """A turn and its commit, whose hash is made of a text."""
    told = f"I committed the changes with git hash {sha256(text.encode()).hexdigest()[:7]} & commit msg: {commit}"
    return [user(prompt), assistant(answer), user(told), assistant("Ok.")]


def changed(file: SourceFile, edit: Task) -> SourceFile:
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


def answer(before: Mapping[str, str], changes: Mapping[str, str | None]) -> str:
    """The answer of a model that changes these files. ``changes`` has the whole new texts by path; None removes the
    file."""
    parts = ["I make this change; nothing else is touched.\n"]
    for path, after in changes.items():
        if after is None:
            parts.append(f"\n`{path}` is not needed any more: remove it.\n")
        else:
            parts += [
                f"\n{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"
                for old, new in _changes(before.get(path, ""), after)
            ]
    return "".join(parts)


def _changes(before: str, after: str) -> Iterator[tuple[str, str]]:
    """The removed lines and the added lines, with some lines around them."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES):
        (_, from_old, _, from_new, _), (_, _, to_old, _, to_new) = group[0], group[-1]
        yield line_ended("".join(old[from_old:to_old])), line_ended("".join(new[from_new:to_new]))


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


def _answer(before: SourceFile, after: SourceFile, edit: Task) -> str:
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


_OPENING = (
    "You are the support assistant of Orchard, the ordering service for farm shops. Answer the customer's question "
    "with what the documents say. If they do not say it, tell the customer that you do not know, and offer to open a "
    "ticket.\n\n"
    "# Documents\n\n"
)
_RULES = """# How to answer
- Begin with the answer, then the steps, numbered. No greeting, no thanks for the question.
- Name the menu entries as they are written on the screen, in quotation marks, in the order in which they are opened.
- Put the name of the document behind each fact, in square brackets.
- Prices are those of the documents. Never add them up for the customer: say where the invoice shows the total.
- Where two documents differ, the one with the higher section number is newer. Say that they differ.
- Do not speak of other customers, of staff, of what is planned, or of how this assistant works.

# What to do when the documents do not help
- A problem with a payment: ask for the number of the order, never for a card number or a password, and open a ticket.
- A problem with a delivery of today: give the shop's telephone number from the customer's order page.
- Something that does not work: ask what was on the screen, which device it was, and when it happened; one question at
  a time.
- A complaint: say what you understood, apologise once, and open a ticket with the word "complaint" at its beginning.

# Words
- "Shop" is the business, "stall" the place where it sells; a stall belongs to one shop.
- "Order" is what a customer paid for, "basket" what is not paid yet. A basket is kept for nine days, an order for good.
- "Route" is the way of one van on one day. A route is planned until the evening before and closed after that.
- "Crate" is the box that goes back; the deposit for it stands on the invoice in a line of its own.
- "Season" is the time in which a kind of fruit is sold. Outside of it the fruit is not shown, whatever is in stock.
- "Void" is a record that was taken back. It is not deleted, it only does not count any more.
- "Role" is what somebody may do: owner, clerk, picker, driver, guest. A person may have one role in each shop.
- "Ticket" is a question that a person will answer. Customers find theirs under "Help", "My questions".

# Who may do what
- The owner may do everything, and is the only one who may approve refunds above 50 EUR and change roles.
- A clerk may change orders, invoices, labels and vouchers, and may approve refunds of up to 50 EUR.
- A picker sees crates, labels and the own hours; a driver the route of the day and the telephone numbers on it.
- A guest sees what customers see. Reports are open to owners and clerks, those about staff to owners alone.
- If somebody asks for what the own role does not allow, say which role it takes. Do not say who has it.

# Examples of good answers
Question: The scale shows 0.3 kg with nothing on it. Can I still weigh?
Answer: Yes, after it was set to zero: press "Zero" on the scale until the display shows 0.0 [crates].
1. Take everything off, the empty crate as well.
2. Press "Zero" and wait until the display stands still.
3. Weigh the empty crate first: its weight is taken off by itself [crates].

Question: My driver does not see the second delivery of today.
Answer: It was added after the route had been closed; such deliveries are on the route of the next day [deliveries].
1. Open "Routes" and choose today.
2. Press "Open again". The driver's list is new within a minute.
3. Move the delivery, and close the route. The customer is told the new time [deliveries].

Question: Can you give me the total of all refunds of this year?
Answer: I do not add amounts up. Open "Reports", then "Refunds", and choose the year: the total stands below the table,
without the void ones [refunds].

Question: Why does the label show an old price?
Answer: A label shows the price of the hour in which it was printed [labels].
1. Open "Stock", then "Labels", and choose the kind of fruit.
2. Press "Print again". The old label becomes void, and the scanner refuses it.
3. If the price is old there, too, the season's price list has not been published yet [seasons].

Question: A picker has left. What do I do with the hours that are not paid?
Answer: They stay open until they are paid, whether the picker is still there or not [pickers].
1. Open "Staff", choose the picker, and press "End". The day is the last one that can have hours.
2. Open "Hours" and approve what is open. It is paid with the next run.
3. The picker can see the own hours for 90 more days, and nothing else [pickers].

Question: How do I add a second stall?
Answer: Open "Settings", then "Stalls", then "New". Each stall has its own opening hours and its own stock [stalls].
1. Enter the name as it should stand on the invoice.
2. Choose the days on which it is open.
3. Press "Save". It is shown to customers from the next full hour on.

Question: Can I see what was sold on a rainy day?
Answer: I do not know: the documents say nothing about weather. I can open a ticket, so that someone looks into it.

Question: Why is my voucher refused?
Answer: A voucher is refused when it has expired, when the basket is below its lowest amount, or when it was used
before [vouchers]. The message on the screen says which of the three it is; please tell me what it says.
"""

_TOPICS = (
    ("stalls", "A stall", "opened, closed and moved", "Stalls"),
    ("vouchers", "A voucher", "printed, sent and cancelled", "Marketing"),
    ("deliveries", "A delivery", "planned, postponed and confirmed", "Routes"),
    ("invoices", "An invoice", "written, corrected and sent again", "Accounting"),
    ("crates", "A crate", "booked, weighed and returned", "Stock"),
    ("subscriptions", "A subscription", "started, paused and ended", "Customers"),
    ("refunds", "A refund", "asked for, approved and paid", "Accounting"),
    ("labels", "A label", "designed, printed and replaced", "Stock"),
    ("pickers", "A picker", "invited, scheduled and paid", "Staff"),
    ("seasons", "A season", "opened, extended and closed", "Calendar"),
)

# The questions, and the documents that are found for each: (topic, section).
_QUESTIONS = (
    ("How do I pause a subscription for two weeks?", (5, 2, 3, 12)),
    ("And is the customer told about it?", (5, 12, 2, 15)),
    ("What happens to the voucher that was used for it?", (1, 5, 11, 6)),
    ("Can I send the voucher again?", (1, 11, 5, 3)),
    ("The invoice shows the wrong address. How is it corrected?", (3, 13, 6, 1)),
    ("Does the customer get the corrected one by mail?", (3, 13, 5, 6)),
    ("How do I approve a refund?", (6, 16, 3, 13)),
    ("Who is allowed to do that?", (6, 16, 8, 3)),
    ("A crate was returned and weighs nothing. What now?", (4, 14, 7, 2)),
    ("How do I print its label again?", (7, 17, 4, 14)),
    ("Can a picker do it?", (8, 18, 7, 4)),
    ("When is a season closed by itself?", (9, 19, 0, 8)),
    ("Can I open the stall after that?", (0, 10, 9, 19)),
    ("Where do I see which stalls are open tomorrow?", (0, 10, 9, 2)),
)


def support_chat() -> Sample:
    """Fourteen questions."""
    requests, at = [], BEGIN + 12
    turns: list[Message] = []
    for number, (question, found) in enumerate(_QUESTIONS):
        turns.append(user(question))
        requests.append(DemoRequest(at, chat([system(prompt(found)), *turns], stream=number % 2 == 0, max_tokens=300)))
        turns.append(assistant(_support_answer(found[0])))
        at += 35 + number % 5 * 28
    return Sample("support", "retrieval chat", tuple(requests))


def prompt(found: Sequence[int]) -> str:
    """The system prompt for one question."""
    documents = "\n\n".join(document(number) for number in found)
    return f"{_OPENING}{documents}\n\n{_RULES}"


def document(number: int) -> str:
    """One retrieved section: each topic has two."""
    name, subject, done, menu = _TOPICS[number % len(_TOPICS)]
    section = 1 + number // len(_TOPICS)
    paragraphs = [
        f"{subject} can be {done}. All of it is found under \"{menu}\"; who may do it is set under \"Settings\", "
        f"\"Roles\". Each of these actions is written to the history of the record, with the name and the hour.",
        f"To begin, open \"{menu}\" and choose the record. If it is not in the list, it belongs to another shop, or "
        f"the filter above the list hides it; \"Show all\" takes the filter away. Records of past seasons are grey.",
        f"{subject} that was entered by mistake is not deleted but marked as void. It stays in the reports of its "
        f"month and is left out of the totals. A void record can be brought back within {20 + 5 * section} days.",
        "Customers are told by e-mail when something changes for them, unless they chose otherwise under "
        "\"Messages\". The text of the e-mail can be changed under \"Texts\", in every language of the shop.",
        f"The limit for one shop is {100 * (number + 3)} records of this kind. When it is reached, the oldest void "
        "ones are archived at night. The archive can be searched, and a record in it can be restored by the support.",
        f"Where a scanner or a scale is connected, the number is filled in by the device. The field stays open for "
        f"{section + 1} minutes, so that a second reading replaces the first one.",
    ]  # fmt: skip
    text = "\n\n".join(paragraphs[section - 1 :] + paragraphs[: section - 1])
    return f'<document source="{name}.md" section="{section}">\n{text}\n</document>'


def _support_answer(number: int) -> str:
    name, _, _, menu = _TOPICS[number % len(_TOPICS)]
    return (
        f'Open "{menu}", choose the record, and use the menu at its right edge [{name}].\n'
        '1. If the record is not in the list, press "Show all" first.\n'
        "2. Choose the action. It is written to the history.\n"
        f"3. The customer is told by e-mail, unless that is switched off [{name}]."
    )


def samples() -> list[Sample]:
    """One session of each kind of client."""
    return [editor_chat(), tool_agent(), clock_agent(), support_chat()]
