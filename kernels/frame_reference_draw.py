"""How the plain frame step draws a code: repetition penalty, suppression, temperature, top-k, top-p, Gumbel-max.

The order is that of the reference implementation's generation loop. Top-k and top-p decide on logits rounded to
bfloat16, and equals of the last one stay, so that every form of the step can agree on them; temperature 0 takes the
largest logit, unrounded. Noise depends on (seed, step, codebook, id) alone. Fixed shapes; nothing is read back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omnirt.kernels.frame_layout import Sampling
from omnirt.kernels.philox import uniform

BARRED = -1e30
_COLDEST = 1e-6


def penalized(logits_rv: Tensor, seen_rv: Tensor, penalty_r: Tensor) -> Tensor:
    factor = penalty_r[:, None]
    changed = torch.where(logits_rv > 0, logits_rv / factor, logits_rv * factor)
    return torch.where(seen_rv != 0, changed, logits_rv)


def draw(logits_rv: Tensor, codebook: int, steps_r: Tensor, sampling: Sampling) -> Tensor:
    """[r] int64. `sampling` is that of these rows, `logits_rv` float32."""
    best = logits_rv.argmax(-1)
    warm = sampling.temperature > 0
    if logits_rv.device.type == "cpu" and not bool(warm.any()):
        return best  # noise is most of the work where the model is small
    rounded = logits_rv.bfloat16().float()
    heat = sampling.temperature.clamp(min=_COLDEST)[:, None]
    kept = rounded >= _least(rounded, heat, sampling)
    noise = -(-uniform(sampling.seed, steps_r, codebook, logits_rv.shape[1]).log()).log()
    drawn = torch.where(kept, rounded / heat + noise, BARRED).argmax(-1)
    return torch.where(warm, drawn, best)


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
