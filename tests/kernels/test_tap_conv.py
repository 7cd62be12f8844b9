"""Each use of the one product, against plain torch: taps, gates, norms, sums, snakes, edges, fewer rows than fit."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel(triton_device):
    from omnirt.kernels import tap_conv

    torch.manual_seed(0)
    return tap_conv


@pytest.fixture(params=["float32", "bfloat16"])
def kind(request, triton_device):
    if triton_device == "cpu" and request.param == "bfloat16":
        pytest.skip("the interpreter neither rounds nor multiplies bfloat16 as a device does")
    return getattr(torch, request.param)


def made(kernel, kind, triton_device, *, rows=2, frames=3, taps=1, dilation=1, c=32, n=48, gated=False, **more):
    """(buffer, product, extent) with a history as long as the taps reach back."""
    weight = (torch.randn(taps * c, n * (2 if gated else 1)) / (taps * c) ** 0.5).to(triton_device, kind)
    product = kernel.Product(weight, taps=taps, dilation=dilation, gated=gated, **more)
    buffer = torch.randn(rows, (taps - 1) * dilation + frames * 2, c).to(triton_device, kind)
    return buffer, product, kernel.Extent(rows, frames, 2)


def assert_close(kernel, got, want):
    tolerance = kernel.FLOAT32_TOLERANCE if got.dtype == torch.float32 else kernel.TOLERANCE
    assert (got.float() - want).abs().max() <= tolerance * want.abs().max()


CASES = {
    "taps apart": {"taps": 7, "dilation": 3},
    "a linear layer with a bias and gelu": {"bias": True, "gelu": True},
    "normed": {"norm_eps": 1e-5},
    "normed and gated": {"norm_eps": 1e-5, "gated": True},
    "two positions a column block": {"taps": 2, "period": 24, "bias": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tile", [(16, 16, 16), (64, 32, 32)], ids=["small tiles", "one large tile"])
def test_a_product_is_the_reference(kernel, kind, triton_device, case, tile):
    more = dict(CASES[case])
    if more.pop("bias", False):
        more["bias"] = torch.randn(more.get("period", 48)).to(triton_device)
    buffer, product, extent = made(kernel, kind, triton_device, **more)
    out = torch.zeros(2, 6, 48, dtype=kind, device=triton_device)
    chosen = kernel.Tile(*tile, 4, 2)
    kernel.tap_conv(kernel.View(buffer, buffer[0].numel()), product, extent, chosen, out=kernel.View(out, 6 * 48))
    assert_close(kernel, out, kernel.reference(buffer, product))


def test_a_sum_goes_out_as_it_is_and_through_a_snake_behind_a_history(kernel, kind, triton_device):
    buffer, product, extent = made(kernel, kind, triton_device, taps=2)
    res, out = (torch.randn(2, 6, 48).to(triton_device, kind) for _ in range(2))
    snaked = torch.zeros(2, 9, 48, dtype=kind, device=triton_device)
    amount, scale = (torch.rand(48, device=triton_device) + 0.5 for _ in range(2))
    kernel.tap_conv(
        kernel.View(buffer, buffer[0].numel()),
        product,
        extent,
        kernel.Tile(16, 32, 32, 4, 2),
        res=kernel.View(res, 6 * 48),
        out=kernel.View(out, 6 * 48),
        snaked=kernel.View(snaked, 9 * 48, 3 * 48),
        snake=(amount, scale),
    )
    want = kernel.reference(buffer, product, res)
    assert_close(kernel, out, want)
    assert_close(kernel, snaked[:, 3:], kernel.reference_snake(want, amount, scale))
    assert not snaked[:, :3].any()


@pytest.mark.parametrize(("rows", "frames"), [(0, 0), (1, 3), (2, 1), (2, 3)])
def test_a_live_launch_does_what_the_device_says(kernel, triton_device, rows, frames):
    buffer, product, extent = made(kernel, torch.float32, triton_device, taps=2)
    live = torch.tensor([rows, frames], dtype=torch.int32, device=triton_device)
    out = torch.full((2, 6, 48), 7.0, device=triton_device)
    kernel.tap_conv(
        kernel.View(buffer, buffer[0].numel()),
        product,
        kernel.Extent(2, 3, 2, live),
        kernel.Tile(16, 16, 16, 4, 2),
        out=kernel.View(out, 6 * 48),
    )
    want = torch.full((2, 6, 48), 7.0, device=triton_device)
    want[:rows, : frames * 2] = kernel.reference(buffer, product)[:rows, : frames * 2]
    assert_close(kernel, out, want)
    assert extent.positions == 12
