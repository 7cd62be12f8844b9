"""The decoder at full size on a GPU: compile, check, choose tiles, time.

    python3 decoder_time.py compile PART OF | check | tune | time | profile
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import sys
import time
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "kernels")]
import torch

from decoder import Bucket, DecoderShape, DecoderSlots, PackedDecoder, PlainDecoder, Tile, default_tile, random_weights

torch.set_grad_enabled(False)
T0 = time.time()
TUNED = [(1, 1), (1, 4), (1, 16), (16, 1), (16, 4), (64, 1), (64, 4)]
TIMED = [(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (8, 1), (8, 4), (8, 16), (16, 1), (16, 2), (16, 4), (16, 8), (32, 1), (32, 4), (64, 1), (64, 2),
         (64, 4), (64, 8)]
FILE = os.environ.get("TILES", os.path.join(HERE, "tiles.json"))
FLOP = 4.96e9
EARLY_MOST = 4
AGAIN = ("block2.unit", "block3.unit", "block3.stretch", "last", "block1.unit")
BAD = set(open(os.path.join(HERE, "bad.txt")).read().splitlines()) if os.path.exists(os.path.join(HERE, "bad.txt")) else set()
EXACT = Tile(16, 32, 16, 4, 2)


def log(*a):
    print(f"[{time.time() - T0:6.1f}]", *a, flush=True)


def kind_of(name):
    name = re.sub(r"layer\d+", "layer", name)
    name = re.sub(r"^up\d+", "up", name)
    return re.sub(r"(block\d)\.\d\.", r"\1.", name)


def positions(name, bucket):
    if name.startswith(("layer", "pre", "enter", "leave")):
        each = 1
    elif name.startswith("up"):
        each = int(name[2]) + 1 if "." not in name else 2 * (int(name[2]) + 1)
    elif name == "first":
        each = 4
    elif name == "last":
        each = 1920
    else:
        i = int(name[5])
        each = (4, 32, 160, 640, 1920)[i if "stretch" in name else i + 1]
    return bucket.rows * bucket.frames * each


def candidates(name, bucket):
    m, kind = positions(name, bucket), kind_of(name)
    c = {"block2": 64, "block3": 32}.get(kind[:6], 128)
    if kind == "last":
        return [Tile(a, 0, 0, w, 0) for a, w in ((16, 4), (32, 4), (64, 4), (64, 8), (128, 8), (16, 1), (32, 2))]
    if kind == "block1.unit":
        return [t for t in (Tile(64, 0, 64, 8, 3), Tile(64, 0, 32, 8, 4), Tile(128, 0, 32, 8, 3)) if f"{kind} {t}" not in BAD]
    if kind.endswith("unit"):
        if kind[5] == "3":
            tiles = [(64, 32, 4, 3), (64, 32, 4, 4), (64, 32, 4, 5), (64, 32, 4, 6), (64, 32, 8, 4), (128, 32, 8, 4), (128, 32, 4, 4), (32, 32, 4, 4), (16, 32, 4, 4)]
        else:
            tiles = [(64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 4), (64, 32, 4, 5), (128, 64, 8, 3), (16, 64, 4, 4), (32, 64, 4, 4)]
        tiles = [Tile(a, 0, b, w, s) for a, b, w, s in tiles if a <= max(16, m) and m // a <= 4096 * 8]
        return [t for t in tiles if f"{kind} {t}" not in BAD]
    if kind == "block3.stretch" and m > 5000:
        return [t for t in (Tile(*t) for t in ((256, 128, 64, 8, 3), (128, 32, 64, 4, 4), (256, 32, 64, 4, 3), (256, 32, 64, 8, 3), (128, 64, 64, 4, 4), (256, 64, 64, 8, 3), (128, 128, 64, 8, 2)))
                if f"{kind} {t}" not in BAD]
    wide = {"block2.stretch": 64, "block3.stretch": 64}.get(kind, 128)
    big = [(128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (256, 128, 64, 8, 3), (64, 256, 64, 4, 4),
           (64, 128, 64, 4, 4)]
    small = [(16, 16, wide, 4, 6), (16, 32, wide, 4, 5), (16, 64, wide, 4, 5), (32, 32, wide, 4, 5), (32, 64, 64, 4, 5), (64, 32, wide, 4, 4), (64, 64, 64, 4, 4),
             (64, 64, wide, 4, 4)]
    out = []
    for a, b, k, w, s in big + small:
        fill = -(-m // a) * (768 // b)
        if (a <= max(16, 2 * m) if a < 64 else a <= m) and fill >= 6 and fill < 4000:
            if kind == "layer.both" and b > 128:
                continue
            out.append(Tile(a, b, k, w, s))
    return list(dict.fromkeys(out))


def make(kind=torch.bfloat16, slots=65):
    s = DecoderShape()
    w = random_weights(s, "cuda")
    return s, w, PackedDecoder(s, w, kind), DecoderSlots.make(s, slots, 16, kind, "cuda")


def load_tiles():
    return {tuple(k.split("|")): Tile(*v) for k, v in json.load(open(FILE)).items()} if os.path.exists(FILE) else {}


def bucket_of(p, st, rows, frames, tiles):
    b = Bucket(p, st, rows, frames, early=rows * frames <= EARLY_MOST)
    b.codes.random_(0, 2048)
    for name in b.tiles:
        if b.tiles[name].m:
            m = positions(name, b)
            near = [(abs(torch.log2(torch.tensor(int(k[1]) / m)).item()), t) for k, t in tiles.items() if k[0] == kind_of(name)]
            if near:
                b.tiles[name] = min(near, key=lambda x: x[0])[1]
    return b


def graph_of(fn):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        fn()
    torch.cuda.current_stream().wait_stream(s)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return g


def time_graph(g, reps=11, warm=2):
    times = []
    for _ in range(reps + warm):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        g.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times[warm:])


def probe(part, of):
    """Each candidate of the kernels to choose again in a process of its own: a fault ends only that."""
    import decoder

    decoder.FUSED_CHANNELS = 384
    s, w, p, st = make()
    jobs = {}
    for rows, frames in ((64, 4), (1, 1)):
        b = Bucket(p, st, rows, frames)
        for name, step in b.steps:
            if kind_of(name) in AGAIN:
                for tile in candidates(name, b):
                    jobs.setdefault(f"{kind_of(name)} {tile}", []).append((step, tile))
        if not rows == 1:
            keep = b
    for i, (key, runs) in enumerate(jobs.items()):
        if i % of == part:
            try:
                for step, tile in runs:
                    step(tile)
                    torch.cuda.synchronize()
            except Exception as e:
                print("BAD", key, "|", str(e).splitlines()[0][:90], flush=True)
                if "memory access" in str(e):
                    return


def compile_part(part, of):
    s, w, p, st = make()
    done, tiles = set(), load_tiles()
    for rows, frames in TIMED:
        b = bucket_of(p, st, rows, frames, tiles)
        for early in (True, False) if rows * frames <= EARLY_MOST else (False,):
            b.early = early
            for name, step in b.steps:
                again = (rows, frames) in TUNED and kind_of(name) in AGAIN and not early
                for tile in dict.fromkeys([b.tiles[name], *(candidates(name, b) if again else [])]):
                    key = f"{kind_of(name)} {tile} {early} {frames if 'attend' in name else ''}"
                    if key not in done and zlib.crc32(key.encode()) % of == part:
                        try:
                            step(tile)
                        except Exception as e:
                            print("does not fit", key, str(e)[:60])
                    done.add(key)
        torch.cuda.synchronize()
        del b
    log("compiled", part)


def invariance():
    """The same tiles: chunks of another length and other batch mates must give the same bits. And how far plain bfloat16 torch is."""
    s, w, p, st = make()
    torch.backends.cudnn.allow_tf32 = False
    tiles, outs = load_tiles(), {}
    codes = torch.randint(0, 2048, (4, 96, 16), device="cuda")
    for rows, n in ((1, 16), (1, 4), (4, 16), (4, 4)):
        slots = DecoderSlots.make(s, 5, 16, torch.bfloat16, "cuda")
        b = bucket_of(p, slots, rows, n, tiles)
        b.early = False
        b.tiles = dict(bucket_of(p, slots, 4, 4, tiles).tiles)
        parts = []
        for at in range(0, 96, n):
            b.codes.copy_(codes[4 - rows:, at:at + n])
            b.run()
            parts.append(b.samples.clone())
        outs[rows, n] = torch.cat(parts, -1)[-1]
    a = outs[1, 16]
    log("bfloat16, same tiles, last row alone in chunks of 16 against: ", {k: float((v - a).abs().max()) for k, v in outs.items()})
    want = PlainDecoder(s, w)(codes[3:], {})[0]
    plain = PlainDecoder(s, w, torch.bfloat16)(codes[3:], {})[0].float()
    log(f"relative error to float32: kernels {float((a - want).norm() / want.norm()):.2e}, torch in bfloat16 {float((plain - want).norm() / want.norm()):.2e}")


def check():
    s, w, p, st = make()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    plain = PlainDecoder(s, w)
    codes = torch.randint(0, 2048, (2, 88, 16), device="cuda")
    whole, state, at, parts = plain(codes, {}), {}, 0, []
    for n in (1, 2, 4, 8, 16, 16, 16, 16, 8, 1):
        parts.append(plain(codes[:, at:at + n], state))
        at += n
    log("float32 twin, chunks against one shot, 88 frames: max error", f"{float((torch.cat(parts, -1) - whole).abs().max()):.2e}",
        "deviation", f"{float(whole.std()):.3f}")
    rounded = PlainDecoder(s, {k: v.bfloat16().float() if "bias" not in k and "alpha" not in k and "beta" not in k else v for k, v in w.items()})(codes, {})
    outs = {}
    for kind, packed in ((torch.bfloat16, p), (torch.float32, PackedDecoder(s, w, torch.float32))):
        for plan in ((4,) * 22, (1, 2, 4, 8, 16, 16, 16, 16, 8, 1), (16, 16, 16, 16, 16, 8)):
            if kind == torch.float32 and plan[0] != 4:
                continue
            slots = DecoderSlots.make(s, 3, 16, kind, "cuda")
            slots.tails.fill_(float("nan"))
            buckets, at, parts = {}, 0, []
            for n in plan:
                if n not in buckets:
                    buckets[n] = bucket_of(packed, slots, 2, n, load_tiles())
                    if kind == torch.float32:
                        buckets[n].early = False
                        for name in buckets[n].tiles:
                            buckets[n].tiles[name] = EXACT
                b = buckets[n]
                b.codes.copy_(codes[:, at:at + n])
                b.samples.fill_(float("nan"))
                b.run()
                parts.append(b.samples.clone())
                at += n
            got = torch.cat(parts, -1)
            outs[kind, plan[0]] = got
            log(f"kernels {kind} chunks from {plan[0]}: max error to float32 one shot {float((got - whole).abs().max()):.2e}, relative "
                f"{float((got - whole).norm() / whole.norm()):.2e}, to rounded weights {float((got - rounded).norm() / rounded.norm()):.2e}")
            del buckets
    a = outs[torch.bfloat16, 16]
    log("bfloat16, different chunks: largest difference", [f"{float((outs[torch.bfloat16, k] - a).abs().max()):.1e}" for k in (1, 4)])


def tune():
    s, w, p, st = make()
    best, tiles = {"|".join(k): list(vars(t).values()) for k, t in load_tiles().items() if k[0] not in AGAIN}, load_tiles()
    flush = torch.empty(80 << 20, device="cuda", dtype=torch.uint8)
    for rows, frames in TUNED:
        b = bucket_of(p, st, rows, frames, tiles)
        b.early = False
        cold = rows * frames <= 16
        base = time_graph(graph_of(lambda: [flush.zero_() for _ in range(5)]), 5) if cold else 0
        for name, step in b.steps:
            key = f"{kind_of(name)}|{positions(name, b)}" if b.tiles[name].m else None
            if not key or key in best or kind_of(name) not in AGAIN:
                continue
            found = []
            for tile in dict.fromkeys([b.tiles[name], *candidates(name, b)]):
                try:
                    t = time_graph(graph_of(lambda: [(step(tile), flush.zero_() if cold else None) for _ in range(5)]), 5)
                    found.append(((t - base) * 200, tile))
                except Exception:
                    torch.cuda.synchronize()
            found.sort(key=lambda x: x[0])
            best[key] = vars(found[0][1]).values()
            best[key] = list(best[key])
            if rows * frames in (1, 64, 256) and "layer" not in key:
                log(f"{rows}x{frames} {key}: " + ", ".join(f"{t:.1f} {tuple(vars(c).values())}" for t, c in found[:4]), f"... {found[-1][0]:.1f}")
        del b
    for path in (os.path.join(os.environ.get("OUT", HERE), "tiles.json"), FILE):
        json.dump(best, open(path, "w"))
    log("tuned", len(best))


def wide():
    """Units of 384 channels in one kernel too."""
    import decoder

    s, w, p, st = make()
    b = Bucket(p, st, 64, 4)
    st.positions.fill_(100)
    tiles = load_tiles()
    log("block1 of 64 rows, 4 frames, two kernels a unit", profile(bucket_of(p, st, 64, 4, tiles))["block1"])
    decoder.FUSED_CHANNELS = 384
    p = PackedDecoder(s, w, torch.bfloat16)
    b = bucket_of(p, st, 64, 4, tiles)
    for tile in candidates("block1.1.unit", b):
        try:
            for name in b.tiles:
                if kind_of(name) == "block1.unit":
                    b.tiles[name] = tile
            log("one kernel a unit", tile, profile(b)["block1"])
        except Exception as e:
            log("does not run", tile, str(e)[:80])


def group_of(name):
    if name in ("load", "save", "last", "embed", "first"):
        return name
    return "transformer" if name.startswith(("layer", "pre", "enter", "leave")) else "up" if name.startswith("up") else name[:6]


def profile(b):
    row = {}
    for name, group in itertools.groupby(b.steps, lambda x: group_of(x[0])):
        row[name] = time_graph(graph_of(lambda g=list(group): [f(b.tiles[n]) for n, f in g for _ in (0, 1, 2)]), 5) / 3
    return row


def time_all():
    s, w, p, st = make()
    tiles, table = load_tiles(), {}
    for rows, frames in TIMED:
        try:
            b = bucket_of(p, st, rows, frames, tiles)
            row = {}
            for early in (True, False) if rows * frames <= EARLY_MOST else (False,):
                b.early = early
                st.positions.fill_(100)
                row["early" if early else "plain"] = time_graph(graph_of(b.run))
            t = min(row.values())
            floor = max(rows * frames * FLOP / 789e9, 0.053)
            if (rows, frames) in TUNED:
                row.update(profile(b))
            log(f"TIME rows {rows} frames {frames}: {t:.3f} ms, {t / frames:.3f} a frame of all rows, {t / rows / frames * 1e3:.1f} us a frame of one, "
                f"floor {floor:.3f} ({t / floor:.1f}x) " + ", ".join(f"{k} {v:.3f}" for k, v in row.items()))
            table[f"{rows}x{frames}"] = row
            del b
        except Exception:
            traceback.print_exc(limit=4)
    json.dump(table, open(os.path.join(os.environ.get("OUT", HERE), "decoder.json"), "w"), indent=1)


if __name__ == "__main__":
    what = sys.argv[1]
    if what in ("compile", "probe"):
        {"compile": compile_part, "probe": probe}[what](int(sys.argv[2]), int(sys.argv[3]))
    else:
        {"check": check, "invariance": invariance, "wide": wide, "tune": tune, "time": time_all}[what]()
