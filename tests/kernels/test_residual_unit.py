"""A residual unit in one kernel against its two convolutions in plain torch, for channels in one and in two pieces."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel(triton_device):
    from omnirt.kernels import residual_unit

    torch.manual_seed(0)
    return residual_unit


@pytest.fixture(params=["float32", "bfloat16"])
def kind(request, triton_device):
    if triton_device == "cpu" and request.param == "bfloat16":
        pytest.skip("the interpreter neither rounds nor multiplies bfloat16 as a device does")
    return request.param


def halves_of(kernel, channels, kind, device):
    from omnirt.kernels.residual_unit import Half

    def half(rows):
        vectors = (torch.rand(channels, device=device) + 0.3 for _ in range(3))
        return Half((torch.randn(rows, channels) / rows**0.5).to(device, kind), *vectors)

    return tuple(kernel.padded(made, channels) for made in (half(7 * channels), half(channels)))


@pytest.mark.parametrize(("channels", "found"), [(192, (128, 64)), (96, (64, 32)), (64, (64, 0)), (80, (128, 0))])
def test_channels_are_powers_of_two(kernel, channels, found):
    assert kernel.pieces(channels) == found


@pytest.mark.parametrize("channels", [32, 48, 96])
@pytest.mark.parametrize("keep", [True, False])
def test_a_unit_is_the_reference(kernel, triton_device, kind, channels, keep):
    from omnirt.kernels.tap_layout import Extent, Tile, View

    dtype, rows, frames, dilation = getattr(torch, kind), 2, 5, 3
    halves = halves_of(kernel, channels, dtype, triton_device)
    s = torch.randn(rows, 6 * dilation + frames * 2, channels).to(triton_device, dtype)
    x = torch.randn(rows, frames * 2, channels).to(triton_device, dtype)
    before, out = x.clone(), torch.zeros(rows, frames * 2 + 4, channels, dtype=dtype, device=triton_device)
    kernel.residual_unit(
        View(s, s[0].numel()),
        View(x, x[0].numel()),
        halves,
        View(out, out[0].numel(), 4 * channels),
        Extent(rows, frames, 2),
        Tile(64, 0, 16, 4, 2),
        dilation=dilation,
        keep=keep,
    )
    want, snaked = kernel.reference(s, before, halves, dilation)
    tolerance = kernel.FLOAT32_TOLERANCE if kind == "float32" else kernel.TOLERANCE
    assert (out[:, 4:].float() - snaked).abs().max() <= tolerance * snaked.abs().max()
    assert (x.float() - (want if keep else before.float())).abs().max() <= tolerance * want.abs().max()
