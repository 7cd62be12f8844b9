import pytest
from tts_asker import Stream
from tts_figures import CLOSED, OPEN, figures, is_served, merged, table
from tts_load import Load

MS = 1_000_000


def stream(number, ttfp_ms=10, code="", samples=48_000, deficit_ms=0):
    began = number * MS
    if code:
        return Stream(number, began, began + 100 * MS, code)
    return Stream(
        number, began, began + 1000 * MS, "",
        first_ns=began + ttfp_ms * MS, last_ns=began + (ttfp_ms + 240) * MS,
        packets=4, first_samples=1920, samples=samples, deficit_ns=deficit_ms * MS, underruns=int(deficit_ms > 0),
    )  # fmt: skip


def test_figures_of_a_repetition():
    streams = [stream(0, 10), stream(1, 20), stream(2, 30, deficit_ms=5), stream(3, code="503 overloaded")]
    found = figures(Load(streams, [0.2, 0.3]), 25)
    assert found["seconds"] == pytest.approx(1.002)
    assert found["audio_s_per_s"] == pytest.approx(6 / 1.002)
    assert (found["requests"], found["whole"], found["errors"], found["wrong"]) == (4, 3, 1, 0)
    assert found["codes"] == {"503 overloaded": 1}
    assert (found["ttfp_ms_p50"], found["worst_deficit_ms"]) == (20, 5)
    assert found["frame_ms_p50"] == 10  # 240 ms for the 24 frames after the first packet's one
    assert found["dry_share"] == pytest.approx(1 / 3)
    assert (found["client_share"], found["client_busiest"]) == (0.5, 0.3)


def test_answers_of_another_length_are_counted():
    assert figures(Load([stream(0), stream(1, samples=46_080)], [0.1]), 25)["wrong"] == 1


def test_a_level_where_nothing_worked_has_figures_too():
    found = figures(Load([stream(0, code="timeout")], [0.1]), 25)
    assert (found["whole"], found["audio_s_per_s"], found["worst_deficit_ms"]) == (0, 0, None)
    assert "-" in table(
        [{"name": "C=1", **merged([found, figures(Load([stream(0)], [0.1]), 25)])}, {"name": "x"}], CLOSED
    )


def test_repetitions_give_medians_sums_and_the_worst():
    levels = [
        figures(Load([stream(number, ttfp, deficit_ms=late) for number in range(2)], [0.1]), 25)
        for ttfp, late in ((10, 0), (30, 7), (11, 0))
    ]
    found = merged(levels)
    assert found["ttfp_ms_p50"] == 11
    assert (found["requests"], found["worst_deficit_ms"], found["dry_share"]) == (6, 7, 1.0)


def test_figures_that_some_repetitions_lack_come_from_the_others():
    assert merged([{"codes": {}, "gpu_mib": None}, {"codes": {"a": 1}, "gpu_mib": 5.0}]) == {
        "codes": {"a": 1},
        "gpu_mib": 5.0,
    }


@pytest.mark.parametrize(
    ("change", "served"),
    [({}, True), ({"errors": 1}, False), ({"ttfp_ms_p95": 81.0}, False), ({"dry_share": 0.006}, False)],
)
def test_a_rate_is_served_within_all_its_goals(change, served):
    assert is_served({"errors": 0, "ttfp_ms_p95": 80.0, "dry_share": 0.005} | change) is served


def test_a_table_leaves_out_what_nothing_has():
    text = table([{"name": "C=1", **figures(Load([stream(0)], [0.1]), 25)}], OPEN)
    assert "floor" not in text
    assert "GPU" not in text
    assert text.splitlines()[1].startswith("C=1")
