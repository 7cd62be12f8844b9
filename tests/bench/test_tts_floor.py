"""The floors of the full-size checkpoint are known numbers; see also bench/notes.md."""

import json
from types import SimpleNamespace

import pytest
from tts_floor import floor_of

BACKBONE = SimpleNamespace(width=2048, feed=6144, layers=28, heads=16, kv_heads=8, head=128)
PREDICTOR = SimpleNamespace(width=1024, feed=3072, layers=5, heads=16, kv_heads=8, head=128)
CONFIG = SimpleNamespace(backbone=BACKBONE, predictor=PREDICTOR, vocab=3072, codes=2048, books=16)


@pytest.fixture
def floor(tmp_path):
    (tmp_path / "speech_tokenizer").mkdir()
    (tmp_path / "speech_tokenizer" / "config.json").write_text(json.dumps({"decoder_config": {"decoder_dim": 1536}}))
    return floor_of(CONFIG, tmp_path)


def test_weights_and_cache_of_the_full_size(floor):
    assert 2 * floor.weights == pytest.approx(5.317e9, rel=1e-3)
    assert floor.kv_bytes == 114_688


def test_floors_of_a_frame_and_of_throughput(floor):
    assert floor.frame_s(1, 0) == pytest.approx(1.236e-3, rel=2e-3)
    assert floor.frame_s(64, 300) == pytest.approx(1.749e-3, rel=2e-3)
    assert floor.audio_s_per_s(1, 0) == pytest.approx(64.4, rel=5e-3)
    assert floor.audio_s_per_s(64, 300) == pytest.approx(2381, rel=5e-3)


def test_many_rows_are_bound_by_operations(floor):
    assert floor.frame_s(4096, 0) == pytest.approx(2 * floor.weights * 4096 / 790e12)


def test_floors_of_decoder_and_prefill(floor):
    assert floor.codec_s(1) == pytest.approx(0.049e-3, rel=1e-2)
    assert floor.codec_s(64, 4) == pytest.approx(64 * 4 * 4.96e9 / 790e12)
    assert floor.prefill_s(1) < floor.frame_s(1, 0)
    assert floor.prefill_s(10_000) > 10 * floor.prefill_s(1)


def test_a_decoder_of_another_size_has_no_floor(tmp_path):
    floor = floor_of(CONFIG, tmp_path)
    assert floor.codec_s(64) == 0
    assert floor.audio_s_per_s(64, 300) > 2381
