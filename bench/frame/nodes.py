"""The backbone at 32 and 64 rows as library products and fused nodes: which cut of attention, and what each node costs."""

import triton
from frame import *
from weights_ahead import fetch_ahead


@triton.jit
def fetch_node(matrix, KB: triton.language.constexpr):
    fetch_ahead(matrix, KB, triton.language.program_id(0), triton.language.num_programs(0), 128)


def main(argv):
    log(torch.__version__, torch.cuda.get_device_name())
    w = Weights()
    for c in [int(a) for a in argv if a.isdigit()] or [64, 32]:
        r = Rows(c)
        f = Frame(w, r, None)
        ones = lambda i: (w.cosines, w.sines, r.keys[i], r.values[i], r.positions, f.att, f.room)
        x = r.x.float()
        turn = (w.cosines[START], w.sines[START])
        for i, l in enumerate(w.talker):
            x = layer_reference(x, l, [r.keys[i][:, :, :START].float(), r.values[i][:, :, :START].float()], turn)
        hidden = nn.rms_norm(x, (2048,), w.norm.float(), 1e-6)
        keep = r.x.clone()
        results = []
        parts, block, warps, stages = (1, 64, 4, 2) if c == 64 else (1, 64, 4, 3)
        f.room, f.attention = Room.make(c, 8, parts, dev), {"block": block, "warps": warps, "stages": stages}
        r.x.copy_(keep)
        f.talker()
        torch.cuda.synchronize()
        log(f"CHECK C={c} hidden {rel(r.hidden, hidden):.2e}")
        log(f"TIME C={c} talker, norms in the weights {time_ms(f.talker, r.rewind):.3f} ms")
        for fetch in (0, 64, 128, 192, 300):
            for stages in (2, 3):
                for warps in (2, 4):
                    f.attention = {"block": 64, "warps": warps, "stages": stages, "fetch": fetch}

                    def go():
                        for i, l in enumerate(w.talker):
                            attend(f.mixed, l.q_norm, l.k_norm, *ones(i), x=r.x, **f.attention)
                    results.append((time_ms(go, reps=7) / 28 * 1000, time_ms(f.talker, r.rewind, reps=7), fetch, stages, warps))
        log(f"C={c} attention us, talker ms, positions asked for at once, stages, warps:", *[f"{t:.1f} {m:.3f} {k};" for t, m, *k in sorted(results)[:8]], "without:", *[f"{t:.1f} {m:.3f} {k};" for t, m, *k in results[:4]])
        _, _, fetch, stages, warps = min(results)
        f.attention = {"block": 64, "warps": warps, "stages": stages, "fetch": fetch}
        side = torch.cuda.Stream()

        def fetch(matrix, kilobytes):                      # beside the main stream, which does not wait for it
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                fetch_node[(16,)](matrix, kilobytes, num_warps=4)

        def beside(o_kb, gate_kb, down_kb, next_kb):
            for i, l in enumerate(w.talker):
                qkv, gate_up = w.folded[i]
                following = w.folded[i + 1][0] if i + 1 < len(w.talker) else w.head
                torch.mm(r.x, qkv.t(), out=f.mixed)
                if o_kb:
                    fetch(l.output, o_kb)
                attend(f.mixed, l.q_norm, l.k_norm, *ones(i), x=r.x, **f.attention)
                if gate_kb:
                    fetch(gate_up, gate_kb)
                torch.addmm(r.x, f.att, l.output.t(), out=r.x)
                torch.mm(r.x, gate_up.t(), out=f.both)
                if down_kb:
                    fetch(l.down, down_kb)
                gate_rows(f.both, f.act, r.x)
                if next_kb:
                    fetch(following, min(next_kb, following.numel() // 512))
                torch.addmm(r.x, f.act, l.down.t(), out=r.x)
            norm_rows(r.x, w.norm, r.hidden)
            torch.mm(r.hidden, w.head.t(), out=r.logits)
            torch.cuda.current_stream().wait_stream(side)

        for ahead in ((0, 0, 8192, 0), (0, 0, 0, 16384 // 2), (0, 16384, 0, 0), (0, 16384, 8192, 8192)):
            log(f"TIME C={c} talker, KB asked for beside of output, gate-up, down, next qkv {ahead}: {time_ms(lambda: beside(*ahead), r.rewind):.3f} ms")
        r.rewind()
        r.x.copy_(keep)
        f.talker()
        torch.cuda.synchronize()
        log(f"CHECK C={c} hidden {rel(r.hidden, hidden):.2e}")


if __name__ == "__main__":
    main(sys.argv[1:])
