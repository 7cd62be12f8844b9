import pytest
from serve_figures import MEASURES, is_good, parse_goals, percentile, summary, table
from serve_read import Record

MS, NS = 1_000_000, 1_000_000_000


def answer(**given):
    """Two seconds of sound within one second, first text after 100 ms, first sound after 300."""
    whole = {
        "ended_ns": NS,
        "text_ns": [100 * MS, 150 * MS, 250 * MS],
        "sound": [(300 * MS, 24_000), (900 * MS, 24_000)],
        "completion_tokens": 4,
    }
    return Record(0, **(whole | given))


def test_percentiles_lie_between_ranks():
    assert [percentile([4, 1, 3, 2], percent) for percent in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile([7], 99) == 7
    assert percentile(range(101), 99) == pytest.approx(99)


def test_each_measure_is_what_its_definition_says():
    values = {name: measure(answer()) for name, measure in MEASURES.items()}
    assert values["ttft_ms"] == 100
    assert values["ttfp_ms"] == 300
    assert values["e2el_ms"] == 1000
    assert values["tpot_ms"] == 50
    assert values["rtf"] == 0.5
    assert (values["deficit_ms"], values["underruns"]) == (0, 0)


def test_a_truncated_answer_changes_the_real_time_factor():
    assert MEASURES["rtf"](answer(sound=[(300 * MS, 24_000)])) == 1.0


def test_the_time_to_the_first_sound_is_part_of_the_real_time_factor():
    late = answer(sound=[(900 * MS, 24_000), (950 * MS, 24_000)])
    assert MEASURES["rtf"](late) == MEASURES["rtf"](answer())


def test_a_recording_that_was_sent_is_the_length_only_where_nothing_is_spoken():
    assert MEASURES["rtf"](Record(0, ended_ns=NS, sent_s=4.0)) == 0.25
    assert MEASURES["rtf"](answer(sent_s=4.0)) == 0.5
    assert MEASURES["rtf"](answer(sound=[], sent_s=4.0)) is None


def test_a_player_that_ran_dry_is_found():
    late = answer(sound=[(300 * MS, 4_800), (900 * MS, 24_000)])  # 200 ms of sound, then 600 ms without
    assert MEASURES["deficit_ms"](late) == pytest.approx(400)
    level = summary([late, answer()], {})
    assert (level["dry_share"], level["worst_deficit_ms"]) == (0.5, pytest.approx(400))


def test_a_goal_changes_the_goodput():
    records = [answer(), answer(sound=[(600 * MS, 24_000)])]
    assert summary(records, {})["good_share"] == 1
    assert summary(records, parse_goals(["ttfp_ms=500"], "chat-audio"))["good_share"] == 0.5
    assert not is_good(answer(sound=[]), {"ttfp_ms": 500})
    assert not is_good(answer(code="broken"), {})


@pytest.mark.parametrize("name", ["ttfp", "ttfp_s=1", "TTFT_ms=1", "=1"])
def test_a_goal_nobody_knows_is_refused_with_the_valid_ones(name):
    with pytest.raises(ValueError, match="ttft_ms, ttfp_ms, e2el_ms, tpot_ms, rtf, deficit_ms, underruns"):
        parse_goals([name], "chat-audio")


def test_a_goal_that_a_workload_cannot_meet_is_refused():
    with pytest.raises(ValueError, match="no goal 'ttfp_ms' for chat-text; there are: ttft_ms, e2el_ms, tpot_ms"):
        parse_goals(["ttfp_ms=500"], "chat-text")
    with pytest.raises(ValueError, match="needs a number"):
        parse_goals(["ttft_ms=fast"], "chat-text")


def test_throughput_counts_whole_answers_over_the_whole_time():
    level = summary([answer(), answer(ended_ns=2 * NS), answer(code="429 queue_full")], {})
    assert (level["requests"], level["whole"], level["errors"]) == (3, 2, {"429 queue_full": 1})
    assert (level["seconds"], level["requests_per_s"], level["tokens_per_s"]) == (2.0, 1.0, 4.0)
    assert level["audio_s_per_s"] == 2.0


def test_tokens_are_never_guessed():
    level = summary([answer(completion_tokens=None)], {})
    assert level["tokens_per_s"] is None
    assert "tpot_ms" not in level["spread"]


def test_the_table_has_a_column_group_for_each_level_and_no_empty_rows():
    levels = {"1 at a time": summary([answer()], {}), "8 at a time": summary([answer(code="timeout")], {})}
    shown = table(levels, {"ttft_ms": 200.0})
    lines = {line[:24].strip(): line[24:].split() for line in shown.splitlines()}
    assert lines["TTFT ms"] == ["100.0", "100.0", "100.0", "-", "-", "-"]
    assert lines["errors"] == ["none", "1", "x", "timeout"]
    assert lines["good answers/s"] == ["1.000", "(100.0", "%)", "0.000", "(0.0", "%)"]
    assert "RTF" not in table({"1 at a time": summary([answer(sound=[])], {})}, {})
