"""The plain frame step against the same model written down without pages, rows or a cache, in float64."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels.frame_layout import (  # noqa: E402
    DecoderShape,
    FrameRows,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
)
from omnirt.kernels.frame_reference import PlainStep  # noqa: E402
from omnirt.kernels.philox import uniform  # noqa: E402

BACKBONE = DecoderShape(width=32, feed=48, layers=2, heads=4, kv_heads=2, head=16, eps=1e-6, theta=1e4)
PREDICTOR = DecoderShape(width=24, feed=40, layers=2, heads=4, kv_heads=1, head=8, eps=1e-5, theta=1e3)
SHAPE = FrameShape(BACKBONE, PREDICTOR, vocab=40, codes=30, books=4, stop_code=33)
EQUAL_WIDTHS = replace(SHAPE, predictor=replace(PREDICTOR, width=32))
ROWS, ROW_PAGES, LINES = 4, 3, 6


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products this small only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made_weights(shape, seed=3, kind=torch.float64):
    draws = torch.Generator().manual_seed(seed)

    def matrix(*size):
        return (torch.randn(*size, generator=draws, dtype=torch.float64) * 1.3 / size[-1] ** 0.5).to(kind)

    def ones(size):
        return (1 + 0.2 * torch.randn(size, generator=draws, dtype=torch.float64)).to(kind)

    def layer(s):
        wide = (s.heads + 2 * s.kv_heads) * s.head
        return LayerWeights(
            attn_norm=ones(s.width),
            qkv=matrix(wide, s.width),
            q_norm=ones(s.head),
            k_norm=ones(s.head),
            output=matrix(s.width, s.heads * s.head),
            mlp_norm=ones(s.width),
            gate=matrix(s.feed, s.width),
            up=matrix(s.feed, s.width),
            down=matrix(s.width, s.feed),
        )

    back, inner = shape.backbone, shape.predictor
    apart = back.width != inner.width
    predictor = PredictorWeights(
        [layer(inner) for _ in range(inner.layers)],
        ones(inner.width),
        matrix(inner.width, back.width) if apart else None,
        matrix(inner.width) if apart else None,
        [matrix(shape.codes, inner.width) * 2 for _ in range(shape.books - 1)],
    )
    return FrameWeights(
        [layer(back) for _ in range(back.layers)],
        ones(back.width),
        matrix(shape.vocab, back.width) * 2,
        matrix(shape.vocab, back.width) * 4,
        matrix(shape.books - 1, shape.codes, back.width) * 4,
        predictor,
    )


# ---------------------------------------------------------------- the model, written down


def rms(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x_htd, theta):
    """Pairs (i, i + d / 2) as complex numbers, turned by position * theta ** (-2 i / d)."""
    half = x_htd.shape[-1] // 2
    speed = torch.tensor([theta ** (-i / half) for i in range(half)], dtype=torch.float64)
    angle = torch.arange(x_htd.shape[1], dtype=torch.float64)[:, None] * speed
    z = torch.complex(x_htd[..., :half], x_htd[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def decoder(x, layers, norm, s):
    """Hidden rows, normed, of inputs [t, w] at positions 0, 1, ..."""
    t = len(x)
    for layer in layers:
        both = (rms(x, layer.attn_norm, s.eps) @ layer.qkv.T).view(t, -1, s.head).transpose(0, 1)
        q, k, v = both[: s.heads], both[s.heads : s.heads + s.kv_heads], both[s.heads + s.kv_heads :]
        q, k = turned(rms(q, layer.q_norm, s.eps), s.theta), turned(rms(k, layer.k_norm, s.eps), s.theta)
        out = []
        for head in range(s.heads):
            of = head // (s.heads // s.kv_heads)
            scores = q[head] @ k[of].T / math.sqrt(s.head)
            scores = scores + torch.full((t, t), -math.inf, dtype=torch.float64).triu(1)
            out.append(scores.softmax(-1) @ v[of])
        x = x + torch.cat(out, -1) @ layer.output.T
        y = rms(x, layer.mlp_norm, s.eps)
        g = y @ layer.gate.T
        x = x + (g * torch.sigmoid(g) * (y @ layer.up.T)) @ layer.down.T
    return rms(x, norm, s.eps)


def drawn(logits, codebook, step, how):
    """By lists: rank, cut, add noise, take the largest."""
    if how["temperature"] == 0:
        return int(logits.argmax())
    rounded = logits.float().bfloat16().double().tolist()
    ranked = sorted(rounded, reverse=True)
    count = how["top_k"] or len(ranked)
    kept = {i for i, v in enumerate(rounded) if v >= ranked[min(count, len(ranked)) - 1]}
    weight = {i: math.exp((rounded[i] - ranked[0]) / how["temperature"]) for i in kept}
    whole = sum(weight.values())
    if how["top_p"] < 1:
        above = {i: sum(w for j, w in weight.items() if rounded[j] > rounded[i]) for i in kept}
        kept = {i for i in kept if above[i] < how["top_p"] * whole}
    noise = uniform(torch.tensor([how["seed"]]), torch.tensor([step]), codebook, len(rounded))[0].double()
    scores = {i: rounded[i] / how["temperature"] - math.log(-math.log(float(noise[i]))) for i in kept}
    return max(scores, key=lambda i: (scores[i], -i))


def frames_of(shape, w, prompt, text, count, *, first, inner, penalty=1.0, least=0, suppressed=()):
    inputs, seen, frames, hiddens = list(prompt), set(), [], []
    p = w.predictor
    project = (lambda x: x @ p.projection.T + p.bias) if p.projection is not None else lambda x: x
    for step in range(count):
        hidden = decoder(torch.stack(inputs), w.layers, w.norm, shape.backbone)[-1]
        logits = (w.head @ hidden).clone()
        for code in seen:
            logits[code] = logits[code] / penalty if logits[code] > 0 else logits[code] * penalty
        for code in [*suppressed, *([shape.stop_code] if step < least else [])]:
            logits[code] = -1e30
        codes = [drawn(logits, 0, step, first)]
        seen.add(codes[0])
        rows, total = [project(hidden)], w.embed[codes[0]]
        for book in range(1, shape.books):
            rows.append(project(w.embed[codes[0]] if book == 1 else w.embeds[book - 2][codes[-1]]))
            last = decoder(torch.stack(rows), p.layers, p.norm, shape.predictor)[-1]
            codes.append(drawn(p.heads[book - 1] @ last, book, step, inner))
            total = total + w.embeds[book - 1][codes[-1]]
        frames.append(codes)
        hiddens.append(hidden)
        inputs.append(total + text[min(step, len(text) - 1)])
    return frames, torch.stack(hiddens), torch.stack(inputs)


# ---------------------------------------------------------------- rows of the step

GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}
WARM = {"temperature": 0.9, "top_k": 12, "top_p": 1.0, "seed": 77}
NUCLEUS = {"temperature": 1.2, "top_k": 0, "top_p": 0.8, "seed": -5}
BOTH = {"temperature": 0.7, "top_k": 9, "top_p": 0.6, "seed": (9 << 40) + 3}


def made_step(shape=SHAPE, kind=torch.float64, fixed=None, buckets=(1, 2, ROWS)):
    state = FrameRows.make(shape, ROWS, 1 + ROWS * ROW_PAGES, ROW_PAGES, LINES, "cpu", kind)
    return PlainStep(shape, made_weights(shape, kind=kind), state, 256, buckets, fixed=fixed)


def joined(step, row, prompt, text, how, cuts=(), penalty=1.0, least=0):
    """Pages in an order of their own; prefilled in the pieces that end at `cuts`."""
    s = step.state
    s.tables[row] = torch.tensor([1 + row + page * ROWS for page in reversed(range(ROW_PAGES))])
    s.text[row, : len(text)], s.lines[row] = text, len(text)
    s.x[row], s.positions[row], s.active[row] = prompt[-1], len(prompt) - 1, 1
    s.penalty[row], s.least[row] = penalty, least
    for sampling, values in ((s.first, how[0]), (s.inner, how[1])):
        for name, value in values.items():
            getattr(sampling, name)[row] = value
    bounds = [0, *cuts, len(prompt) - 1]
    for start, end in pairwise(bounds):
        if end > start:
            step.prefill([(row, start, prompt[start:end])])


def inputs_of(seed, positions, lines, kind=torch.float64):
    draws = torch.Generator().manual_seed(seed)
    prompt = torch.randn(positions, BACKBONE.width, generator=draws, dtype=torch.float64)
    return prompt.to(kind), torch.randn(lines, BACKBONE.width, generator=draws, dtype=torch.float64).to(kind)


def run(step, count, bucket=ROWS):
    frames = []
    for _ in range(count):
        step.run(bucket)
        frames.append(step.state.codes.clone())
    return torch.stack(frames)  # [frames, rows, books]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [SHAPE, EQUAL_WIDTHS], ids=["projected", "equal widths"])
def test_frames_are_those_of_the_model_written_down(shape, fixed):
    hows = [(GREEDY, GREEDY), (WARM, NUCLEUS), (NUCLEUS, WARM), (BOTH, BOTH)]
    step = made_step(shape, fixed=fixed)
    step.state.suppressed[34:] = -1e30
    sizes = [(1, 6), (63, 1), (70, 3), (66, 2)]  # of prompt and text: shorter than a page, and over its edge
    for row, (how, (positions, lines)) in enumerate(zip(hows, sizes, strict=True)):
        joined(step, row, *inputs_of(row, positions, lines), how, penalty=1.3, least=3)
    got = run(step, 8)
    for row, (how, (positions, lines)) in enumerate(zip(hows, sizes, strict=True)):
        prompt, text = inputs_of(row, positions, lines)
        wanted, hiddens, inputs = frames_of(
            shape,
            step.weights,
            prompt,
            text,
            8,
            first=how[0],
            inner=how[1],
            penalty=torch.tensor(1.3).double(),
            least=3,
            suppressed=range(34, 40),
        )
        assert got[:, row].tolist() == wanted
        assert torch.allclose(step.state.hidden[row], hiddens[-1], atol=1e-12)
        assert torch.allclose(step.state.x[row], inputs[-1], atol=1e-12)
        assert step.state.positions[row] == positions - 1 + 8
        assert step.state.steps[row] == 8
        assert step.state.seen[row].nonzero()[:, 0].tolist() == sorted({frame[0] for frame in wanted})
        assert bool(step.state.stopped[row]) == any(frame[0] == shape.stop_code for frame in wanted)


def test_float32_gives_the_same_greedy_frames():
    step = made_step(kind=torch.float32)
    prompt, text = inputs_of(1, 20, 4)
    joined(step, 0, prompt.float(), text.float(), (GREEDY, GREEDY))
    wanted, hiddens, _ = frames_of(SHAPE, made_weights(SHAPE), prompt, text, 6, first=GREEDY, inner=GREEDY)
    assert run(step, 6)[:, 0].tolist() == wanted
    assert torch.allclose(step.state.hidden[0].double(), hiddens[-1], atol=1e-4)


def test_bfloat16_stays_near():
    step = made_step(kind=torch.bfloat16)
    prompt, text = inputs_of(1, 20, 4)
    joined(step, 0, prompt.bfloat16(), text.bfloat16(), (GREEDY, GREEDY))
    run(step, 1)
    _, hiddens, _ = frames_of(SHAPE, made_weights(SHAPE), prompt, text, 1, first=GREEDY, inner=GREEDY)
    assert (step.state.hidden[0].double() - hiddens[0]).norm() < 5e-2 * hiddens[0].norm()


@pytest.mark.parametrize("cuts", [(1,), (40,), (64,), (63, 64, 65), tuple(range(7, 100, 13))])
def test_a_prompt_in_pieces_is_the_whole_prompt_bit_for_bit(cuts):
    prompt, text = inputs_of(5, 110, 3, torch.float32)
    whole, pieces = made_step(kind=torch.float32), made_step(kind=torch.float32)
    joined(whole, 0, prompt, text, (WARM, WARM))
    joined(pieces, 0, prompt, text, (WARM, WARM), cuts)
    assert torch.equal(whole.state.keys, pieces.state.keys)
    assert torch.equal(run(whole, 5), run(pieces, 5))
    assert torch.equal(whole.state.x, pieces.state.x)


def test_pieces_of_several_rows_share_a_call():
    apart, together = made_step(kind=torch.float32), made_step(kind=torch.float32)
    prompts = [inputs_of(row, size, 2, torch.float32) for row, size in enumerate((9, 70, 33))]
    for row, (prompt, text) in enumerate(prompts):
        joined(apart, row, prompt, text, (WARM, WARM))
        joined(together, row, prompt[-1:], text, (WARM, WARM))
        together.state.positions[row] = len(prompt) - 1
    together.prefill([(row, 0, prompt[:-1]) for row, (prompt, _) in enumerate(prompts)])
    assert torch.equal(run(apart, 4), run(together, 4))
    assert torch.equal(apart.state.x, together.state.x)


def test_masked_whole_tables_are_the_same_as_each_rows_own_pages():
    own, whole = made_step(fixed=False), made_step(fixed=True)
    for step in (own, whole):
        for row in range(3):
            joined(step, row, *inputs_of(row, 50 + 30 * row, 3), (WARM, NUCLEUS), cuts=(20,))
    assert torch.equal(run(own, 6)[:, :3], run(whole, 6)[:, :3])
    assert torch.allclose(own.state.x, whole.state.x, atol=1e-12)


@pytest.mark.parametrize("row", range(ROWS))
def test_a_row_alone_is_the_row_among_others_bit_for_bit(row):
    alone, among = made_step(kind=torch.float32), made_step(kind=torch.float32)
    prompt, text = inputs_of(50, 30, 3, torch.float32)
    joined(alone, 0, prompt, text, (WARM, BOTH))
    joined(among, row, prompt, text, (WARM, BOTH))
    for other in {0, 1, 2, 3} - {row}:
        joined(among, other, *inputs_of(other, 10 + 20 * other, 2, torch.float32), (NUCLEUS, WARM))
    assert torch.equal(run(alone, 6, bucket=1)[:, 0], run(among, 6)[:, row])
    assert torch.equal(alone.state.x[0], among.state.x[row])


@pytest.mark.parametrize("fixed", [False, True])
def test_a_row_that_is_not_active_keeps_what_the_next_frame_needs(fixed):
    halting, steady = made_step(fixed=fixed), made_step(fixed=fixed)
    for step in (halting, steady):
        for row in range(2):
            joined(step, row, *inputs_of(row, 62 + row, 3), (WARM, WARM))
    want = run(steady, 6)
    got = [run(halting, 2)]
    halting.state.active[0] = 0
    kept = {name: getattr(halting.state, name)[0].clone() for name in ("x", "positions", "steps", "seen", "stopped")}
    run(halting, 4)
    assert all(torch.equal(value, getattr(halting.state, name)[0]) for name, value in kept.items())
    halting.state.active[0], halting.state.active[1] = 1, 0
    got.append(run(halting, 4))
    assert torch.equal(torch.cat(got)[:, 0], want[:, 0])
    assert halting.state.positions[1] == steady.state.positions[1]


def test_nothing_is_read_back_and_no_shape_depends_on_a_number():
    """Tensors without content: whatever would ask for some of it raises. So a graph can capture `run`."""
    state = FrameRows.make(SHAPE, ROWS, 1 + ROWS * ROW_PAGES, ROW_PAGES, LINES, "meta", torch.bfloat16)
    step = PlainStep(SHAPE, on(made_weights(SHAPE, kind=torch.bfloat16), "meta"), state, 256, (1, ROWS))
    step.prefill([(0, 3, torch.empty(5, 32, device="meta")), (2, 60, torch.empty(9, 32, device="meta"))])
    step.run(1)
    step.run(ROWS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device")
def test_a_captured_graph_gives_the_frames_of_the_processor():
    on_cpu = made_step(fixed=True)
    state = FrameRows.make(SHAPE, ROWS, 1 + ROWS * ROW_PAGES, ROW_PAGES, LINES, "cuda", torch.float64)
    captured = PlainStep(SHAPE, on(on_cpu.weights, "cuda"), state, 256, on_cpu.buckets)
    captured.run(ROWS)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.run(ROWS)
    for row, how in enumerate([(GREEDY, GREEDY), (WARM, NUCLEUS), (BOTH, BOTH)]):
        prompt, text = inputs_of(row, 40 + 20 * row, 3)
        joined(on_cpu, row, prompt, text, how, cuts=(11,), penalty=1.2)
        joined(captured, row, prompt.cuda(), text.cuda(), how, cuts=(11,), penalty=1.2)
    got = []
    for _ in range(6):
        graph.replay()
        got.append(state.codes.cpu().clone())
    assert torch.equal(torch.stack(got)[:, :3], run(on_cpu, 6)[:, :3])


def on(weights, device):
    """The same weights there."""
    if isinstance(weights, torch.Tensor):
        return weights.to(device)
    if isinstance(weights, list):
        return [on(one, device) for one in weights]
    if weights is None:
        return None
    return type(weights)(*(on(one, device) for one in vars(weights).values()))


def test_noise_is_that_of_philox():
    """Known answer of the generator for a counter and a key of zeros, and a slow copy of it for others."""
    assert float(uniform(torch.tensor([0]), torch.tensor([0]), 0, 1)) == ((0x6627E8D5 >> 9) + 0.5) * 2.0**-23
    seed, step, book = (5 << 50) + 123456789012, 41, 7
    got = uniform(torch.tensor([seed, -2]), torch.tensor([step, 3], dtype=torch.int32), book, 5)
    for i in range(5):
        for row, (s, t) in enumerate(((seed, step), (2**64 - 2, 3))):
            word = philox((i, book, t, 0), (s & 0xFFFFFFFF, s >> 32))
            assert float(got[row, i]) == ((word >> 9) + 0.5) * 2.0**-23


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]
