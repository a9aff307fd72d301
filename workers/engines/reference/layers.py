"""Cache layers of our own inside transformers' `Cache`, and the attention that reads them.

`update` stores what the model has computed. Attention then reads the decoded cache, for the prompt's own tokens too, as
paged attention reads it, as far as the layer's policy lets each query see; and the policy learns what it wants to know.
Sequences are computed together where the model's matrices are concerned; each has cache and attention for itself, so
none is padded and none sees another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import AttentionMaskInterface

from workers.engines.reference.policies import Policy, Step
from workers.engines.reference.store import Settled, Store, joined

ATTENTION: Final = "gatekeeper_reference"
"""The name under which transformers knows our attention function."""

UNKNOWN_ARGUMENTS: Final = ("softcap", "s_aux", "sliding_window", "position_bias")
"""What some models' attention needs and this one does not compute."""


LayerBlock: TypeAlias = tuple[Settled, Settled]
"""Keys and values of the same tokens in one layer."""


class SequenceLayer:
    """Keys and values of one layer and one sequence, under a policy. `positions`: [KV heads, held tokens]."""

    def __init__(self, *, keys: Store, values: Store, policy: Policy) -> None:
        self.keys, self.values, self.policy = keys, values, policy
        self.positions = torch.empty(0, 0, dtype=torch.long)
        self.seen = 0

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache, the same number for every head."""
        return int(self.positions.shape[-1])

    def restore(self, blocks: Sequence[LayerBlock]) -> None:
        """Begin with the keys and values of blocks that another sequence has computed, in their order.

        What the newest token does not see has left already, as it had there: only a window sees less than all.
        """
        keys, values = zip(*blocks, strict=True)
        self.keys.settle(joined(keys))
        self.values.settle(joined(values))
        _, heads, self.seen, _ = self.keys.read().shape
        places = torch.arange(self.seen, device=self.keys.read().device)
        self.positions = places.expand(heads, -1)
        visible = self.policy.sees(places[-1:], self.positions)
        if visible is not None:
            self._keep(visible[0, 0].nonzero().squeeze(-1).expand(heads, -1))

    def record(self) -> None:
        """Note from here on what is stored, before anything of it is evicted."""
        self.keys.tape, self.values.tape = [], []

    def recorded(self) -> LayerBlock:
        """What has been stored since `record`, and no more of it is noted."""
        assert self.keys.tape is not None
        assert self.values.tape is not None
        found = joined(self.keys.tape), joined(self.values.tape)
        self.keys.tape = self.values.tape = None
        return found

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store [1, KV heads, new tokens, channels], keys already rotated."""
        self.keys.append(keys)
        self.values.append(values)
        heads, count = keys.shape[1], keys.shape[2]
        new = torch.arange(self.seen, self.seen + count, device=keys.device).expand(heads, -1)
        self.positions = torch.cat((self.positions, new), dim=-1) if self.seen else new
        self.seen += count

    def attend(self, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attention of [1, query heads, new tokens, channels] over what is held; then the policy may evict."""
        key, value = self.keys.read().to(query.dtype), self.values.read().to(query.dtype)
        visible, weights = self._visible(query.shape[-2]), None
        if self.policy.needs_weights:
            output, weights = _eager(query, key, value, scaling, visible, self.policy.keys_per_query)
        else:
            output = _fused(query, key, value, scaling, visible)
        step = Step(
            queries=query[0], keys=key[0], values=value[0], positions=self.positions, weights=weights,
            seen=self.seen, scaling=scaling,
        )  # fmt: skip
        self._keep(self.policy.after_step(step))
        return output

    def end_prompt(self) -> None:
        """The whole prompt has been computed."""
        self._keep(self.policy.after_prompt())

    def _visible(self, new_tokens: int) -> torch.Tensor | None:
        """[KV heads, new tokens, held tokens], or None where every query sees all up to itself."""
        queries = torch.arange(self.seen - new_tokens, self.seen, device=self.positions.device)
        chosen = self.policy.sees(queries, self.positions)
        if chosen is None and new_tokens in (1, self.held_tokens):
            return None
        causal = self.positions[:, None, :] <= queries[None, :, None]
        return causal if chosen is None else causal & chosen

    def _keep(self, index: torch.Tensor | None) -> None:
        if index is not None:
            self.keys.keep(index)
            self.values.keep(index)
            self.positions = self.positions.gather(-1, index)


class BatchLayer(DynamicLayer):
    """One layer of all sequences of a forward pass, as transformers wants it. Rows beyond `sequences` are padding."""

    def __init__(self, sequences: Sequence[SequenceLayer]) -> None:
        super().__init__()
        self.sequences = sequences

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store; what is returned is not read, since attention asks the layers."""
        for row, layer in enumerate(self.sequences):
            layer.append(key_states[row : row + 1], value_states[row : row + 1])
        return key_states, value_states

    def attend(self, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attention of every sequence by itself."""
        output = torch.zeros_like(query)
        for row, layer in enumerate(self.sequences):
            output[row] = layer.attend(query[row : row + 1], scaling)[0]
        return output

    def get_seq_length(self) -> int:
        """Unused: positions are given."""
        return self.sequences[0].seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Unused: attention makes its own mask."""
        return query_length, 0


def _fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, visible: torch.Tensor | None
) -> torch.Tensor:
    """torch's own attention. Without a mask several queries are the whole sequence, so causal."""
    groups = query.shape[1] // key.shape[1]
    if (
        visible is None and query.shape[-2] == 1
    ):  # a query head of a group is to attention what a further query is
        shape = query.shape
        output = torch.nn.functional.scaled_dot_product_attention(
            query.reshape(1, key.shape[1], groups, -1), key, value, scale=scaling
        )
        return output.reshape(shape)
    mask = None if visible is None else visible.repeat_interleave(groups, dim=0)[None]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1), attn_mask=mask,
        scale=scaling, is_causal=mask is None,
    )  # fmt: skip


def _eager(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    visible: torch.Tensor | None,
    keys_per_query: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula written out, with the weights summed over the query heads of each KV head."""
    heads, new, held = key.shape[1], query.shape[-2], key.shape[-2]
    scores = query[0].unflatten(0, (heads, -1)) @ key[0].unsqueeze(1).transpose(-1, -2) * scaling
    if visible is None and new > 1:
        visible = torch.ones(new, held, dtype=torch.bool, device=key.device).tril()[None]
    if visible is not None:
        scores = scores.masked_fill(~visible.unsqueeze(1), -math.inf)
    if keys_per_query is not None and keys_per_query < held:
        best = scores.topk(keys_per_query, dim=-1).indices
        scores = torch.full_like(scores, -math.inf).scatter(-1, best, scores.gather(-1, best))
    weights = scores.softmax(-1)
    output = weights @ value[0].unsqueeze(1)
    return output.flatten(0, 1)[None], weights.sum(1)


def reference_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    _key: torch.Tensor,
    _value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    kv_layers: Sequence[BatchLayer],
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer. Raises NotImplementedError for attention that is more than softmax."""
    special = [name for name in UNKNOWN_ARGUMENTS if others.get(name) is not None]
    if special or attention_mask is not None:
        raise NotImplementedError(f"the model's attention needs {', '.join(special) or 'a mask of its own'}")
    output = kv_layers[module.layer_idx].attend(query, scaling)
    return output.transpose(1, 2).contiguous(), None


def no_mask(*_args: Any, **_kwargs: Any) -> None:
    """The layers make their own masks: only they know which tokens they hold."""


AttentionInterface.register(ATTENTION, reference_attention)
AttentionMaskInterface.register(ATTENTION, no_mask)
