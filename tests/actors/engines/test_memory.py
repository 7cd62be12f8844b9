import mmap

import numpy as np
import pytest

from omnirt.actors.engines import loading
from omnirt.actors.engines.language import LanguageEngine
from omnirt.actors.engines.memory import Rows, free_bytes, lazy_zeros, planned, whole_blocks
from omnirt.actors.models.decoder.config import read_config
from omnirt.errors import ConfigError

GIB = 1 << 30


@pytest.fixture
def config(checkpoint):
    return read_config(checkpoint)


def plan(config, **options):
    wish = {"weights_bytes": 0, "rows": 4, "context_max": 0, "cache_blocks": 0, "free_bytes": GIB, **options}
    return planned(config, **wish)


def test_the_context_is_the_models_where_memory_is_plenty(config):
    assert plan(config).context == config.context
    assert plan(config, context_max=100).context == 100


def test_the_context_shrinks_to_what_fits(config):
    long = config.__class__(**{**{f: getattr(config, f) for f in config.__struct_fields__}, "context": 100_000})
    found = plan(long, free_bytes=10 * 4 * 1000 * long.kv_bytes // 8)
    assert found.context == 992  # 0.8 of it holds 1000 tokens of four rows; in blocks of 16
    assert found.total_bytes <= 4 * 1000 * long.kv_bytes


def test_what_does_not_fit_is_said_in_numbers_with_what_would_help(config):
    with pytest.raises(ConfigError, match=r"weights 2\.00.*0\.80 of 1\.00 GiB.*rows_max"):
        plan(config, weights_bytes=2 * GIB)
    with pytest.raises(ConfigError, match="context_max = 401 is more than max_position_embeddings = 400"):
        plan(config, context_max=401)


def test_an_engine_that_does_not_fit_is_refused_before_it_loads(checkpoint, monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda: 1 << 20)
    with pytest.raises(ConfigError, match="does not fit"):
        LanguageEngine.load(checkpoint)


def test_some_memory_is_free_here():
    assert (64 << 20) < free_bytes() < (1 << 50)


def test_lengths_come_in_whole_blocks():
    assert [whole_blocks(tokens) for tokens in (1, 16, 17)] == [16, 16, 32]


def test_memory_is_taken_only_where_it_is_touched():
    before = resident()
    array = lazy_zeros((1 << 10, 1 << 18))  # a GiB
    array[::8, :10] = 1.0
    assert array[8, :12].sum() == 10.0
    assert resident() - before < 64 << 20


def test_a_slot_that_was_long_gives_its_pages_back_and_leaves_its_neighbours_alone():
    shape = (3, 2, 1, 2048, 8)
    rows = Rows(lazy_zeros(shape), lazy_zeros(shape))
    rows.keys[:], rows.values[:] = 1.0, 2.0
    rows.give_back(1, 100)
    assert rows.keys.all()
    rows.give_back(1, 2000)
    assert not rows.keys[1].any()
    assert not rows.values[1].any()
    assert np.all(rows.keys[[0, 2]] == 1.0)
    assert np.all(rows.values[[0, 2]] == 2.0)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
