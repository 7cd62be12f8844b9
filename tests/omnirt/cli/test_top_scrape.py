"""Counters at two moments."""

import math

import pytest

from omnirt.cli.top_scrape import History, Scrape, growth, parse, quantile, rate

S = 1_000_000_000


def scrape(at_s, text):
    return Scrape(int(at_s * S), {}, parse(text))


def steps(at_s, **values):
    lines = [f'steps_total{{process="{process}",stage="tts"}} {value}' for process, value in values.items()]
    return scrape(at_s, "# TYPE steps counter\n" + "\n".join(lines) + "\n")


def times(at_s, counts):
    lines = [f'wait_seconds_bucket{{le="{edge}",surface="chat"}} {count}' for edge, count in counts.items()]
    return scrape(at_s, "# TYPE wait_seconds histogram\n" + "\n".join(lines) + "\n")


def test_a_value_is_summed_over_the_labels_that_were_not_named():
    now = steps(0, a=3, b=4)
    assert now.value("steps_total", stage="tts") == 7
    assert now.value("steps_total", process="b") == 4
    assert now.value("steps_total", stage="other") == now.value("nothing") == 0
    assert now.values_of("process", "steps_total") == ["a", "b"]


def test_a_rate_is_growth_over_time():
    assert rate(steps(12, a=50), steps(10, a=30), "steps_total") == 10
    assert math.isnan(rate(steps(12, a=50), None, "steps_total"))


def test_a_counter_that_began_again_has_grown_by_what_it_is():
    assert growth(steps(12, a=5, b=20), steps(10, a=30, b=10), "steps_total") == 15
    assert growth(steps(12, a=5, new=7), steps(10, a=3), "steps_total") == 9


def test_without_anything_before_growth_is_all_there_is():
    assert growth(steps(1, a=5), None, "steps_total", stage="tts") == 5


def test_a_quantile_lies_where_its_share_of_the_growth_does():
    before = times(0, {"0.1": 100, "0.2": 100, "0.4": 100, "+Inf": 100})
    now = times(1, {"0.1": 100, "0.2": 108, "0.4": 110, "+Inf": 110})
    assert quantile(now, before, "wait_seconds", 0.5, surface="chat") == pytest.approx(0.1 + 0.1 * 5 / 8)
    assert quantile(now, before, "wait_seconds", 0.9, surface="chat") == pytest.approx(0.3)
    assert quantile(now, None, "wait_seconds", 0.5) == pytest.approx(0.055)


def test_a_quantile_of_nothing_is_no_number_and_beyond_the_last_edge_infinite():
    now = times(1, {"0.1": 1, "+Inf": 10})
    assert quantile(now, None, "wait_seconds", 0.99) == math.inf
    assert math.isnan(quantile(now, now, "wait_seconds", 0.5))
    assert math.isnan(quantile(now, None, "wait_seconds", 0.5, surface="speech"))


def test_the_history_keeps_a_minute_and_what_was_before_it():
    history = History(60)
    assert history.before(10) is None
    for at_s in range(0, 200, 2):
        history.add(steps(at_s, a=at_s))
    assert history.before(10).at_ns == 188 * S
    assert history.before(math.inf).at_ns == 138 * S
    history.clear()
    assert history.before(10) is None


def test_a_young_history_gives_its_oldest():
    history = History(60)
    history.add(steps(0, a=0))
    history.add(steps(2, a=0))
    assert history.before(10).at_ns == 0


def test_a_page_that_is_no_metrics_is_said():
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the library's
        parse("<html>hello</html>")
