"""Weights of eight bits for one row: the kernels against float32 on the same rounded weights, the loss against the
unrounded ones, times of the parts and of the frame."""

import sys
import frame as fr
from frame import *
from frame_predictor import pack_bytes
from talker_step import pack_talker_bytes
from tile_packing import by_outputs, by_parts, dequantize, gate_and_up, quantize


def fake(tiles):
    return dequantize(*quantize(tiles))


def rounded(l, parts_of):
    """The layer with its weights rounded as the kernels have them; norms are in them."""
    one = torch.ones_like
    f = l.gate.shape[0]
    both = fake(gate_and_up(l.gate * l.mlp_norm.float(), l.up * l.mlp_norm.float())).reshape(128, f // 256, 2, 2, -1)

    def owned(w):
        n, k = w.shape
        tiles = fake(parts_of(w.float()))
        parts = tiles.shape[0] * 16 // n
        return tiles.reshape(n // 16, parts, 16, k // parts).permute(0, 2, 1, 3).reshape(n, k)

    return LayerWeights(
        one(l.attn_norm),
        fake(by_outputs(l.qkv * l.attn_norm.float())).reshape(l.qkv.shape),
        l.q_norm,
        l.k_norm,
        owned(l.output),
        one(l.mlp_norm),
        both[:, :, 0].reshape(f, -1),
        both[:, :, 1].reshape(f, -1),
        owned(l.down),
    )


def main():
    w = Weights()
    p = w.predictor
    solo = SoloPredictor(w.shape, pack_bytes(p), eight=True)
    q = PredictorWeights(
        [rounded(l, by_parts) for l in p.layers],
        torch.ones_like(p.norm),
        rounded(
            LayerWeights(
                *(
                    [p.norm] * 0
                    + [
                        torch.ones(2048, device=dev),
                        torch.zeros(4096, 2048, device=dev),
                        p.norm,
                        p.norm,
                        p.projection,
                        torch.ones(2048, device=dev),
                        torch.zeros(256, 2048, device=dev),
                        torch.zeros(256, 2048, device=dev),
                        p.projection,
                    ]
                )
            ),
            by_parts,
        ).output,
        p.projection_bias,
        [fake(by_outputs(h * p.norm.float())).reshape(h.shape) for h in p.heads],
        p.tables,
    )
    r = Rows(1)
    r.hidden.copy_(rand(1, 2048, k=1.0))
    codes = torch.randint(0, 2048, (1, 16), device=dev, dtype=torch.int32)
    lg = torch.zeros(15, 1, 2048, device=dev)
    solo.run(r.hidden, codes, r.inner, lg, forced=True)
    torch.cuda.synchronize()
    log(
        f"predictor: logits error against rounded weights {rel(lg, predictor_reference(w.shape, q, r.hidden, codes, None)[1]):.2e}, against unrounded {rel(lg, predictor_reference(w.shape, p, r.hidden, codes, None)[1]):.2e}"
    )
    log(f"predictor: {time_ms(lambda: solo.run(r.hidden, r.codes, r.inner)):.4f} ms top-50")
    packed = pack_talker_bytes(w.talker, w.norm, w.head, w.cosines, w.sines)
    for c in (1, 8, 16):
        r = Rows(c)
        x = r.x.float()
        for places in (8, 12) if c == 1 else (8,):
            step = TalkerStep(packed, 8 if c <= 8 else 16, places, eight=True)
            if places == 8:
                step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)
                torch.cuda.synchronize()
                turn = (w.cosines[START], w.sines[START])
                h = x
                u = x
                for i, l in enumerate(w.talker):
                    cache = lambda: [r.keys[i][:, :, :START].float(), r.values[i][:, :, :START].float()]
                    h, u = (
                        layer_reference(h, rounded(l, by_outputs), cache(), turn),
                        layer_reference(u, l, cache(), turn),
                    )
                n = lambda t: nn.rms_norm(t, (2048,), w.norm.float(), 1e-6)
                log(
                    f"talker c={c}: hidden error against rounded weights {rel(r.hidden, n(h)):.2e}, against unrounded {rel(r.hidden, n(u)):.2e}"
                )
            log(
                f"talker c={c} places {places}: {time_ms(lambda: step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)):.4f} ms"
            )
            if c == 1 and places == 8:
                one = step
        del r
    r = Rows(1)
    f = Frame(w, r, PersistentPredictor(solo, 1), step=one)
    t = time_ms(f.whole, r.rewind)
    log(f"TIME C=1 eight bits, both in one launch each: whole {t:.3f} ms, {80 / t:.1f} audio-s/s without the decoder")
    for ahead in (1, 2, 3):
        s = SoloPredictor(w.shape, pack(p), names={"AHEAD": ahead})
        log(
            f"bfloat16 predictor, chunks asked for ahead {ahead}: {time_ms(lambda: s.run(r.hidden, r.codes, r.inner)):.4f} ms top-50"
        )


if __name__ == "__main__":
    main()
