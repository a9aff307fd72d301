"""The keys or values of one layer and one sequence: encoded, some tokens in 16 bits where a scheme says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from workers.engines.reference.codecs import Cast, Codec, Stored
from workers.engines.reference.rotary import Rotary

SIXTEEN_BIT: Final = Cast(dtype=torch.bfloat16)
SMALLEST_ROOM: Final = 64


@dataclass(kw_only=True)
class Grown:
    """A tensor that grows along its next to last dimension, with room ahead so that few tokens copy the rest."""

    count: int = 0
    _room: torch.Tensor | None = None

    @property
    def view(self) -> torch.Tensor:
        """What is in it."""
        assert self._room is not None  # something was written
        return self._room[..., : self.count, :]

    @property
    def nbytes(self) -> int:
        """Bytes of what is in it."""
        return 0 if self._room is None else self.view.numel() * self._room.element_size()

    def write(self, x: torch.Tensor, *, at: int) -> None:
        """Put `x` at `at`, over what is there; it ends there."""
        self.count = at + x.shape[-2]
        if self._room is None or self._room.shape[-2] < self.count:
            room = x.new_empty((*x.shape[:-2], max(2 * self.count, SMALLEST_ROOM), x.shape[-1]))
            if self._room is not None:
                room[..., :at, :] = self._room[..., :at, :]
            self._room = room
        self._room[..., at : self.count, :] = x

    def keep(self, index: torch.Tensor) -> None:
        """Keep what is at `index`, [heads, kept], of each head; of what heads share, which keep the same then."""
        rows = index[: self.view.shape[1]]
        assert rows.shape == index.shape or bool((rows == index).all())
        chosen = rows[None, :, :, None].expand(1, -1, -1, self.view.shape[-1])
        self.write(_movable(self.view).gather(-2, chosen).view(self.view.dtype), at=0)


def _movable(x: torch.Tensor) -> torch.Tensor:
    """The same bytes: torch does not gather 8-bit floats."""
    return x.view(torch.uint8) if x.is_floating_point() and x.element_size() == 1 else x


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Tokens in their order as they are stored for good: those spared in 16 bits, then the others' codes."""

    spared: torch.Tensor | None = None
    codes: Stored = ()

    @property
    def tokens(self) -> int:
        """How many they are."""
        return self._spared_tokens + (self.codes[0].shape[-2] if self.codes else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        tensors = self.codes if self.spared is None else (self.spared, *self.codes)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def _spared_tokens(self) -> int:
        return 0 if self.spared is None else self.spared.shape[-2]

    def cut(self, start: int, stop: int) -> Settled:
        """A copy of the tokens from `start` to before `stop`, which do not part tokens that share a scale."""
        first, last = (max(place - self._spared_tokens, 0) for place in (start, stop))
        encoded = self.tokens - self._spared_tokens
        groups = [encoded // code.shape[-2] for code in self.codes]  # tokens to a row of each tensor
        spared = None if self.spared is None else self.spared[..., start:stop, :].clone()
        return Settled(
            spared=spared,
            codes=tuple(
                code[..., first // size : last // size, :].clone()
                for code, size in zip(self.codes, groups, strict=True)
            ),
        )


def joined(parts: Sequence[Settled]) -> Settled:
    """Parts that follow each other as one; only the first can have spared tokens."""
    codes = [part.codes for part in parts if part.codes]
    return Settled(
        spared=parts[0].spared if parts else None,
        codes=tuple(torch.cat(same, dim=-2) for same in zip(*codes, strict=True)),
    )


@dataclass(kw_only=True)
class Store:
    """Grows by whole lumps of `lump` tokens; what is left over, and at least the newest `held_back`, stays in 16 bits.

    So do the first `spared` tokens of the text.

    Attention reads what `read` returns, decoded from what is stored: once per token, since decoding all of it again
    for every new token gives the same values. That working copy is not counted.

    `rotary`: keys are stored as they were before it, and read with it, by their positions in the text.

    `tape`: whatever is settled while it is there is noted on it too, and stays there when it is evicted here.
    """

    codec: Codec
    lump: int = 1
    held_back: int = 0
    spared: int = 0
    rotary: Rotary | None = None
    tape: list[Settled] | None = None
    _spared: Grown = field(default_factory=Grown)
    _encoded: Sequence[Grown] = ()
    _recent: torch.Tensor | None = None
    _encoded_tokens: int = 0
    _position: int = 0
    _decoded: Grown = field(default_factory=Grown)

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        recent = 0 if self._recent is None else self._recent.numel() * self._recent.element_size()
        return recent + self._spared.nbytes + sum(tensor.nbytes for tensor in self._encoded)

    @property
    def stored_type(self) -> str | None:
        """Element type of the codes, or None while all tokens are in 16 bits."""
        return str(self._encoded[0].view.dtype).removeprefix("torch.") if self._encoded else None

    def append(self, x: torch.Tensor) -> None:
        """Add tokens, [1, heads, tokens, channels]."""
        new = self._spare(SIXTEEN_BIT.encode(x)[0])
        waiting = new if self._recent is None else torch.cat((self._recent, new), dim=-2)
        ripe = max(waiting.shape[-2] - self.held_back, 0) // self.lump * self.lump
        if ripe:
            self._encode(waiting[..., :ripe, :])
        self._recent = waiting[..., ripe:, :].clone() if waiting.shape[-2] > ripe else None
        if self._recent is not None:
            self._decoded.write(SIXTEEN_BIT.decode((self._recent,)), at=self._settled_tokens)

    @property
    def _settled_tokens(self) -> int:
        """Tokens that are stored as they will stay."""
        return self._spared.count + self._encoded_tokens

    def _spare(self, new: torch.Tensor) -> torch.Tensor:
        """Store the first tokens of the text; return the others."""
        count = max(min(self.spared - self._position, new.shape[-2]), 0)
        if count:
            self.settle(Settled(spared=new[..., :count, :]))
        return new[..., count:, :]

    def _encode(self, x: torch.Tensor) -> None:
        plain = x if self.rotary is None else self.rotary.undo(x.float(), self._places(x.shape[-2], x.device))
        self.settle(Settled(codes=self.codec.encode(plain)))

    def _places(self, count: int, device: torch.device) -> torch.Tensor:
        """Where in the text the next `count` tokens are that will be settled."""
        return torch.arange(self._position, self._position + count, device=device)

    def settle(self, part: Settled) -> None:
        """Put tokens, stored as they will stay, after those that are settled; none waits."""
        if self.tape is not None:
            self.tape.append(part)
        if part.spared is not None:
            self._spared.write(part.spared, at=self._spared.count)
            decoded = SIXTEEN_BIT.decode((part.spared,))
            self._decoded.write(decoded, at=self._settled_tokens - decoded.shape[-2])
            self._position += decoded.shape[-2]
        if part.codes:
            self._settle_codes(part.codes)

    def _settle_codes(self, codes: Stored) -> None:
        self._encoded = self._encoded or [Grown() for _ in codes]
        for grown, code in zip(self._encoded, codes, strict=True):
            grown.write(code, at=grown.count)
        found = self.codec.decode(codes)
        count = found.shape[-2]
        if self.rotary is not None:
            found = self.rotary.apply(found, self._places(count, found.device))
        self._decoded.write(found, at=self._settled_tokens)
        self._encoded_tokens += count
        self._position += count

    def read(self) -> torch.Tensor:
        """All tokens in order, [1, heads, tokens, channels], in float32."""
        return self._decoded.view

    def keep(self, index: torch.Tensor) -> None:
        """Keep the tokens at `index`, [heads, kept], of each head. For codecs of single tokens, nothing held back."""
        assert self.lump == 1  # tokens of a group can't leave one by one
        assert self._recent is None
        before = self._spared.count
        kept = int((index[0] < before).sum())  # the same of all heads, see `Grown.keep`
        if before:
            self._spared.keep(index[:, :kept])
        for grown in self._encoded:
            grown.keep(index[:, kept:] - before)
        self._decoded.keep(index)
        self._encoded_tokens = index.shape[-1] - kept
