"""The frame's graph and the decoder's graph on one GPU: alone, one after the other, and on two streams."""

from __future__ import annotations

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "kernels")]
import torch

import decoder_time as d
import frame as f

torch.set_grad_enabled(False)


def capture(fn, stream):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fn()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=stream):
        fn()
    torch.cuda.synchronize()
    return g


def event():
    return torch.cuda.Event(enable_timing=True)


def rounds(frames, frame, decode, high, low, rewind, apart, calls=1):
    """ms of one round (`frames` frames and `calls` decoder calls), of each frame, of the decoder's call."""
    whole, each, call = [], [], []
    for turn in range(9):
        with torch.cuda.stream(high):
            rewind()
        torch.cuda.synchronize()
        a, z, b, c = event(), event(), event(), event()
        marks = [event() for _ in range(frames + 1)]
        a.record(high)
        side = low if apart else high
        if apart:
            low.wait_event(a)

        def decoding():
            b.record(side)
            with torch.cuda.stream(side):
                for _ in range(calls):
                    decode.replay()
            c.record(side)

        if decode and apart:
            decoding()
        marks[0].record(high)
        for i in range(frames if frame else 0):
            with torch.cuda.stream(high):
                frame.replay()
            marks[i + 1].record(high)
        if decode and not apart:
            decoding()
        if apart:
            high.wait_event(c)
        z.record(high)
        z.synchronize()
        if turn > 1:
            whole.append(a.elapsed_time(z))
            if frame:
                each.append([x.elapsed_time(y) for x, y in zip(marks, marks[1:])])
            if decode:
                call.append(b.elapsed_time(c))
    m = statistics.median
    return m(whole), [round(m(e[i] for e in each), 2) for i in range(frames)] if frame else [], m(call) if call else 0.0


def main():
    w = f.Weights()
    _, _, p, st = d.make()
    tiles = d.load_tiles()
    packed = f.pack_talker(w.talker, w.norm, w.head, w.cosines, w.sines)
    for c, chunks in ((16, (4, 8)), (1, (1, 16)), (64, (4, 8))):
        try:
            if c == 1:
                inner, step = f.PersistentPredictor(f.SoloPredictor(w.shape, f.pack(w.predictor)), 1), f.TalkerStep(packed, 8)
            else:
                inner = f.PersistentPredictor(f.RowsPredictor(w.shape, f.pack_rows(w.predictor), c), 64)
                step = f.TalkerStep(packed, 16) if c == 16 else None
            r = f.Rows(c)
            fr = f.Frame(w, r, inner, False, step)
            for least, most in ((0, -1),):
                low, high = torch.cuda.Stream(priority=least), torch.cuda.Stream(priority=most)
                frame = capture(fr.whole, high)
                for chunk in chunks:
                    b = d.bucket_of(p, st, c, chunk, tiles)
                    st.positions.fill_(100)
                    decode = capture(b.run, low)
                    alone = rounds(chunk, frame, None, high, low, r.rewind, False)
                    only = rounds(chunk, None, decode, high, low, r.rewind, False)
                    serial = rounds(chunk, frame, decode, high, low, r.rewind, False)
                    pair = rounds(chunk, frame, decode, high, low, r.rewind, True)
                    d.log(f"PAIR C={c} chunk {chunk} priorities {least},{most}: a frame alone {alone[0] / chunk:.3f}, decoder alone {only[0]:.3f}, in turn "
                          f"{serial[0]:.3f} a round, two streams {pair[0]:.3f} a round ({pair[0] / chunk:.3f} a frame with decoder, "
                          f"{c * 80 * chunk / min(pair[0], serial[0]):.0f} audio-s/s); with the decoder beside: frames {pair[1][:6]}, decoder {pair[2]:.3f}")
                    del b
        except Exception:
            import traceback
            traceback.print_exc(limit=4)


main()
