"""Each scheme's scale, error and bytes against its definition."""

import pytest
import torch

from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from tests.unit.reference.tiny import HEAD_DIM, HEADS, KV_HEADS, LAYERS, runner, tokens
from workers.engines.reference.codecs import NF4_LEVELS, AbsMaxInt8, Affine, Cast, Codec, Nf4, pack, unpack

SHAPE = ModelShape(
    layers=LAYERS, attention_heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, max_context=512
)


def values(count: int = 64) -> torch.Tensor:
    return torch.randn(1, 2, count, HEAD_DIM, generator=torch.Generator().manual_seed(3))


def error(codec: Codec, x: torch.Tensor) -> float:
    return float((codec.decode(codec.encode(x)) - x).pow(2).mean())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_packed_codes_come_back_and_take_their_bits(bits: int) -> None:
    codes = torch.randint(2**bits, (3, 5, 32), generator=torch.Generator().manual_seed(bits)).to(torch.uint8)
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, 5, 32 * bits // 8)
    assert torch.equal(unpack(packed, bits, 32), codes)


def test_int8_has_one_scale_per_token_and_head_and_errs_by_half_a_step_at_most() -> None:
    x = values()
    codes, scale = AbsMaxInt8().encode(x)
    assert torch.allclose(scale, x.abs().amax(-1, keepdim=True) / 127)
    assert int(codes.abs().max()) == 127
    assert ((AbsMaxInt8().decode((codes, scale)) - x).abs() <= scale / 2 + 1e-7).all()


@pytest.mark.parametrize("along", ["channels", "tokens"])
def test_groups_record_their_smallest_value_and_a_step(along: str) -> None:
    codec = Affine(bits=4, group_size=16, along=along)  # type: ignore[arg-type]
    x, dim = values(), -1 if along == "channels" else -2
    packed, scale, offset = codec.encode(x)
    groups = x.unflatten(dim, (-1, 16))
    assert torch.equal(offset, groups.amin(dim).half())
    assert torch.allclose(scale.float(), (groups.amax(dim) - groups.amin(dim)) / 15, rtol=1e-3)
    assert packed.shape == (1, 2, 64, HEAD_DIM // 2)
    found = codec.decode((packed, scale, offset)).unflatten(dim, (-1, 16))
    assert ((found - groups).abs() <= scale.float().unsqueeze(dim) * 0.52).all()


def test_nf4_takes_the_nearest_level_times_the_largest_value_of_the_block() -> None:
    x = values(4)
    blocks = x.unflatten(-1, (-1, 16))
    largest = blocks.abs().amax(-1, keepdim=True)
    levels = torch.tensor(NF4_LEVELS)
    nearest = levels[((blocks / largest).unsqueeze(-1) - levels).abs().argmin(-1)] * largest
    assert torch.allclose(Nf4(block_size=16).decode(Nf4(block_size=16).encode(x)), nearest.flatten(-2))


def test_fp8_rounds_to_nearest_and_saturates() -> None:
    x = torch.tensor([[[[1.0, 1.06, 1.07, 1000.0, -1000.0]]]])
    (stored,) = Cast(dtype=torch.float8_e4m3fn).encode(x)
    assert stored.float().flatten().tolist() == [1.0, 1.0, 1.125, 448.0, -448.0]


def test_at_two_bits_keys_with_loud_channels_are_better_off_per_channel() -> None:
    x = values()
    x[..., 3] += 30
    per_channel, per_token = (Affine(bits=2, group_size=32, along=along) for along in ("tokens", "channels"))
    assert error(per_channel, x) < error(per_token, x) / 2


def test_more_bits_never_err_more() -> None:
    x = values()
    errors = [error(Affine(bits=bits, group_size=32, along="channels"), x) for bits in (2, 4, 8)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize(
    "scheme",
    [
        {"scheme": "none"},
        {"scheme": "fp8_e4m3"},
        {"scheme": "fp8_e5m2"},
        {"scheme": "int8"},
        {"scheme": "int4"},
        {"scheme": "int4", "group_size": 16},
        {"scheme": "nf4", "block_size": 32},
        {"scheme": "kivi", "bits": 2, "group_size": 16, "residual_length": 32},
        {"scheme": "kivi", "bits": 4, "group_size": 32, "residual_length": 32},
    ],
    ids=str,
)
def test_the_tensors_take_what_the_formula_says(scheme: dict[str, object]) -> None:
    run = runner({"quantization": scheme})
    short, long = (run.read_prompt(tokens(count)).nbytes for count in (64, 192))
    formula = kv_bytes_per_token(SHAPE, KVConfig.model_validate({"quantization": scheme}).quantization)
    assert (long - short) / 128 == pytest.approx(formula, rel=0.01)
