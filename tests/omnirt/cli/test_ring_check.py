from omnirt.cli.ring_check import one_way_us


def test_another_process_answers_through_the_ring():
    assert one_way_us(rounds=20) > 0
