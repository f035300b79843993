"""Tokens per second on one GPU: `cloze pretrain` against training loops around transformers' classes, in one run.

    python benchmarks/train_gpu.py --text ../shared/data/text_en_wiki/train.txt.xz [--only bert] [--rounds 3]

BERT-base at 512 tokens packed, ELECTRA-Small at 128, GPT-2 124M at 1,024; bf16. Ours is the product itself: text store, exercise,
packing, loop and log, with the rate read from the run's log after the first third. A peer gets its batches ready made on the
device (so it pays for no data), bf16 autocast, fused AdamW, SDPA attention and, in a second line, torch.compile. Both sides
count real tokens only, and take turns; medians over the rounds.
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
from results import write_results

from cloze.corpus import Store
from cloze.recipe.load import load_recipe
from cloze.runs.corpora import open_corpus
from cloze.runs.run import pretrain

CASES: dict[str, dict[str, Any]] = {
    "bert": {"recipe": "bert", "batch": 64, "length": 512, "steps": 60,
             "set": ["schedule[0].set.length=512", "corpus.passages.short=0.0", "training.packing=true"]},
    "electra": {"recipe": "electra-small", "batch": 256, "length": 128, "steps": 90, "set": ["training.packing=true"]},
    "gpt2": {"recipe": "gpt2", "batch": 16, "length": 1024, "steps": 60, "set": []},
}


def ours(case: dict[str, Any], store: Path, work: Path, steps: int) -> tuple[float, float]:
    """Median real tokens/s of the last two thirds of a run, and the share of the measured matrix rate."""
    out = work / "ours"
    shutil.rmtree(out, ignore_errors=True)
    settings = [*case["set"], f"training.batch={case['batch']}", "training.micro_batch=null", "training.held_out=0.0",
                "training.evaluate_every=0.5", "training.keep=1", "training.log_every=5", "training.precision=bf16"]
    pretrain(case["recipe"], corpus=store, out=out, budget=f"{steps}steps", overrides=settings, device="cuda",
             report=lambda text: None, fit=False)
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    late = [r for r in log if r["event"] == "train" and r["step"] > steps // 3]
    return (statistics.median(r["tokens_per_second"] for r in late), statistics.median(r["mfu"] or 0 for r in late))


def chunks(store: Store, length: int, rows: int, batches: int) -> list[torch.Tensor]:
    """Running text cut into full rows, on the device: what the peers read."""
    need = length * rows * batches
    ids = torch.from_numpy(store.tokens[:need].astype("int64"))
    ids = ids.repeat(-(-need // len(ids)))[:need]
    return list(ids.view(batches, rows, length).cuda())


def masked(ids: torch.Tensor, mask: int, share: float = 0.15) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of masked language modelling (labels -100 where nothing is asked)."""
    chosen = torch.rand(ids.shape, device=ids.device) < share
    return torch.where(chosen, mask, ids), torch.where(chosen, ids, -100)


def peer(name: str, case: dict[str, Any], store: Store, compiled: bool) -> Callable[[int], float]:
    """A function (steps) → real tokens/s of a loop around transformers' model."""
    import transformers as hf

    v, mask = store.vocab_size, store.tokenizer().roles.get("[MASK]", 0)
    batches = chunks(store, case["length"], case["batch"], 4)
    sdpa = {"attn_implementation": "sdpa"}
    if name == "bert":
        model: Any = hf.BertForMaskedLM._from_config(hf.BertConfig(vocab_size=v, **sdpa))
        data = [dict(zip(("input_ids", "labels"), masked(ids, mask), strict=True)) for ids in batches]
    elif name == "gpt2":
        model = hf.GPT2LMHeadModel._from_config(hf.GPT2Config(vocab_size=v, **sdpa))
        data = [{"input_ids": ids, "labels": ids} for ids in batches]
    else:
        model = ElectraPair(hf, v, sdpa)
        data = [dict(zip(("ids", "labels", "whole"), (*masked(ids, mask), ids), strict=True)) for ids in batches]
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if compiled else model

    def step(i: int) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(**data[i % len(data)])
            loss = loss if torch.is_tensor(loss) else loss.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for i in range(8):
        step(i)

    def rate(steps: int) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for i in range(steps):
            step(i)
        torch.cuda.synchronize()
        return steps * case["length"] * case["batch"] / (time.perf_counter() - started)

    return rate


class ElectraPair(torch.nn.Module):
    """ELECTRA's step around transformers' generator and discriminator, embeddings shared."""

    def __init__(self, hf: Any, v: int, sdpa: dict[str, str]) -> None:
        super().__init__()
        shape = {"vocab_size": v, "embedding_size": 128, "num_hidden_layers": 12, **sdpa}
        small = hf.ElectraConfig(hidden_size=64, num_attention_heads=1, intermediate_size=256, **shape)
        large = hf.ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **shape)
        self.generator = hf.ElectraForMaskedLM._from_config(small)
        self.discriminator = hf.ElectraForPreTraining._from_config(large)
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, ids: torch.Tensor, labels: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        """The generator's loss plus fifty times the discriminator's."""
        made = self.generator(input_ids=ids, labels=labels)
        with torch.no_grad():
            noise = -torch.log(-torch.log(torch.rand_like(made.logits, dtype=torch.float32) + 1e-20) + 1e-20)
            drawn = (made.logits.float() + noise).argmax(-1)
            shown = torch.where(labels == -100, whole, drawn)
        judged = self.discriminator(input_ids=shown, labels=(shown != whole).long())
        return made.loss + 50.0 * judged.loss


def main() -> None:
    """Measure every case, side by side."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--text", type=Path, required=True)
    options.add_argument("--work", type=Path, default=Path("runs/train_gpu"))
    options.add_argument("--only", default="bert,electra,gpt2")
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    records = []
    for name in chosen.only.split(","):
        case = CASES[name]
        folder = chosen.work / case["recipe"]
        store, _ = open_corpus(load_recipe(case["recipe"], overrides=case["set"]), [str(chosen.text)], folder, report=print)
        peers = {"transformers": peer(name, case, store, False), "transformers, compiled": peer(name, case, store, True)}
        rates: dict[str, list[float]] = {"cloze": [], **{key: [] for key in peers}}
        shares = []
        for _ in range(chosen.rounds):
            found, share = ours(case, folder / "store", folder, case["steps"])
            rates["cloze"].append(found)
            shares.append(share)
            for key, rate in peers.items():
                rates[key].append(rate(20))
        best = max(statistics.median(rates[key]) for key in peers)
        for key, values in rates.items():
            middle = statistics.median(values)
            record = {"case": f"{name} {case['length']}", "side": key, "tokens_per_second": round(middle),
                      "against_best_peer": round(middle / best, 2), "spread": f"{min(values):.0f}-{max(values):.0f}",
                      "share_of_matrix_rate": round(statistics.median(shares), 3) if key == "cloze" else ""}
            records.append(record)
            print(record, flush=True)
        del peers
        torch.cuda.empty_cache()
    write_results("train_gpu", records)


if __name__ == "__main__":
    main()
