import re

from proxy.protocol.recognition import CLAIM_HEADERS, PART_ACKNOWLEDGEMENT, TAG_CLOSE, TAG_OPEN, FileClaim
from tests.fidelity import words


def test_every_claim_has_a_header_of_its_own() -> None:
    assert set(CLAIM_HEADERS) == set(FileClaim)
    assert len(set(CLAIM_HEADERS.values())) == len(FileClaim)


def test_no_word_carries_a_number_or_a_time() -> None:
    for text in (*CLAIM_HEADERS.values(), PART_ACKNOWLEDGEMENT, TAG_OPEN, TAG_CLOSE):
        assert not re.search(r"\d", text)


def test_fixed_texts_are_the_words_that_the_checker_knows() -> None:
    assert {claim.value: header for claim, header in CLAIM_HEADERS.items()} == words.HEADERS
    assert (PART_ACKNOWLEDGEMENT, TAG_OPEN, TAG_CLOSE) == (words.ACKNOWLEDGEMENT, words.TAG_OPEN, words.TAG_CLOSE)


def test_a_header_ends_where_the_clients_text_begins() -> None:
    assert all(header.endswith("\n\n") for header in CLAIM_HEADERS.values())
