"""A support chat whose system prompt holds the documents that were found for the newest question."""

from collections.abc import Sequence

from proxy.demo.sample import BEGIN, Message, Request, Sample, assistant, chat, system, user

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
        requests.append(Request(at, chat([system(prompt(found)), *turns], stream=number % 2 == 0, max_tokens=300)))
        turns.append(assistant(_answer(found[0])))
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


def _answer(number: int) -> str:
    name, _, _, menu = _TOPICS[number % len(_TOPICS)]
    return (
        f'Open "{menu}", choose the record, and use the menu at its right edge [{name}].\n'
        '1. If the record is not in the list, press "Show all" first.\n'
        "2. Choose the action. It is written to the history.\n"
        f"3. The customer is told by e-mail, unless that is switched off [{name}]."
    )
