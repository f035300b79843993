"""`change: [prompt: {tokens: 20}]`: trained vectors in front of every text of a frozen network (Lester et al., 2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Count
from cloze.changes.change import Change, Tensors, Transition
from cloze.changes.maps import put_in_front
from cloze.errors import CheckpointError, RecipeError
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.blocks.visibility import AnyOrder, Restricted
from cloze.networks.cost import Operations
from cloze.networks.encoder_decoder import rolled
from cloze.networks.network import TokenSequence
from cloze.registry import register

#: The fields of a network to which a prompt can be added; `inputs/` and `decoder.` stand for all that begin so.
FIELDS = frozenset({"tokens", "order", "block", "segments", "position_ids", "summaries", "vectors", "crossing", "visible"})
_COMMON = 5000  # rows that prompts start from (Lester et al., 2021, §3.2)


class PromptVectors(nn.Module, NetworkHook):
    """Vectors `rows` (K, E) in front of the vectors of a text's tokens; only the states of the text are given.

    The text's positions begin after the prompt. The prompt has the segment and the further ids of the first token, and every
    token sees it.
    """

    def __init__(self, tokens: int, like: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.empty(tokens, like.shape[1], dtype=like.dtype, device=like.device).uniform_(-0.5, 0.5))

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The states of the text (B, L) in a row of K + L tokens. A generator that continues has the prompt in its cache."""
        cache, count = inputs.get("cache"), len(self.rows)
        if network.writes is None and cache is not None and cache.length:
            ids = inputs.get("position_ids")
            return forward(want=want, **(inputs if ids is None else {**inputs, "position_ids": ids + count}))
        states = forward(want=want, **self._longer(network, want, inputs))
        return {name: self._of_text(state, network.gives, name) for name, state in states.items()}

    def begin_operations(self, counted: Operations) -> None:
        """The fields with longer rows."""
        counted.pass_through(self)
        fields = counted.fields
        longer = {name: _first_repeated(fields[name], len(self.rows)) for name in ("tokens", "block") if name in fields}
        counted.fields = {**fields, **longer}

    def _longer(self, network: Any, want: frozenset[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs with the prompt in front."""
        tokens, block, count = arguments["tokens"], arguments.get("block"), len(self.rows)
        if block is not None and bool((block > 1).any()):
            raise RecipeError("prompt: a row holds several examples, and a prompt stands in front of one. Use labelled text.")
        inputs = dict(arguments)
        vectors = network.embeddings.tokens(tokens) if arguments.get("vectors") is None else arguments["vectors"]
        inputs["vectors"] = torch.cat([self.rows.to(vectors.dtype).expand(len(tokens), -1, -1), vectors], dim=1)
        for name in ("tokens", "segments", "block", "crossing"):
            if arguments.get(name) is not None:
                inputs[name] = _first_repeated(arguments[name], count)
        if arguments.get("inputs") is not None:
            inputs["inputs"] = {name: _first_repeated(ids, count) for name, ids in arguments["inputs"].items()}
        if "order" in arguments:
            inputs["order"] = _order_behind(arguments["order"], count)
        if arguments.get("position_ids") is not None:
            ids = arguments["position_ids"]
            front = torch.arange(count, device=ids.device).expand(len(tokens), -1)
            inputs["position_ids"] = torch.cat([front, ids.expand(len(tokens), -1) + count], dim=1)
        length = tokens.shape[1]
        for name in ("summaries", "positions"):
            if arguments.get(name) is not None:
                inputs[name] = arguments[name] + (arguments[name] // length + 1) * count
        if network.writes is None and "summary" in want and arguments.get("summaries") is None:
            inputs["summaries"] = torch.arange(len(tokens), device=tokens.device) * (length + count) + count
        if network.writes is not None and arguments.get("decoder") is None and "summary" in want:
            inputs["decoder"] = TokenSequence(rolled(tokens, block), block=block)
        return inputs

    def _of_text(self, state: Any, kinds: Mapping[str, Any], name: str) -> Any:
        """A state without the tokens of the prompt."""
        if name.startswith(("decoder_", "crossing_")) or name not in kinds:
            return state
        for axis, letter in enumerate(kinds[name].shape.split()):
            if letter == "L":
                state = state.narrow(axis, len(self.rows), state.shape[axis] - len(self.rows))
        return state


def _order_behind(order: AnyOrder, count: int) -> AnyOrder:
    """The order of rows with `count` tokens more in front, which every token sees."""
    if isinstance(order, Restricted):
        behind = _order_behind(order.order, count)
        assert not isinstance(behind, Restricted)  # an order within a matrix has none itself
        return Restricted(behind, F.pad(order.visible, (count, 0, count, 0), value=True))
    if isinstance(order, str):
        return order
    return torch.cat([order.amin(1, keepdim=True).expand(-1, count), order], dim=1)


def _first_repeated(ids: Tensor, count: int) -> Tensor:
    """(B, L) to (B, count + L): the first column, repeated in front."""
    return torch.cat([ids[:, :1].expand(-1, count), ids], dim=1)


@register("change", "prompt")
@dataclass(frozen=True)
class SoftPrompt(Change):
    """Prompt tuning (Lester et al., 2021, §2): `tokens` trained vectors in front of every text; the network is frozen.

    The vectors take the place of embeddings, before positions and norms, in Transformers with a table of tokens and in encoders
    of encoder-decoders, as in peft. They shorten the texts that the network can read by their number. `start`: at rows of the
    `vocabulary` (of the 5,000 first ids, special tokens left out), or at `random` between -0.5 and 0.5 (§3.2).

    Trained are the vectors and the heads, at a hundred times the rate of full fine-tuning; the authors' constant rate, with
    Adafactor, is 0.3. They cannot be merged into weights: cloze alone opens the folder.
    """

    tokens: Count = 20
    start: Literal["vocabulary", "random"] = "vocabulary"

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 100.0

    def apply(self, network: Any) -> None:
        """Freeze the network and put the prompt in front."""
        kind = type(network).__name__
        unknown = [name for name in network.takes - FIELDS if not name.startswith(("inputs/", "decoder."))]
        if "vectors" not in network.takes or unknown or network.embeddings.tokens is None:
            raise CheckpointError(
                f"prompt: {kind} does not read vectors in place of a table's rows.\n"
                "  Use a Transformer or an encoder-decoder with a table of tokens, or another change, such as lora."
            )
        put_in_front(network, PromptVectors(self.tokens, network.embeddings.tokens.weight), self.tokens, of="prompt")

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The same tensors, and the rows of the vocabulary that the prompt starts from."""
        if self.start == "random":
            return state
        table, special = state["embeddings.tokens.weight"], set(transition.old_tokenizer.roles.values())
        ordinary = torch.tensor([number for number in range(min(len(table), _COMMON + len(special))) if number not in special])
        chosen = ordinary[torch.randperm(len(ordinary), generator=torch.Generator().manual_seed(0))]
        rows = table[chosen.repeat(-(-self.tokens // len(chosen)))[: self.tokens]].clone()
        prompts = [name for name, module in transition.new_network.named_modules() if isinstance(module, PromptVectors)]
        return {**state, f"{prompts[-1]}.rows": rows}

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("prompts are vectors in front of the text, which cannot be merged into weights.")
