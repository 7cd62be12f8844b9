"""The convolutions that are too thin for tiles, against plain torch."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel(triton_device):
    from omnirt.kernels import thin_conv

    torch.manual_seed(0)
    return thin_conv


@pytest.fixture(params=["float32", "bfloat16"])
def kind(request, triton_device):
    if triton_device == "cpu" and request.param == "bfloat16":
        pytest.skip("the interpreter neither rounds nor multiplies bfloat16 as a device does")
    return request.param


def test_the_last_convolution_is_the_reference_and_limited(kernel, triton_device, kind):
    from omnirt.kernels.tap_layout import Extent, Tile, View

    s = torch.randn(3, 6 + 20, 24).to(triton_device, getattr(torch, kind))
    weight, bias = torch.randn(7, 24, device=triton_device) / 10, torch.randn(1, device=triton_device)
    out = torch.zeros(60, device=triton_device)
    kernel.last_conv(View(s, 26 * 24), weight, bias, out, Extent(3, 5, 4), Tile(16, 0, 0, 4, 0))
    want = kernel.reference_last(s, weight, bias)
    assert (out.view(3, 20) - want).abs().max() < kernel.FLOAT32_TOLERANCE
    assert want.abs().max() == 1


def test_each_channel_alone_and_a_layer_norm_are_the_reference(kernel, triton_device, kind):
    from omnirt.kernels.tap_layout import Extent, View

    dtype = getattr(torch, kind)
    x, out = torch.randn(2, 6 + 8, 40).to(triton_device, dtype), torch.zeros(2, 8, 40).to(triton_device, dtype)
    vectors = (torch.randn(40, device=triton_device) for _ in range(3))
    depth = kernel.Depth(torch.randn(7 * 40, device=triton_device), *vectors)
    kernel.depth_conv_norm(View(x, 14 * 40), depth, Extent(2, 4, 2), View(out, 8 * 40), 1e-6)
    want = kernel.reference_depth(x, depth, 1e-6)
    tolerance = kernel.FLOAT32_TOLERANCE if kind == "float32" else kernel.TOLERANCE
    assert (out.float() - want).abs().max() <= tolerance * want.abs().max()


def test_a_live_launch_packs_the_rows_it_has(kernel, triton_device):
    from omnirt.kernels.tap_layout import Extent, Tile, View

    s = torch.randn(3, 6 + 20, 24, device=triton_device)
    weight, bias = torch.randn(7, 24, device=triton_device) / 20, torch.zeros(1, device=triton_device)
    live = torch.tensor([2, 3], dtype=torch.int32, device=triton_device)
    out = torch.full((60,), 9.0, device=triton_device)
    kernel.last_conv(View(s, 26 * 24), weight, bias, out, Extent(3, 5, 4, live), Tile(16, 0, 0, 4, 0))
    want = kernel.reference_last(s, weight, bias)[:2, :12]
    assert (out[:24].view(2, 12) - want).abs().max() < kernel.FLOAT32_TOLERANCE
    assert (out[24:] == 9).all()
