"""The backbone at 32 and 64 rows as library products and fused nodes: which cut of attention, and what each node costs."""

from frame import *


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
        for parts in (1, 2):
            f.room = Room.make(c, 8, parts, dev)
            for block in (32, 64):
                for warps in (2, 4):
                    for stages in (2, 3, 4):
                        def go():
                            for i, l in enumerate(w.talker):
                                attend(f.mixed, l.q_norm, l.k_norm, *ones(i), x=r.x, block=block, warps=warps, stages=stages)
                        f.mixed.copy_(rand(c, 4096, k=1.0))
                        results.append((time_ms(go, reps=7) / 28 * 1000, parts, block, warps, stages))
        log(f"attention C={c}, us a layer (parts, block, warps, stages):", "; ".join(f"{t:.1f} {k}" for t, *k in sorted(results)))
        _, parts, block, warps, stages = min(results)
        f.room, f.attention = Room.make(c, 8, parts, dev), {"block": block, "warps": warps, "stages": stages}
        r.x.copy_(keep)
        f.talker()
        torch.cuda.synchronize()
        log(f"CHECK C={c} hidden {rel(r.hidden, hidden):.2e}")
        log(f"TIME C={c} talker, norms in the weights {time_ms(f.talker, r.rewind):.3f} ms")
        for name, go in (
            ("qkv", lambda i, l: torch.mm(r.x, w.folded[i][0].t(), out=f.mixed)),
            ("output", lambda i, l: torch.addmm(r.x, f.att, l.output.t(), out=r.x)),
            ("gate-up", lambda i, l: torch.mm(r.x, w.folded[i][1].t(), out=f.both)),
            ("gate", lambda i, l: gate_rows(f.both, f.act, r.x)),
            ("down", lambda i, l: torch.addmm(r.x, f.act, l.down.t(), out=r.x)),
        ):
            def all_layers():
                for i, l in enumerate(w.talker):
                    go(i, l)
            log(f"  {name}: {time_ms(all_layers, reps=7) / 28 * 1000:.1f} us")


if __name__ == "__main__":
    main(sys.argv[1:])
