"""Tiny decoder in the interpreter: twin streamed against one shot, kernels against the twin at mixed chunk lengths."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")]
import torch

import tap_conv
from decoder import Bucket, DecoderShape, DecoderSlots, PackedDecoder, PlainDecoder, random_weights

torch.set_grad_enabled(False)
torch.set_num_threads(1)
tap_conv.FAST = False
s = DecoderShape(books=4, codes=32, width=32, latent=64, hidden=32, feed=64, layers=2, heads=2, head=32, window=5, channels=768, rates=(2, 2, 3), longest=64)
w = random_weights(s, "cpu")
codes = torch.randint(0, s.codes, (2, 9, s.books))
plain = PlainDecoder(s, w)
whole = plain(codes, {})
state: dict = {}
parts = torch.cat([plain(codes[:, a:b], state) for a, b in ((0, 1), (1, 3), (3, 7), (7, 9))], -1)
print("twin, chunks against one shot", float((parts - whole).abs().max()), "loudest", float(whole.abs().max()), float(whole.std()))
p = PackedDecoder(s, w, torch.float32)
slots = DecoderSlots.make(s, 3, 4, torch.float32, "cpu")
small, big = Bucket(p, slots, 1, 1), Bucket(p, slots, 2, 4)
got = [[], []]


def call(bucket, rows, lengths):
    n = bucket.rows
    bucket.slots.copy_(torch.tensor([rows[i] if i < len(rows) else 2 for i in range(n)]))
    bucket.lengths.copy_(torch.tensor([lengths[i] if i < len(rows) else 0 for i in range(n)]))
    for i, (r, l) in enumerate(zip(rows, lengths)):
        at = int(slots.positions[r])
        bucket.codes[i, :l] = codes[r, at:at + l]
    bucket.samples.fill_(float("nan"))
    bucket.run()
    for i, (r, l) in enumerate(zip(rows, lengths)):
        got[r].append(bucket.samples[i, :l * s.samples].clone())


slots.tails.fill_(float("nan")), slots.keys.fill_(float("nan")), slots.values.fill_(float("nan"))
call(small, [1], [1])
call(big, [1, 0], [2, 4])
call(big, [0, 1], [3, 4])
call(big, [1, 0], [2, 2])
for r in range(2):
    print("kernels against the twin, row", r, float((torch.cat(got[r]) - whole[r]).abs().max()))
