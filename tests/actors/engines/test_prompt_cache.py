import numpy as np

from omnirt.actors.engines.prompt_cache import START, PromptCache, chained
from omnirt.actors.models.decoder.pieces import BLOCK

SHAPE = (2, 1, BLOCK, 4)


def block(value):
    return np.full(SHAPE, value, np.float32), np.full(SHAPE, -value, np.float32)


def cache(blocks):
    return PromptCache(np.zeros((blocks, 2, *SHAPE), np.float32))


def names(count):
    return [chained(START, [i]) for i in range(count)]


def test_a_stored_block_comes_back_and_others_leave_the_memory_alone():
    prompts = cache(4)
    one, other = names(2)
    prompts.store(one, block(3.0))
    into = block(0.0)
    assert not prompts.fetch(other, into)
    assert not into[0].any()
    assert prompts.fetch(one, into)
    assert np.array_equal(into, block(3.0))


def test_what_was_used_least_recently_goes_first_and_the_bound_holds():
    prompts = cache(3)
    known = names(5)
    for number, name in enumerate(known[:3]):
        prompts.store(name, block(number))
    prompts.fetch(known[0], block(0.0))
    prompts.store(known[1], block(1.0))  # again: only used
    prompts.store(known[3], block(3.0))
    prompts.store(known[4], block(4.0))
    assert len(prompts) == 3
    held = {name: block(9.0) for name in known}
    assert [prompts.fetch(name, held[name]) for name in known] == [False, True, False, True, True]
    assert np.array_equal(held[known[1]], block(1.0))
    assert np.array_equal(held[known[4]], block(4.0))


def test_a_cache_of_no_blocks_holds_nothing():
    prompts = cache(0)
    prompts.store(names(1)[0], block(1.0))
    assert not prompts.fetch(names(1)[0], block(0.0))


def test_a_name_stands_for_all_tokens_up_to_the_end_of_the_block():
    one = chained(START, [1, 2])
    assert chained(one, [3]) == chained(chained(START, [1, 2]), [3])
    assert chained(one, [3]) != chained(chained(START, [1, 4]), [3])
    assert chained(one, [3]) != chained(START, [3])
