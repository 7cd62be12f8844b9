import asyncio
import time

from serve_read import Record
from tts_ask import Asking
from tts_asker import Job, run, stream_of

ASKING = Asking("http://here", 25)


class SlowClient:
    """Answers a tenth of a second of samples in two packets, once so many requests are under way."""

    def __init__(self, together=1):
        self._together = together
        self._reached = asyncio.Event()
        self.under_way = self.most = 0
        self.bodies = []

    async def ask(self, ask, began_ns=0):
        self.bodies.append(ask.body)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.under_way == self._together:
            self._reached.set()
        async with asyncio.timeout(30):
            await self._reached.wait()
        self.under_way -= 1
        now = time.monotonic_ns()
        return Record(began_ns or now, now, sound=[(now, 1200), (now, 1200)])


def test_a_closed_loop_keeps_so_many_under_way_and_asks_each_number_once():
    client = SlowClient(3)
    share = asyncio.run(run(Job(ASKING, 0, tuple(range(10, 19)), 3), client))
    assert sorted(stream.number for stream in share.streams) == list(range(10, 19))
    assert client.most == 3
    assert len(set(client.bodies)) == 9


def test_an_open_loop_counts_from_when_a_request_was_due():
    start = time.monotonic_ns()
    due = tuple(start + offset for offset in (0, 1_000_000, 2_000_000))
    share = asyncio.run(run(Job(ASKING, start, (5, 6, 7), 0, due), SlowClient(3)))
    assert {stream.number: stream.began_ns for stream in share.streams} == dict(zip((5, 6, 7), due, strict=True))


def test_a_stream_tells_what_a_player_heard():
    ms = 1_000_000
    record = Record(1 * ms, 500 * ms, sound=[(11 * ms, 2400), (131 * ms, 2400), (200 * ms, 2400)])
    stream = stream_of(4, record)
    assert (stream.number, stream.code, stream.packets, stream.samples) == (4, "", 3, 7200)
    assert (stream.first_ns, stream.last_ns, stream.first_samples) == (11 * ms, 200 * ms, 2400)
    assert (stream.deficit_ns, stream.underruns) == (20 * ms, 1)  # 100 ms were there, the next packet came after 120


def test_an_answer_without_sound_is_an_error():
    assert stream_of(0, Record(1, 2)).code == "silent"
    assert stream_of(0, Record(1, 2, "503 overloaded")).code == "503 overloaded"
