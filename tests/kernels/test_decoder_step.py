"""Right for each family and each way of keeping weights; a row's numbers are its own."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from omnirt.kernels import decoder_step, native_memory
from omnirt.kernels.decoder_step import TOLERANCE, Blocks, DecoderShape, PackedDecoder, reference, rounded

CONTEXT = 48
SLOTS = 20
LLAMA = DecoderShape(layers=2, d_model=96, heads=6, kv_heads=2, head_dim=32, d_ffn=160, vocab=301)
QWEN2 = DecoderShape(layers=2, d_model=64, heads=7, kv_heads=1, head_dim=64, d_ffn=96, vocab=200, qkv_bias=True)
QWEN3 = DecoderShape(layers=2, d_model=64, heads=4, kv_heads=2, head_dim=128, d_ffn=64, vocab=130, qk_norm=True)
FAMILIES = {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3}
KINDS = ("float32", "bfloat16", "int8")


def random_weights(shape, seed=0):
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)

    def vector(size):
        return (1 + 0.3 * rng.standard_normal(size)).astype(np.float32)

    d, size = shape.d_model, shape.head_dim
    weights = {"embed": matrix(shape.vocab, d), "norm": vector(d)}
    weights["lm_head"] = weights["embed"]
    for i in range(shape.layers):
        for name, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            weights[f"{i}.{name}"] = matrix(heads * size, d)
            weights[f"{i}.{name}_bias"] = vector(heads * size)
            weights[f"{i}.{name}_norm"] = vector(size)
        weights[f"{i}.o"] = matrix(d, shape.heads * size)
        weights[f"{i}.gate"], weights[f"{i}.up"] = matrix(shape.d_ffn, d), matrix(shape.d_ffn, d)
        weights[f"{i}.down"] = matrix(d, shape.d_ffn)
        weights[f"{i}.attn_norm"], weights[f"{i}.mlp_norm"] = vector(d), vector(d)
    return weights


def is_matrix(name):
    return "norm" not in name and "bias" not in name


def worth(weights, kind):
    same = {name: rounded(w, kind) if is_matrix(name) else w for name, w in weights.items()}
    return same | ({"lm_head": same["embed"]} if weights["lm_head"] is weights["embed"] else {})


def rotation_of(shape, context=CONTEXT):
    angle = np.arange(context)[:, None] / 10000 ** (np.arange(shape.head_dim // 2) / (shape.head_dim // 2))
    angle = np.concatenate([angle, angle], axis=1)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


class World:
    """A decoder with its cache."""

    def __init__(self, shape, weights, kind="bfloat16", threads=2):
        self.shape, self.rotation = shape, rotation_of(shape)
        self.decoder = PackedDecoder.pack(shape, weights, kind, rows_max=64, threads=threads)
        self.cache = self.empty_cache()

    def empty_cache(self):
        size = (SLOTS, self.shape.layers, self.shape.kv_heads, CONTEXT, self.shape.head_dim)
        # What was never written must not be read.
        return np.full(size, np.nan, np.float32), np.full(size, np.nan, np.float32)

    def step(self, tokens, positions, slots, wanted=None):
        logits = np.full((len(tokens) if wanted is None else len(wanted), self.shape.vocab), np.nan, np.float32)
        rows = [np.asarray(values, np.int32) for values in (tokens, positions, slots)]
        wanted = None if wanted is None else np.asarray(wanted, np.int32)
        self.decoder.step(*rows, self.cache, self.rotation, logits, wanted)
        return logits

    def prefill(self, prompt, slot):
        return self.step(prompt, range(len(prompt)), [slot] * len(prompt))


@pytest.fixture(scope="module", params=[(family, kind) for family in FAMILIES for kind in KINDS], ids="-".join)
def world(request):
    family, kind = request.param
    weights = random_weights(FAMILIES[family])
    made = World(FAMILIES[family], weights, kind)
    made.weights = worth(weights, kind)
    return made


@pytest.fixture(scope="module")
def llama():
    return World(LLAMA, random_weights(LLAMA))


def prompts(shape, count, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, shape.vocab, int(length)) for length in rng.integers(1, CONTEXT - 8, count)]


def close(got, expected):
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_each_family_and_kind_agrees_with_the_reference(world):
    cache = world.empty_cache()
    for count in (1, 2, 3, 4, 5, 6, 7, 13):
        texts = prompts(world.shape, count, seed=count)
        for position in range(3):
            rows = [
                np.array(row)
                for row in ([text[position % len(text)] for text in texts], [position] * count, list(range(count)))
            ]
            expected = reference(world.shape, world.weights, rows, cache, world.rotation)
            close(world.step(*rows), expected)
    close(world.cache[0][:7, :, :, :3], cache[0][:7, :, :, :3])


def test_a_prompt_in_one_step_is_the_same_to_the_bit_as_token_by_token(world):
    for slot, prompt in enumerate(prompts(world.shape, 4)):
        at_once = world.prefill(prompt, slot)
        for position, token in enumerate(prompt):
            one = world.step([token], [position], [slot + 10])
            np.testing.assert_array_equal(one[0], at_once[position])
        for held in world.cache:
            np.testing.assert_array_equal(held[slot, :, :, : len(prompt)], held[slot + 10, :, :, : len(prompt)])


def test_a_row_alone_is_the_same_to_the_bit_as_among_others_at_any_place(llama):
    texts = prompts(LLAMA, 16)
    for slot, text in enumerate(texts):
        llama.prefill(text, slot)
    tokens = np.arange(16) * 7
    positions = np.array([len(text) for text in texts])
    alone = np.concatenate([llama.step(tokens[[r]], positions[[r]], [r]) for r in range(16)])
    rng = np.random.default_rng(3)
    for count in range(2, 17):
        some = rng.permutation(16)[:count]
        np.testing.assert_array_equal(llama.step(tokens[some], positions[some], some), alone[some])


def test_decoding_rows_and_a_prompt_share_a_step(llama):
    prompt, text = prompts(LLAMA, 2, seed=5)
    expected = llama.prefill(prompt, 0)
    llama.prefill(text, 1)
    alone = llama.step([9], [len(text)], [1])
    both = llama.step([*prompt, 9], [*range(len(prompt)), len(text)], [0] * len(prompt) + [1])
    np.testing.assert_array_equal(both, np.concatenate([expected, alone]))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(llama, threads):
    other = World(LLAMA, random_weights(LLAMA), threads=threads)
    for prompt in prompts(LLAMA, 5, seed=2):
        np.testing.assert_array_equal(llama.prefill(prompt, 3), other.prefill(prompt, 3))


def test_only_wanted_rows_have_logits(llama):
    prompt = prompts(LLAMA, 1, seed=4)[0][:20]
    every = llama.prefill(prompt, 0)
    some = llama.step(prompt, range(len(prompt)), [0] * len(prompt), [len(prompt) - 1, 2])
    np.testing.assert_array_equal(some, every[[len(prompt) - 1, 2]])
    assert llama.step(prompt, range(len(prompt)), [0] * len(prompt), []).shape == (0, LLAMA.vocab)


def four_bits(shape, seed=0):
    """Layers of scale * 0..15 + offset, embeddings of scale * int8, as files of small models have them."""
    rng = np.random.default_rng(seed)
    weights = random_weights(shape, seed)
    for name, w in weights.items():
        if is_matrix(name):
            blocks = (len(w), w.shape[1] // 32)
            scale = rng.uniform(0.01, 0.03, blocks).astype(np.float16)
            if name in ("embed", "lm_head"):
                weights[name] = Blocks(
                    rng.integers(-127, 128, w.shape).astype(np.int8), (scale / 10).astype(np.float16)
                )
            else:
                weights[name] = Blocks(rng.integers(0, 16, w.shape).astype(np.uint8), scale, -scale * np.float16(7.5))
    return weights


@pytest.mark.parametrize("tied", [True, False])
def test_weights_in_blocks_give_the_bits_of_their_values_in_float32(tied):
    weights = four_bits(LLAMA)
    if tied:
        weights["lm_head"] = weights["embed"]
    floats = World(LLAMA, worth(weights, "float32"), "float32")
    blocks = World(LLAMA, weights, "int8")
    for slot, prompt in enumerate(prompts(LLAMA, 5)):
        np.testing.assert_array_equal(blocks.prefill(prompt, slot), floats.prefill(prompt, slot))
        one = [np.array([value]) for value in (5, len(prompt), slot)]
        np.testing.assert_array_equal(blocks.step(*one), floats.step(*one))


def test_bfloat16_is_float32_of_rounded_weights_to_the_bit(llama):
    floats = World(LLAMA, worth(random_weights(LLAMA), "bfloat16"), "float32")
    prompt = prompts(LLAMA, 1)[0]
    np.testing.assert_array_equal(llama.prefill(prompt, 0), floats.prefill(prompt, 0))


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    bits = np.array([0x3F80_7FFF, 0x3F80_8000, 0x3F80_8001, 0x3F81_8000], np.uint32)
    expected = np.array([0x3F80_0000, 0x3F80_0000, 0x3F81_0000, 0x3F82_0000], np.uint32)
    np.testing.assert_array_equal(rounded(bits.view(np.float32)[None], "bfloat16").view(np.uint32)[0], expected)


def test_int8_is_near_what_it_stands_for():
    w = random_weights(LLAMA)["embed"]
    assert np.abs(rounded(w, "int8") - w).max() <= np.abs(w).max() / 127


def test_a_cache_of_another_length_may_follow(llama):
    prompt = prompts(LLAMA, 1)[0]
    expected = llama.prefill(prompt, 0)
    longer = World(LLAMA, random_weights(LLAMA))
    longer.decoder, longer.rotation = llama.decoder, rotation_of(LLAMA, 4 * CONTEXT)
    size = (2, LLAMA.layers, LLAMA.kv_heads, 4 * CONTEXT, LLAMA.head_dim)
    longer.cache = np.zeros(size, np.float32), np.zeros(size, np.float32)
    np.testing.assert_array_equal(longer.prefill(prompt, 1), expected)


def test_what_points_outside_is_refused(llama):
    for row in ([LLAMA.vocab, 0, 0], [-1, 0, 0], [0, CONTEXT, 0], [0, 0, SLOTS]):
        with pytest.raises(AssertionError):
            llama.step(*([value] for value in row))


def test_helpers_end_with_their_decoder():
    world = World(LLAMA, random_weights(LLAMA), threads=3)
    world.prefill([1, 2, 3], 0)
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("decoder")][-2:]
    del world
    gc.collect()
    for thread in mine:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts wake-ups where Linux shows them")
def test_between_steps_no_helper_wakes_up(llama):
    llama.prefill([1, 2, 3], 0)

    def switches():
        tasks = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("decoder")}
        texts = [Path(f"/proc/self/task/{task}/status").read_text() for task in tasks]
        return [line for text in texts for line in text.splitlines() if "ctxt_switches" in line]

    deadline = time.monotonic() + 60
    before = None
    while before != (before := switches()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    assert before
    assert switches() == before


def test_compiled_code_is_known_by_the_digest_of_its_sources(monkeypatch):
    decoder_step._step()
    assert decoder_step.is_compiled()
    monkeypatch.setattr(native_memory, "_digest", lambda: "another")
    assert not decoder_step.is_compiled()
