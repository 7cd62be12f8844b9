"""The predictor by clusters of blocks: correctness against its twin, sampled codes, times.

python3 cluster.py [check] [time] [variants] [C ...]
"""

from __future__ import annotations

from frame import *
from frame_predictor import ClusterPredictor, pack_cluster


class Predictors:
    """Weights of the predictor alone (the backbone's are not needed here)."""

    def __init__(self):
        torch.manual_seed(1)
        self.shape = PredictorShape()
        projection, bias = rand(1024, 2048), rand(1024)
        tables = [nn.linear(rand(2048, 2048, k=0.3), projection, bias) for _ in range(15)]
        self.predictor = PredictorWeights(
            [layer(1024, 3072) for _ in range(5)], norm_weight(1024), projection, bias,
            [rand(2048, 1024) for _ in range(15)], tables,
        )


def sampling(rows, heat=0.9, k=50, p=1.0):
    f = lambda v, t: torch.full((rows,), v, device=dev, dtype=t)
    seed = torch.arange(rows, device=dev, dtype=torch.int64) * 7919 + (3 << 40)
    return Sampling(f(heat, torch.float32), f(k, torch.int32), f(p, torch.float32), seed, f(5, torch.int32))


def check(w, engine, rows):
    hidden, codes = rand(rows, 2048, k=1.0), torch.randint(0, 2048, (rows, 16), device=dev, dtype=torch.int32)
    logits = torch.full((15, rows, 2048), float("nan"), device=dev)
    engine.run(hidden, codes, sampling(rows), logits, forced=True)
    torch.cuda.synchronize()
    want = predictor_reference(w.shape, w.predictor, hidden.float(), codes, None)[1]
    each = [rel(logits[i], want[i]) for i in (0, 1, 7, 14)]
    line = f"logits {rel(logits, want):.2e} (heads 0, 1, 7, 14: {' '.join(f'{e:.1e}' for e in each)})"
    for p in (1.0, 0.8):
        s = sampling(rows, p=p)
        engine.run(hidden, codes, s, logits)
        torch.cuda.synchronize()
        drawn = torch.stack([sample_reference(logits[i], i + 1, s) for i in range(15)], 1).int()
        line += f"; top-p {p}: {int((drawn == codes[:, 1:]).sum())}/{15 * rows}"
    again = codes.clone()
    engine.run(hidden, again, s, logits)
    torch.cuda.synchronize()
    return line + f"; again equal {bool((again == codes).all())}"


def timed(engine, rows, heat=0.9):
    hidden, codes = rand(rows, 2048, k=1.0), torch.randint(0, 2048, (rows, 16), device=dev, dtype=torch.int32)
    return time_ms(lambda: engine.run(hidden, codes, sampling_of[rows, heat]))


sampling_of = {}


def main(argv):
    log(torch.__version__, torch.cuda.get_device_name())
    sizes = [int(a) for a in argv if a.isdigit()] or [64, 32]
    w = Predictors()
    for rows in sizes:
        for heat in (0.0, 0.9):
            sampling_of[rows, heat] = sampling(rows, heat)
    for cl in (2,):
        packed = pack_cluster(w.predictor, cl)
        for rows in sizes:
            for cooperative in (True, False):
                try:
                    engine = ClusterPredictor(w.shape, packed, rows, blocks_a_cluster=cl, cooperative=cooperative)
                    at_once = engine.kernel.clusters_at_once(cl)
                    log(f"clusters of {cl}, {rows} rows, cooperative {cooperative}: places {engine.places}, {at_once} clusters at once, {128 // cl} needed")
                    if at_once < 128 // cl:
                        break
                    if "check" in argv:
                        log("CHECK", check(w, engine, rows))
                        log("CHECK", rows - 3, check(w, engine, rows - 3))
                    if "time" in argv:
                        log(f"TIME clusters of {cl}, {rows} rows: greedy {timed(engine, rows, 0.0):.3f}, sampled {timed(engine, rows):.3f} ms")
                    if "chains" in argv:
                        e = ClusterPredictor(w.shape, packed, rows, blocks_a_cluster=cl, names={"TWO_CHAINS": 1})
                        log(f"  two chains: greedy {timed(e, rows, 0.0):.3f} ms; before: {timed(RowsPredictor(w.shape, pack_rows(w.predictor), rows), rows, 0.0):.3f}")
                    if "variants" in argv:
                        for names in ({"CHAIN_ONLY": 1}, {"STREAM_ONLY": 1}):
                            e = ClusterPredictor(w.shape, packed, rows, blocks_a_cluster=cl, cooperative=cooperative, names=names)
                            log(f"  {names}: greedy {timed(e, rows, 0.0):.3f} ms")
                    if "trace" in argv:
                        for names in ({},):
                            e = ClusterPredictor(w.shape, packed, rows, blocks_a_cluster=cl, cooperative=cooperative, places=4, names={"TRACE": 1, **names})
                            e.packed["scales"] = torch.zeros(64, device=dev, dtype=torch.int32)
                            for _ in range(3):
                                timed(e, rows, 0.0)
                            t = (e.packed["scales"].view(8, 8).float() / 80).round().int()
                            for name, line in zip("qkv output gate down head attention".split(), t.tolist(), strict=False):
                                log(f"  ticks a layer {names} {name}: {line[:7]} = {sum(line)}")
                    break
                except Exception as error:
                    log("FAILED", repr(error)[:300])
                    if "CUDA driver" not in repr(error):
                        traceback.print_exc(limit=3)
                        return
    if "old" in argv:
        packed = pack_rows(w.predictor)
        for rows in sizes:
            engine = RowsPredictor(w.shape, packed, rows)
            log(f"TIME before, {rows} rows: greedy {timed(engine, rows, 0.0):.3f}, sampled {timed(engine, rows):.3f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
