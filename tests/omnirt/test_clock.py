import asyncio

from omnirt.clock import NS, LoopClock, monotonic_ns, unix_s


def test_the_monotonic_clock_never_goes_back():
    readings = [monotonic_ns() for _ in range(100)]
    assert readings == sorted(readings)


def test_unix_time_is_in_this_century():
    assert unix_s() > 1_600_000_000


def test_the_clock_of_a_loop_calls_once_and_in_order():
    async def main():
        clock = LoopClock(asyncio.get_running_loop())
        called, done = [], asyncio.Event()
        now = clock.now_ns()
        clock.call_at(now + NS // 50, lambda: (called.append("late"), done.set()))
        clock.call_at(now - NS, lambda: called.append("past"))
        clock.call_at(now + NS // 100, lambda: called.append("cancelled")).cancel()
        await asyncio.wait_for(done.wait(), 30)
        return called

    assert asyncio.run(main()) == ["past", "late"]
