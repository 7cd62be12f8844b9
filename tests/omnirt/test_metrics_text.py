"""What is written is what others read."""

import math

from prometheus_client.parser import text_string_to_metric_families

from omnirt.metrics_text import Family, text_of


def read(*families):
    return {family.name: family for family in text_string_to_metric_families(text_of(families).decode())}


def test_counters_and_gauges_are_read_back():
    counter, gauge = Family("a_total", "counter", "Counted.", []), Family("b", "gauge", "Seen.", [])
    counter.add({"x": "1", "y": "2"}, 12_345_678_901_234)
    counter.add({"x": "2", "y": "2"}, 0.1 + 0.2)
    gauge.add({}, 3)
    found = read(counter, gauge)
    assert (found["a"].type, found["a"].documentation) == ("counter", "Counted.")
    assert [(sample.labels, sample.value) for sample in found["a"].samples] == [
        ({"x": "1", "y": "2"}, 12_345_678_901_234.0),
        ({"x": "2", "y": "2"}, 0.1 + 0.2),
    ]
    assert (found["b"].type, found["b"].samples[0].labels, found["b"].samples[0].value) == ("gauge", {}, 3.0)


def test_a_histogram_ends_with_its_sum_and_its_count():
    family = Family("h", "histogram", "Spread.", [])
    family.add_histogram({"s": "x"}, [("0.1", 1), ("2.5", 4), ("+Inf", 5)], 7.25)
    (found,) = read(family).values()
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in found.samples] == [
        ("h_bucket", "0.1", 1.0), ("h_bucket", "2.5", 4.0), ("h_bucket", "+Inf", 5.0),
        ("h_sum", None, 7.25), ("h_count", None, 5.0),
    ]  # fmt: skip


def test_any_text_may_be_a_label():
    family = Family("g", "gauge", 'of "all" \\ kinds\nof text', [])
    odd = 'a"b\\c\nd{e="f"},'
    family.add({"x": odd}, 1)
    (found,) = read(family).values()
    assert found.samples[0].labels == {"x": odd}


def test_numbers_that_are_none_have_their_words():
    family = Family("g", "gauge", "Odd.", [])
    for value in (math.inf, -math.inf, math.nan):
        family.add({"x": str(value)}, value)
    assert [line.split()[-1] for line in family.lines] == ["+Inf", "-Inf", "NaN"]
    assert len(read(family)["g"].samples) == 3


def test_a_family_without_a_line_is_left_out():
    assert text_of([Family("a", "gauge", "Nothing.", [])]) == b""
