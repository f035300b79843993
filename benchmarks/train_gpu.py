"""Tokens per second on one GPU: `cloze pretrain` against training loops around transformers' classes and a bare loop, in one run.

    python benchmarks/train_gpu.py --text ../shared/data/text_en_wiki/train.txt.xz [--only bert] [--rounds 3]

BERT-base at 512 tokens packed, ELECTRA-Small at 128, GPT-2 124M at 1,024; bf16. Ours is the product itself: text store, exercise,
packing, loop and log, with the rate read from the run's log after the first third. A peer gets its batches ready made on the
device (so it pays for no data), bf16 autocast, fused AdamW, SDPA attention and, in a second line, torch.compile. The bare loop is
a network of the same shape in a page of torch in the manner of nanoGPT (`BareTransformer`), compiled as one graph. All sides
count real tokens only, and take turns; medians over the rounds.

`--tiny` runs the same code in seconds, also with `--device cpu`; its figures mean nothing and are not kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from results import write_results
from torch import Tensor, nn

from cloze.corpus import Store
from cloze.recipe.load import load_recipe
from cloze.runs.corpora import open_corpus
from cloze.runs.run import pretrain

Case = dict[str, Any]
BASE = {"layers": 12, "width": 768, "heads": 12}
CASES: dict[str, Case] = {
    "bert": {"recipe": "bert", "batch": 64, "length": 512, "steps": 60, "shape": BASE,
             "set": ["schedule[0].set.length=512", "corpus.passages.short=0.0", "training.packing=true"]},
    "electra": {"recipe": "electra-small", "batch": 256, "length": 128, "steps": 90, "set": ["training.packing=true"]},
    "gpt2": {"recipe": "gpt2", "batch": 16, "length": 1024, "steps": 60, "shape": BASE, "set": []},
}
TINY = {"batch": 4, "steps": 6, "shape": {"layers": 2, "width": 64, "heads": 2}}
MASKED = 0.15  # of the tokens, for BERT's loss


class LoopSide:
    """A loop to compare with: a module that gives the loss of one of `batches`, on a device."""

    def __init__(self, model: Any, batches: list[dict[str, Any]], device: str, compiled: str | None, tokens: int) -> None:
        self.model, self.batches, self.device, self.tokens = model.to(device).train(), batches, device, tokens
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.run = self.model if compiled is None else torch.compile(self.model, backend=compiled)

    def step(self, number: int) -> None:
        """One update."""
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.run(**self.batches[number % len(self.batches)])
            loss = loss if torch.is_tensor(loss) else loss.loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def rate(self, steps: int) -> float:
        """Tokens per second over so many steps."""
        synchronize(self.device)
        started = time.perf_counter()
        for number in range(steps):
            self.step(number)
        synchronize(self.device)
        return steps * self.tokens / (time.perf_counter() - started)


def synchronize(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def ours(case: Case, store: Path, work: Path, device: str) -> tuple[float, float]:
    """Median real tokens/s of the last two thirds of a run, and the share of the measured matrix rate."""
    out, steps = work / "ours", case["steps"]
    shutil.rmtree(out, ignore_errors=True)
    settings = [*case["set"], f"training.batch={case['batch']}", "training.micro_batch=null", "training.held_out=0.0",
                "training.evaluate_every=0.5", "training.keep=1", f"training.log_every={max(1, steps // 12)}",
                "training.precision=bf16"]
    pretrain(case["recipe"], corpus=store, out=out, budget=f"{steps}steps", overrides=settings, device=device,
             size=case.get("size"), report=lambda text: None, fit=False)
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    late = [r for r in log if r["event"] == "train" and r["step"] > steps // 3]
    return (statistics.median(r["tokens_per_second"] for r in late), statistics.median(r["mfu"] or 0 for r in late))


def chunks(store: Store, length: int, rows: int, batches: int, device: str) -> list[Tensor]:
    """Running text cut into full rows, on the device: what the other sides read."""
    need = length * rows * batches
    ids = torch.from_numpy(store.tokens[:need].astype("int64"))
    ids = ids.repeat(-(-need // len(ids)))[:need]
    return list(ids.view(batches, rows, length).to(device))


def masked(ids: Tensor, mask: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels of masked language modelling (labels -100 where nothing is asked)."""
    chosen = torch.rand(ids.shape, device=ids.device) < MASKED
    return torch.where(chosen, mask, ids), torch.where(chosen, ids, -100)


def hf_side(name: str, case: Case, store: Store, device: str, compiled: str | None) -> LoopSide:
    """transformers' class with SDPA attention."""
    import transformers as hf

    v, mask = store.vocab_size, store.tokenizer().roles.get("[MASK]", 0)
    batches = chunks(store, case["length"], case["batch"], 4, device)
    sdpa = {"attn_implementation": "sdpa"}
    if name == "bert":
        shape = case["shape"]
        config = hf.BertConfig(
            vocab_size=v, hidden_size=shape["width"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
            intermediate_size=4 * shape["width"], **sdpa,
        )
        model: Any = hf.BertForMaskedLM._from_config(config)
        data = [dict(zip(("input_ids", "labels"), masked(ids, mask), strict=True)) for ids in batches]
    elif name == "gpt2":
        shape = case["shape"]
        config = hf.GPT2Config(
            vocab_size=v, n_embd=shape["width"], n_layer=shape["layers"], n_head=shape["heads"], n_positions=case["length"],
            **sdpa,
        )
        model = hf.GPT2LMHeadModel._from_config(config)
        data = [{"input_ids": ids, "labels": ids} for ids in batches]
    else:
        model = ElectraPair(hf, v, sdpa)
        data = [dict(zip(("ids", "labels", "whole"), (*masked(ids, mask), ids), strict=True)) for ids in batches]
    return LoopSide(model, data, device, compiled, case["length"] * case["batch"])


def bare_side(name: str, case: Case, store: Store, device: str, compiled: str | None) -> LoopSide:
    """The bare loop: as many targets in each row, so that no shape changes; GPT-2 predicts every next token."""
    rows, length = case["batch"], case["length"]
    data = []
    for ids in chunks(store, length, rows, 4, device):
        if name == "gpt2":
            data.append({"ids": ids, "positions": None, "targets": ids.roll(-1, 1).flatten()})
            continue
        columns = torch.rand(rows, length, device=device).argsort(1)[:, : round(MASKED * length)]
        positions = (columns + torch.arange(rows, device=device)[:, None] * length).flatten()
        targets = ids.flatten()[positions]
        mask = store.tokenizer().roles["[MASK]"]
        hidden = ids.flatten().index_fill(0, positions, mask).view_as(ids)
        data.append({"ids": hidden, "positions": positions, "targets": targets})
    model = BareTransformer(store.vocab_size, length, causal=name == "gpt2", **case["shape"])
    return LoopSide(model, data, device, compiled, rows * length)


class BareTransformer(nn.Module):
    """A pre-norm Transformer with tied embeddings, no dropout and no padding: the least that a step of this shape can be."""

    def __init__(self, v: int, length: int, *, layers: int, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.tokens, self.places = nn.Embedding(v, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor, positions: Tensor | None, targets: Tensor) -> Tensor:
        """The mean loss at flat positions (M,), or at all of them."""
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            parts: Any = layer
            q, k, v = parts["qkv"](parts["norm1"](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            context = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + parts["out"](context.transpose(1, 2).flatten(2))
            x = x + parts["down"](F.gelu(parts["up"](parts["norm2"](x))))
        rows = self.norm(x).flatten(0, 1)
        return F.cross_entropy(F.linear(rows if positions is None else rows[positions], self.tokens.weight), targets)


class ElectraPair(nn.Module):
    """ELECTRA's step around transformers' generator and discriminator, embeddings shared."""

    def __init__(self, hf: Any, v: int, sdpa: dict[str, str]) -> None:
        super().__init__()
        shape = {"vocab_size": v, "embedding_size": 128, "num_hidden_layers": 12, **sdpa}
        small = hf.ElectraConfig(hidden_size=64, num_attention_heads=1, intermediate_size=256, **shape)
        large = hf.ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **shape)
        self.generator = hf.ElectraForMaskedLM._from_config(small)
        self.discriminator = hf.ElectraForPreTraining._from_config(large)
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, ids: Tensor, labels: Tensor, whole: Tensor) -> Tensor:
        """The generator's loss plus fifty times the discriminator's."""
        made = self.generator(input_ids=ids, labels=labels)
        with torch.no_grad():
            noise = -torch.log(-torch.log(torch.rand_like(made.logits, dtype=torch.float32) + 1e-20) + 1e-20)
            drawn = (made.logits.float() + noise).argmax(-1)
            shown = torch.where(labels == -100, whole, drawn)
        judged = self.discriminator(input_ids=shown, labels=(shown != whole).long())
        return made.loss + 50.0 * judged.loss


def measure(
    name: str, text: Path, work: Path, *, device: str = "cuda", tiny: bool = False, batch: int | None = None, rounds: int = 3,
    steps: int = 20, say: Callable[[dict[str, Any]], None] = print,
) -> list[dict[str, Any]]:
    """The rates of all sides of a case, one record each; a side that fails has its error in place of a rate."""
    case = {**CASES[name], **({**TINY, "size": "tiny"} if tiny else {})}
    if tiny:
        case |= {"length": 64, "set": [value.replace("512", "64") for value in case["set"]] + ["text.tokenizer.size=400"]}
    case["batch"] = batch or case["batch"]
    folder = work / case["recipe"]
    store, _ = open_corpus(load_recipe(case["recipe"], size=case.get("size"), overrides=case["set"]), [str(text)], folder,
                           report=lambda line: None)
    backend = "eager" if tiny else "inductor"
    builders: dict[str, Callable[[], LoopSide]] = {
        "transformers": lambda: hf_side(name, case, store, device, None),
        "transformers, compiled": lambda: hf_side(name, case, store, device, backend),
    }
    if "shape" in case:
        builders["bare loop, compiled"] = lambda: bare_side(name, case, store, device, backend)
    rates: dict[str, list[float]] = {"cloze": [], **{key: [] for key in builders}}
    errors: dict[str, str] = {}
    sides: dict[str, LoopSide] = {}
    shares: list[float] = []
    for turn in range(rounds):
        try:
            rate, share = ours(case, folder / "store", folder, device)
            rates["cloze"].append(rate)
            shares.append(share)
        except Exception as error:  # the other sides are still worth measuring
            errors["cloze"] = f"{type(error).__name__}: {error}"
        for key, build in builders.items():
            try:
                if turn == 0:
                    sides[key] = build()
                    for number in range(2 if tiny else 8):
                        sides[key].step(number)
                if key in sides:
                    rates[key].append(sides[key].rate(2 if tiny else steps))
            except Exception as error:
                errors[key] = f"{type(error).__name__}: {error}"
                sides.pop(key, None)
    best = max((statistics.median(values) for key, values in rates.items() if values and key != "cloze"), default=None)
    records = []
    for key, values in rates.items():
        record: dict[str, Any] = {"case": f"{name} {case['length']}", "batch": case["batch"], "side": key}
        if values:
            middle = statistics.median(values)
            record |= {"tokens_per_second": round(middle), "against_best_peer": round(middle / best, 2) if best else "",
                       "spread": f"{min(values):.0f}-{max(values):.0f}",
                       "share_of_matrix_rate": round(statistics.median(shares), 3) if key == "cloze" else ""}
        else:
            record |= {"tokens_per_second": "failed", "error": errors.get(key, "").splitlines()[0][:200]}
        records.append(record)
        say(record)
    return records


def main() -> None:
    """Measure every case, side by side."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--text", type=Path, required=True)
    options.add_argument("--work", type=Path, default=Path("runs/train_gpu"))
    options.add_argument("--only", default="bert,electra,gpt2")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--batch", type=int, help="rows, for a GPU with less memory")
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--tiny", action="store_true")
    chosen = options.parse_args()
    records = []
    for name in chosen.only.split(","):
        records += measure(
            name, chosen.text, chosen.work, device=chosen.device, tiny=chosen.tiny, batch=chosen.batch, rounds=chosen.rounds,
            say=lambda record: print(record, flush=True),
        )
        if chosen.device == "cuda":
            torch.cuda.empty_cache()
    if not chosen.tiny:
        write_results("train_gpu", records)


if __name__ == "__main__":
    main()
