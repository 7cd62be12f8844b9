import asyncio

from serve_ask import Ask
from serve_load import Extent, closed, opened
from serve_read import Record


class SlowClient:
    """Answers once so many requests have been under way together, and then at once."""

    def __init__(self, together):
        self._together = together
        self._reached = asyncio.Event()
        self.asked = []
        self.due = []
        self.under_way = self.most = 0

    async def ask(self, ask, began_ns=0):
        self.asked.append(ask.path)
        self.due.append(began_ns)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.under_way == self._together:
            self._reached.set()
        async with asyncio.timeout(30):
            await self._reached.wait()
        self.under_way -= 1
        return Record(began_ns)


def make(number):
    return Ask(str(number), "", b"", "whole")


def test_a_closed_loop_keeps_so_many_under_way_and_asks_each_once():
    client = SlowClient(4)
    records = asyncio.run(closed(client, make, 4, Extent(10)))
    assert len(records) == 10
    assert client.most == 4
    assert sorted(client.asked, key=int) == [str(number) for number in range(10)]


def test_an_open_loop_does_not_wait_for_answers():
    client = SlowClient(20)
    run = opened(client, make, 1e6, 1, Extent(20))
    records = asyncio.run(run)
    assert len(records) == 20
    assert client.most == 20


def test_an_open_loop_comes_at_the_same_times_for_the_same_seed():
    def gaps(seed):
        client = SlowClient(1)
        asyncio.run(opened(client, make, 1e4, seed, Extent(10)))
        return [after - before for before, after in zip(client.due, client.due[1:], strict=False)]

    assert gaps(1) == gaps(1) != gaps(2)
    assert all(gap > 0 for gap in gaps(1))


def test_a_load_of_seconds_ends_after_them():
    assert list(Extent(3).numbers()) == [0, 1, 2]
    assert list(Extent(3, seconds=1e-9).numbers()) == []
