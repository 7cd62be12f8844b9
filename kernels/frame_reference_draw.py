"""How the plain frame step draws a code: repetition penalty, suppression, temperature, top-k, top-p, Gumbel-max.

The order is that of the reference implementation's generation loop. Top-k and top-p decide on logits rounded to
bfloat16, and equals of the last one stay, so that every form of the step can agree on them; temperature 0 takes the
largest logit, unrounded. Noise depends on (seed, step, codebook, id) alone. Fixed shapes; nothing is read back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omnirt.kernels.frame_layout import Sampling
from omnirt.kernels.philox import uniforms

BARRED = -1e30
_COLDEST = 1e-6


def penalized(logits_rv: Tensor, seen_rv: Tensor, penalty_r: Tensor) -> Tensor:
    factor = penalty_r[:, None]
    changed = torch.where(logits_rv > 0, logits_rv / factor, logits_rv * factor)
    return torch.where(seen_rv != 0, changed, logits_rv)


def noise_of(sampling: Sampling, steps_r: Tensor, codebooks: range, vocab: int) -> Tensor:
    """Of several codebooks at once, [r, codebooks, v]: a small model spends more time on it than on anything else."""
    return -(-uniforms(sampling.seed, steps_r, codebooks, vocab).log()).log()


def draw(
    logits_rv: Tensor, codebook: int, steps_r: Tensor, sampling: Sampling, noise_rv: Tensor | None = None
) -> Tensor:
    """[r] int64. `sampling` is that of these rows, `logits_rv` float32, `noise_rv` this codebook's if it is known."""
    best = logits_rv.argmax(-1)
    if not may_be_warm(sampling):
        return best
    if noise_rv is None:
        noise_rv = noise_of(sampling, steps_r, range(codebook, codebook + 1), logits_rv.shape[1])[:, 0]
    rounded = logits_rv.bfloat16().float()
    heat = sampling.temperature.clamp(min=_COLDEST)[:, None]
    kept = rounded >= _least(rounded, heat, sampling)
    drawn = torch.where(kept, rounded / heat + noise_rv, BARRED).argmax(-1)
    return torch.where(sampling.temperature > 0, drawn, best)


def may_be_warm(sampling: Sampling) -> bool:
    """False where it costs nothing to know that all rows are greedy: on a processor."""
    return sampling.temperature.device.type != "cpu" or bool((sampling.temperature > 0).any())


def _least(rounded_rv: Tensor, heat: Tensor, sampling: Sampling) -> Tensor:
    """[r, 1]: the smallest logit that top-k and top-p leave."""
    vocab = rounded_rv.shape[1]
    ordered = rounded_rv.sort(-1, descending=True).values
    keep = torch.where(sampling.top_k > 0, sampling.top_k, vocab).clamp(max=vocab).long()[:, None]
    by_count = ordered.gather(1, keep - 1)
    mass = torch.where(ordered >= by_count, ((ordered - ordered[:, :1]) / heat).exp(), 0).double()
    upto = mass.cumsum(-1)
    # What lies above a logit: all before the first of its equals.
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    above = torch.where(first, upto - mass, 0).cummax(-1).values
    share = sampling.top_p[:, None]
    count = (above < share * upto[:, -1:]).sum(-1, keepdim=True).clamp(min=1)
    by_share = ordered.gather(1, count - 1)
    return torch.where(share < 1, torch.maximum(by_count, by_share), by_count)
