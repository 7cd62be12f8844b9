"""A row's numbers do not depend on its batch mates: bit for bit, the same row among different others."""

from frame import *


def main():
    w = Weights()
    packed = pack_rows(w.predictor)
    talker = pack_talker(w.talker, w.norm, w.head, w.cosines, w.sines)
    for size in (8, 16, 64):
        engine = RowsPredictor(w.shape, packed, size)
        hid, codes = rand(size, 2048, k=1.0), torch.randint(0, 2048, (size, 16), device=dev, dtype=torch.int32)

        def go(rows, forced=True, p=1.0):
            r = rows.numel()
            f = lambda v, t: torch.full((r,), v, device=dev, dtype=t)
            s = Sampling(
                f(0.9, torch.float32),
                f(50, torch.int32),
                f(p, torch.float32),
                rows.long() * 7919 + (3 << 40),
                f(5, torch.int32),
            )
            lg = torch.zeros(15, r, 2048, device=dev)
            c = codes[rows].contiguous()
            engine.run(hid[rows].contiguous(), c, s, lg, forced=forced)
            torch.cuda.synchronize()
            return lg, c, s

        every, few = torch.arange(size, device=dev), torch.tensor([5, 2, 7][: min(3, size)], device=dev)
        a, ca, _ = go(every, False)
        b, cb, _ = go(few, False)
        log(
            f"predictor bucket {size}: logits equal bit for bit {bool((a[:, few] == b).all())}, sampled codes equal {bool((ca[few] == cb).all())}"
        )
        lg, c, s = go(every, False, 0.8)
        want = torch.stack([sample_reference(lg[i], i + 1, s) for i in range(15)], 1).int()
        log(f"  top-p 0.8: equal to the twin {int((want == c[:, 1:]).sum())}/{15 * size}")
    r = Rows(16)
    step = TalkerStep(talker, 16)
    r.positions.copy_(torch.randint(20, 600, (16,), device=dev))
    step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)
    torch.cuda.synchronize()
    h = r.hidden.clone()
    keys, values = r.keys.clone(), r.values.clone()
    for rows in (range(16)[::-1], (3, 3, 5, 3, 9, 3, 1, 0, 3, 3, 5, 3, 9, 3, 1, 0)):
        i = torch.tensor(list(rows), device=dev)
        o = torch.empty_like(h)
        lg = torch.empty_like(r.wide_logits)
        step.run(
            r.x[i].contiguous(), keys[:, i].contiguous(), values[:, i].contiguous(), r.positions[i].contiguous(), o, lg
        )
        torch.cuda.synchronize()
        log(f"talker, 16 rows, mixed lengths, other mates: hidden equal bit for bit {bool((o == h[i]).all())}")
    log(
        f"TIME talker 16 rows at lengths 20 to 600: {time_ms(lambda: step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)):.3f} ms"
    )
    r.positions.fill_(600)
    log(
        f"TIME talker 16 rows at 600: {time_ms(lambda: step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)):.3f} ms"
    )
    r = Rows(1)
    r.positions.fill_(600)
    step = TalkerStep(talker, 8)
    log(
        f"TIME talker 1 row at 600: {time_ms(lambda: step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)):.3f} ms"
    )
    # a second kernel at the same time: the launch waits for all its places, nothing hangs
    other = torch.cuda.Stream()
    m = rand(8192, 8192)
    solo = SoloPredictor(w.shape, pack(w.predictor))
    for _ in range(20):
        with torch.cuda.stream(other):
            torch.mm(m, m)
        step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)
        solo.run(r.hidden, r.codes, r.inner)
    torch.cuda.synchronize()
    log("20 frames beside matrix products on another stream: done")


if __name__ == "__main__":
    main()
