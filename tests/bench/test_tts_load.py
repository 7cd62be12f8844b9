import pytest
from tts_ask import Asking
from tts_asker import Stream
from tts_load import Load, closed_jobs, opened_jobs, poisson_ns, started_at

ASKING = Asking("http://here", 25)


@pytest.mark.parametrize(("concurrency", "requests", "processes"), [(1, 12, 4), (8, 32, 3), (64, 256, 4), (3, 12, 1)])
def test_a_closed_loop_is_dealt_out_in_the_same_proportion_everywhere(concurrency, requests, processes):
    jobs = closed_jobs(ASKING, concurrency, range(100, 100 + requests), processes)
    assert len(jobs) == min(processes, concurrency)
    assert sum(job.askers for job in jobs) == concurrency
    assert sorted(number for job in jobs for number in job.numbers) == list(range(100, 100 + requests))
    assert {len(job.numbers) / job.askers for job in jobs} == {requests / concurrency}


def test_an_open_loop_is_dealt_out_in_turn_with_each_request_s_own_time():
    jobs = opened_jobs(ASKING, 50, [0, 10, 20, 30, 40], 2)
    assert [(job.numbers, job.due_ns) for job in jobs] == [((50, 52, 54), (0, 20, 40)), ((51, 53), (10, 30))]
    assert all(job.askers == 0 for job in jobs)
    assert len(opened_jobs(ASKING, 0, [0], 4)) == 1


def test_all_jobs_start_at_the_same_moment():
    (job,) = opened_jobs(ASKING, 0, [0, 7], 1)
    started = started_at(job, 1000)
    assert (started.start_ns, started.due_ns) == (1000, (1000, 1007))


def test_arrivals_are_the_same_for_a_seed_and_come_at_their_rate():
    due = poisson_ns(100, 50, 1)
    assert due == poisson_ns(100, 50, 1) != poisson_ns(100, 50, 2)
    assert due[0] == 0
    assert due == sorted(due)
    assert due[-1] < 50e9
    assert 4500 < len(due) < 5500


def test_a_load_lasts_from_the_first_request_to_the_end_of_the_last_answer():
    streams = [Stream(0, 1_000_000_000, 3_000_000_000, ""), Stream(1, 500_000_000, 2_000_000_000, "")]
    assert Load(streams, [0.1]).seconds == 2.5
