from proxy.protocol.caches import Bill, PromptPositions


def test_the_four_rates_add_up() -> None:
    bill = Bill(read=10, write_5m=20, write_1h=30, plain=40)
    assert (bill.write, bill.total, bill.hit) == (50, 100, -1)


def test_a_prompt_is_as_long_as_its_last_position_ends() -> None:
    assert PromptPositions(b"s", (b"a", b"b"), (5, 12), (0, 1)).total == 12
    assert PromptPositions(b"s", (), (), ()).total == 0
