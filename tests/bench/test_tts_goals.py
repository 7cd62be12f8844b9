from tts_goals import verdicts


def row(name, **figures):
    return {"name": name, "errors": 0, "dry_share": 0.0, "worst_deficit_ms": 0.0, **figures}


DOCUMENT = {
    "closed": {"levels": [row("C=1", audio_s_per_s=30.0, ttfp_ms_p50=11.0), row("C=64", audio_s_per_s=700.0)]},
    "engine": {"levels": [row("C=64", audio_s_per_s=1000.0)]},
    "open": {
        "levels": [
            row("10 a second", rate=10.0, ttfp_ms_p95=14.0),
            row("20 a second", rate=20.0, ttfp_ms_p95=79.0),
            row("50 a second", rate=50.0, ttfp_ms_p95=500.0),
        ]
    },
    "unread": {"cost": 0.01},
    "server": {"ready_s": 26.0, "gpu_mib": 10_000.0},
}


def found(document, is_clone=False):
    return {
        line[:58].strip(): line[58:].split("goal")[0].strip() + " " + line.split()[-1]
        for line in verdicts(document, is_clone=is_clone)
    }


def test_every_measured_goal_has_its_verdict():
    lines = verdicts(DOCUMENT, is_clone=False)
    assert any("audio-s/s at C=1 " in line and "MISS (first mark of 28 met)" in line for line in lines)
    verdict = found(DOCUMENT)
    assert verdict["audio-s/s at C=64"] == "700 MISS"
    assert verdict["TTFP p50 at C=1, ms"] == "11 met"
    assert verdict["highest rate with p95 <= 80 ms and 0.5 % dry, a second"] == "20 MISS"
    assert verdict["through HTTP, of the engine alone, at C=64"] == "0.7 MISS"
    assert verdict["cost of one unread listener to the others"] == "0.01 met"
    assert verdict["start to ready, s"] == "26 MISS"
    assert verdict["GPU memory, GB"] == "10.5 met"
    assert verdict["worst play-out deficit, ms"] == "0 met"


def test_what_was_not_measured_has_none():
    assert verdicts({}, is_clone=False) == []
    assert "audio-s/s at C=16" not in found(DOCUMENT)


def test_clones_have_goals_of_their_own():
    document = {"closed": {"levels": [row("C=64", audio_s_per_s=950.0, ttfp_ms_p50=70.0)]}}
    assert found(document, is_clone=True)["audio-s/s at C=64, cloned"] == "950 met"
    assert found(document, is_clone=True)["TTFP p50 at C=64, cloned, ms"] == "70 MISS"
