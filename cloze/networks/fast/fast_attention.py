"""Attention with its residual connection and norm as one autograd function.

It computes what `Layer` computes with `blocks/attention.py`; `residual.py` lists what makes it faster. It supports attention to
the same or another sequence, heads of any width, a bias of scores that may be learned, and queries at some tokens only. If
padding is skipped or only some tokens have queries, one `index_select` splits the heads and one merges them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.attention import Attention, AttentionCall, AttentionInputs
from cloze.networks.blocks.computed import untouched
from cloze.networks.blocks.dropout import Dropout, keep_, kept
from cloze.networks.blocks.norm import NormPlace
from cloze.networks.blocks.positions.buckets import Bias
from cloze.networks.blocks.positions.relation import NONE
from cloze.networks.blocks.projections import Across, StackedProjections
from cloze.networks.blocks.selected import Selected
from cloze.networks.fast.residual import Residual, bias_gradient, linear, offset_of, supported, weight_gradient


def fits(call: AttentionCall, norm: nn.Module, norm_place: NormPlace, x: Tensor) -> bool:
    """Whether the function supports the norm, the attention and all of its inputs."""
    attention, inputs = call.attention, call.inputs
    if type(attention) is not Attention or not untouched(attention):
        return False
    if any(part is not None for part in (attention.gate, attention.norm, attention.query_norm, attention.query_value_bias)):
        return False
    if type(inputs.relation) is not Bias and inputs.relation is not NONE or inputs.seen.may_see_nothing:
        return False
    if any(part is not None for part in (inputs.past, inputs.cache, inputs.projected, inputs.gates, inputs.record)):
        return False
    if inputs.selected is not None and (inputs.source is not None or len(inputs.selected.flat) == 0):
        return False
    maps = attention.projecting
    if type(maps) is StackedProjections:
        return inputs.source is None and supported(norm, norm_place, attention.projections, attention.out)
    return type(maps) is Across and supported(norm, norm_place, attention.query, attention.memory, attention.out)


def attention(x: Tensor, call: AttentionCall, norm: Any, dropout: Dropout, norm_place: NormPlace) -> Tensor:
    """The residual connection around attention: states (B, L, D) or rows (M, D)."""
    module, inputs = call.attention, call.inputs
    rows, source, weights = _operands(x, call, norm, norm_place)
    query_tokens = inputs.query_tokens
    # Selected tokens, (M, D), are laid out as B rows of `across` cells where heads are split.
    batch, queries = x.shape[:2] if query_tokens is None else (query_tokens.batch, query_tokens.across)
    key_tokens = inputs.rows if inputs.source is None else inputs.source_rows
    keys = key_tokens.across if key_tokens is not None else (x if inputs.source is None else inputs.source).shape[1]
    keep, scale = None, 1.0
    if call.dropout.active:
        columns = None if inputs.selected is None else inputs.selected.columns
        length = queries if inputs.selected is None else inputs.selected.length
        keep = call.dropout.keep_scores(batch, module.heads, length, keys, x.device, columns)
        scale = call.dropout.scale
    output = Attend.apply(
        rows, source, *weights, module.out.weight, module.out.bias, norm.weight, offset_of(norm),
        _added(inputs, x.dtype, keys),
        CallSettings(batch, queries, keys, module.heads, module.scale, keep, scale, query_tokens, key_tokens),
        Residual.of(norm, norm_place, dropout, x.shape if inputs.selected is None else rows.shape, inputs.positions),
    )
    return output.view(x.shape if inputs.selected is None else output.shape)


def _operands(
    x: Tensor, call: AttentionCall, norm: Any, norm_place: NormPlace
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """The rows that have queries; the rows that have keys, if these differ; weights and biases of queries and of keys and values.

    A `None` for the rows of keys, and for their weight, means that one product gives queries, keys and values.
    """
    module, inputs = call.attention, call.inputs
    rows = x.reshape(-1, x.shape[-1])
    if inputs.source is not None:
        source = inputs.source.to(x.dtype)
        query, memory = module.query, module.memory
        return rows, source.reshape(-1, source.shape[-1]), [query.weight, query.bias, memory.weight, memory.bias]
    stacked = module.projections
    if inputs.selected is None:
        return rows, None, [stacked.weight, stacked.bias, None, None]
    source = norm(rows).to(x.dtype) if norm_place.pre else rows
    (w, w_memory), (b, b_memory) = (
        (None, None) if tensor is None else (tensor[: module.inner_width], tensor[module.inner_width :])
        for tensor in (stacked.weight, stacked.bias)
    )
    return inputs.take(x), source, [w, b, w_memory, b_memory]


def _added(inputs: AttentionInputs, dtype: torch.dtype, keys: int) -> Tensor | None:
    """What is added to the scores: the bias of a relation, and minus infinity where the mask hides a key."""
    mask = inputs.seen.bias(dtype, keys, torch.device("cpu"))
    return inputs.relation.joined(mask, dtype) if isinstance(inputs.relation, Bias) else mask


class CallSettings(NamedTuple):
    """What one call computes with, besides tensors that may be trained: rows, queries and keys per row, heads; the scale of the
    scores; mask and scale of the dropout of probabilities; the tokens that have queries and those that have keys, None for all
    tokens of the rows."""

    batch: int
    queries: int
    keys: int
    heads: int
    score_scale: float
    keep: Tensor | None
    scale: float
    query_tokens: Selected | None = None
    key_tokens: Selected | None = None


class Attend(torch.autograd.Function):
    """x + drop(out(attention(x, source))) with a norm before or after: rows (B·Q, D), and (B·S, D) of a source,
    or of either those that are not padding.

    Without `source`, `w` stacks query, key and value; with it `w` makes queries and `w_memory` stacks key and value.
    `added`, (B or 1, H or 1, Q or 1, K), or (Q, K) of a plain causal mask, is added to the scores and may be learned. Without
    `offset` the norm is by root mean square.

    Shapes, with N rows of queries (B·Q, or those of `query_tokens`), K keys per row and heads of width W: `read` (N, D), queries
    (B·H, Q, W), keys and values (B·H, K, W), scores and probabilities (B·H, Q, K), `context` (N, H·W), output (N, D). Gradients
    have the shapes of what they belong to; that of the projections is (N, 3·H·W), or (N, H·W) and, of a source, (·, 2·H·W).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor | None, w: Tensor, b: Tensor | None, w_memory: Tensor | None,
        b_memory: Tensor | None, w_out: Tensor, b_out: Tensor | None, gain: Tensor, offset: Tensor | None,
        added: Tensor | None, settings: CallSettings, residual: Residual,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            read, mean, rstd = residual.norm_before(x, gain, offset)
            dtype, inside = x.dtype, w_out.shape[1]
            w_cast = _scaled_queries(w, inside, settings.score_scale).to(dtype)
            b_cast = None if b is None else _scaled_queries(b, inside, settings.score_scale).to(dtype)
            kinds = 3 if source is None else 1
            projected = _split_heads(linear(read, w_cast, b_cast), kinds, settings.queries, settings, settings.query_tokens)
            query, memory_cast = projected[0], None
            if source is None:
                key, value = projected[1], projected[2]
            else:
                assert w_memory is not None  # comes with a source
                memory_cast, b_cast = w_memory.to(dtype), None if b_memory is None else b_memory.to(dtype)
                key, value = _split_heads(linear(source, memory_cast, b_cast), 2, settings.keys, settings, settings.key_tokens)
            scores = torch.bmm(query, key.transpose(1, 2))
            probabilities, used = _soften(scores, added, settings)
            context = _merge_heads(torch.bmm(used, value)[None], settings, settings.query_tokens)
            out_cast, b_cast = residual.cast_output(w_out, b_out, settings.scale, dtype)
            y, norm_input, mean, rstd = residual.add(x, linear(context, out_cast, b_cast), gain, offset, mean, rstd)
        ctx.save_for_backward(
            norm_input, read, source, mean, rstd, query, key, value, probabilities, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        )
        ctx.settings, ctx.residual = settings, residual
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            norm_input, read, source, mean, rstd, query, key, value, probabilities, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        ) = ctx.saved_tensors
        settings: CallSettings = ctx.settings
        residual: Residual = ctx.residual
        gradient, d_branch, d_gain, d_offset = residual.add_backward(gradient, norm_input, mean, rstd, gain, offset)
        required = ctx.needs_input_grad
        d_w_out = weight_gradient(d_branch, context, w_out, residual.scale * settings.scale) if required[6] else None
        d_b_out = bias_gradient(d_branch, b_out, residual.scale) if required[7] else None
        read_wanted = required[0] or residual.pre and (required[8] or required[9])
        if not (read_wanted or any(required[1:6]) or required[10]):  # what is below is frozen
            return None, None, None, None, None, None, d_w_out, d_b_out, d_gain, d_offset, None, None, None
        d_rows = _context_gradient(d_branch, out_cast, settings)
        d_context = _split_heads(d_rows, 1, settings.queries, settings, settings.query_tokens)[0]
        d_scores, d_projected, d_memory = _attention_backward(
            d_context, query, key, value, probabilities, used, source is None, settings
        )
        inside = w_out.shape[1]
        d_w = _query_gradient(weight_gradient(d_projected, read, w, 1.0) if required[2] else None, inside, settings.score_scale)
        d_b = _query_gradient(bias_gradient(d_projected, b) if required[3] else None, inside, settings.score_scale)
        d_x = None
        if read_wanted and residual.pre:
            d_read = d_projected @ w_cast
            d_x, d_gain, d_offset = residual.norm_before_backward(d_read, gradient, norm_input, mean, rstd, gain, offset)
        elif read_wanted:
            d_x = gradient.addmm_(d_projected, w_cast)
        d_source = d_w_memory = d_b_memory = None
        if d_memory is not None:
            d_source = d_memory @ memory_cast if required[1] else None
            d_w_memory = weight_gradient(d_memory, source, w_memory, 1.0) if required[4] else None
            d_b_memory = bias_gradient(d_memory, b_memory) if required[5] else None
        d_added = _added_gradient(d_scores, added, settings) if required[10] else None
        return (
            d_x, d_source, d_w, d_b, d_w_memory, d_b_memory, d_w_out, d_b_out, d_gain, d_offset, d_added, None, None
        )


def _soften(scores: Tensor, added: Tensor | None, settings: CallSettings) -> tuple[Tensor, Tensor]:
    """The softmax of scores (B·H, Q, K) plus `added`, and the same after dropout, in the memory of the scores where it can be."""
    if added is not None:
        scores.view(settings.batch, settings.heads, settings.queries, -1).add_(added)
    probabilities = torch.softmax(scores, dim=-1, out=scores if settings.keep is None else None)
    if settings.keep is None:
        return probabilities, probabilities
    return probabilities, kept(probabilities, settings.keep.view_as(scores), into=scores)


def _split_heads(x: Tensor, kinds: int, length: int, settings: CallSettings, tokens: Selected | None) -> Tensor:
    """(B·L, kinds·H·W), or only the rows of `tokens`, to (kinds, B·H, L, W)."""
    if tokens is not None:
        return tokens.split_heads(x, kinds, settings.heads)
    split = x.view(settings.batch, length, kinds, settings.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    return split.view(kinds, settings.batch * settings.heads, length, -1)


def _merge_heads(x: Tensor, settings: CallSettings, tokens: Selected | None) -> Tensor:
    """(kinds, B·H, L, W) to (B·L, kinds·H·W), or only to the rows of `tokens`."""
    if tokens is not None:
        return tokens.merge_heads(x, settings.heads)
    kinds, _, length, width = x.shape
    split = x.view(kinds, settings.batch, settings.heads, length, width).permute(1, 3, 0, 2, 4)
    return split.reshape(settings.batch * length, -1)


def _scaled_queries(w: Tensor, inside: int, scale: float) -> Tensor:
    """Stacked weights or biases whose first `inside` rows, those of the queries, are multiplied by the scale of the scores."""
    return w if scale == 1.0 else torch.cat([w[:inside] * scale, w[inside:]])


def _query_gradient(gradient: Tensor | None, inside: int, scale: float) -> Tensor | None:
    """The backward pass of `_scaled_queries`, in place."""
    if gradient is not None and scale != 1.0:
        gradient[:inside].mul_(scale)
    return gradient


def _context_gradient(d_branch: Tensor, out_cast: Tensor, settings: CallSettings) -> Tensor:
    """The gradient of the heads' outputs, (B·Q, H·W). For selected tokens a row of zeros follows, which fills empty cells."""
    if settings.query_tokens is None:
        return d_branch @ out_cast
    gradient = d_branch.new_empty(len(d_branch) + 1, out_cast.shape[1])
    torch.mm(d_branch, out_cast, out=gradient[:-1])
    gradient[-1] = 0
    return gradient


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, probabilities: Tensor, used: Tensor, self_attention: bool,
    settings: CallSettings,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of the scores and of the projections, as rows (B·Q, ·): queries, keys and values in one tensor if they are of
    the same sequence (`self_attention`); else queries, then keys and values."""
    d_probabilities = torch.bmm(d_context, value.transpose(1, 2))
    if settings.keep is not None:
        keep_(d_probabilities, settings.keep.view_as(d_probabilities))
    d_scores = torch._softmax_backward_data(d_probabilities, probabilities, -1, probabilities.dtype, grad_input=d_probabilities)
    # (kinds, B·H, K, W): keys, then values, last
    stacked = torch.empty((3 if self_attention else 2, *key.shape), dtype=key.dtype)
    torch.bmm(used.transpose(1, 2), d_context, out=stacked[-1])
    torch.bmm(d_scores.transpose(1, 2), query, out=stacked[-2])
    if self_attention:
        torch.bmm(d_scores, key, out=stacked[0])
        return d_scores, _merge_heads(stacked, settings, settings.query_tokens), None
    d_query = _merge_heads(torch.bmm(d_scores, key)[None], settings, settings.query_tokens)
    return d_scores, d_query, _merge_heads(stacked, settings, settings.key_tokens)


def _added_gradient(d_scores: Tensor, added: Tensor, settings: CallSettings) -> Tensor:
    """The gradient of what was added to the scores, summed over the axes along which it was broadcast."""
    if added.shape[0] == 1 and settings.batch > 1:  # rows in one product: accumulated in float32
        rows = d_scores.view(settings.batch, -1)
        d_scores = rows.new_full((1, settings.batch), 1.0) @ rows  # (1, B) @ (B, H·Q·K)
    return d_scores.view(-1, settings.heads, settings.queries, settings.keys).sum_to_size(added.shape)
