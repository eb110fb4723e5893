"""noisefloor.capture(): the problems of diffusers' networks."""

import built  # noqa: F401 - finds the module
import captured
import noisefloor
import pytest
from capturing import needs_torch, torch


@needs_torch
@pytest.mark.parametrize("network", captured.NETWORKS)
def test_diffusers_unets_are_as_recorded(network):
    pytest.importorskip("diffusers", reason="diffusers is not installed")
    capture = captured.capture(network)
    assert {(group.what.op, group.what.text): group.count for group in capture.problems()} == captured.table_of(network)
    assert {group.what.dtype for group in capture.problems()} == {"fp32"} and capture.coverage()["flops"] > 0.999


@needs_torch
def test_a_small_unet_computes_what_it_did_and_has_the_problems_of_meta():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    torch.manual_seed(4)
    network = diffusers.UNet2DConditionModel(block_out_channels=(16, 32), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), norm_num_groups=8,
                                             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), layers_per_block=1, attention_head_dim=2,
                                             cross_attention_dim=24).eval()  # fmt: skip
    inputs = torch.randn(2, 4, 8, 12), torch.tensor([17, 801]), torch.randn(2, 5, 24)
    with torch.no_grad():
        wanted = network(*inputs).sample
        with noisefloor.capture() as capture:
            assert torch.equal(network(*inputs).sample, wanted)
        with noisefloor.capture() as meta:
            network.to("meta")(*(tensor.to("meta") for tensor in inputs))
    assert {group.what: group.count for group in capture.problems()} == {group.what: group.count for group in meta.problems()}


@needs_torch
def test_of_a_dit_it_names_what_it_cannot_map():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    with torch.device("meta"), torch.no_grad():
        network = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=16, norm_num_groups=8).eval()
        labels = torch.zeros(2, dtype=torch.long)
        with noisefloor.capture() as capture:
            network(torch.empty(2, 4, 16, 16), labels, labels)
    unmapped = {group.what: group.count for group in capture.unmapped()}
    for name, reason, count in (("mul", "elementwise has no product", 13),
                                ("add", "elementwise adds tensors of one shape only", 1), ("embedding", "no op of the catalogue", 3)):  # fmt: skip
        assert unmapped[name, reason] == count
    assert {group.what.op for group in capture.problems()} == {"timestep_embedding", "conv2d", "gemm", "elementwise", "layernorm", "attention"}
    assert all("fusion=scale_shift" in group.what.text for group in capture.problems() if group.what.op == "layernorm")
    assert 0.997 < capture.coverage()["flops"] < 0.999
