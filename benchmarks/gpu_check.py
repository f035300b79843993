"""Everything about a GPU that takes one, in at most nine minutes with the installation: `make gpu-check`.

    make gpu-check                                        # on a machine with an NVIDIA driver and Python 3.11 or later
    python benchmarks/gpu_check.py --device cpu --tiny    # the same code on a CPU, in a minute; its figures mean nothing

Please send us the table that it ends with, also if some rows failed. Each part is a process of its own with a limit of time: what
fails or takes too long is a row of the table. The text is drawn from a seed, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TOTAL = 9 * 60
ROW = "row: "


@dataclass(frozen=True)
class CheckOptions:
    """The device of all parts, whether everything is tiny, and the folder for their files."""

    device: str
    tiny: bool
    work: Path

    @property
    def text(self) -> Path:
        """The text that all parts read."""
        return self.work / "text.txt"

    @property
    def bert(self) -> dict[str, Any]:
        """The arguments of the runs of the short parts."""
        sizes = ["training.batch=8", "length=32"] if self.tiny else ["training.batch=32", "length=128"]
        return {
            "recipe": "bert", "size": "tiny" if self.tiny else "mini", "corpus": str(self.text), "device": self.device,
            "fit": False, "report": lambda line: None, "overrides": [*sizes, "text.tokenizer.size=400"] if self.tiny else sizes,
        }


def row(what: str, result: str) -> None:
    """Print a row of the table, which the parent process collects."""
    print(ROW + json.dumps([what, result]), flush=True)


def write_text(path: Path, words: int, vocabulary: int) -> None:
    """Sentences of drawn words, of which a few are frequent, as in a language (Zipf's law)."""
    draw = random.Random(0)
    syllables = [a + b for a in "bcdfghjklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]
    lexicon = sorted({"".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(2 * vocabulary)})
    draw.shuffle(lexicon)
    lexicon = lexicon[:vocabulary]
    text = draw.choices(lexicon, weights=[1 / (rank + 3) for rank in range(len(lexicon))], k=words)
    with path.open("w", encoding="utf-8") as file:
        while text:
            document, text = text[:400], text[400:] if len(text) > 400 else []
            sentences = [" ".join(document[start : start + 16]).capitalize() + "." for start in range(0, len(document), 16)]
            file.write("\n".join(sentences) + "\n\n")


# ---- the parts -------------------------------------------------------------------------------------------------------


def speed(options: CheckOptions) -> None:
    """BERT-base at 512 packed in bf16 against transformers with SDPA and a bare loop."""
    import torch
    from train_gpu import measure

    batch = None
    if options.device == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        batch = next(rows for least, rows in ((70, 64), (36, 32), (20, 16), (10, 8), (0, 4)) if memory >= least)

    def say(record: Mapping[str, Any]) -> None:
        if "error" in record:
            row(f"{record['case']}, {record['side']}", f"failed: {record['error']}")
            return
        share = f", {record['share_of_matrix_rate']:.0%} of the matrix rate" if record["share_of_matrix_rate"] != "" else ""
        row(
            f"{record['case']}, batch {record['batch']}, {record['side']}",
            f"{record['tokens_per_second']:,} tokens/s, {record['against_best_peer']}x the best other side "
            f"({record['spread']}){share}",
        )

    measure("bert", options.text, options.work, device=options.device, tiny=options.tiny, batch=batch, rounds=2, say=say)


def tests(options: CheckOptions) -> None:
    """The tests marked `gpu`; without a GPU they are collected and skipped."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/gpu", "-q", "-p", "no:cacheprovider", "--tb=line"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()] or done.stderr.splitlines() or ["no output"]
    for line in [line for line in lines if line.startswith(("FAILED", "ERROR"))][:8]:
        row("tests marked gpu", line[:300])
    row("tests marked gpu", lines[-1].strip("= "))
    if done.returncode:
        raise SystemExit(f"pytest: exit code {done.returncode}")


def sharding(options: CheckOptions) -> None:
    """FSDP on one rank: the loss of a few steps against those without it."""
    import torch
    import torch.distributed as dist

    from cloze.runs import preparing
    from cloze.training import loop
    from cloze.training.distribution import Ranks, _shard, choose_device

    class OneRank(Ranks):
        """One process that divides its parameters among itself."""

        @property
        def sharded(self) -> bool:
            return True

        def wrap(self, step: Any, *, half: bool = False) -> Any:
            _shard(step, self.device, None, half=half)
            return step

        def syncing(self, module: Any, last: bool) -> contextlib.AbstractContextManager[None]:
            module.set_requires_gradient_sync(last)
            return contextlib.nullcontext()

    @contextlib.contextmanager
    def join(device: str, *others: Any) -> Iterator[Ranks]:
        yield OneRank(0, 1, choose_device(device), "fsdp")

    plain = _losses(options, options.work / "unsharded", "6steps")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    if options.device == "cuda":
        torch.cuda.set_device(0)
    backend = "cpu:gloo,cuda:nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=address, rank=0, world_size=1)
    loop.join = join  # type: ignore[assignment]
    preparing.sampler = lambda *_, **__: None  # several processes show no samples either: those call the networks alone
    sharded = _losses(options, options.work / "sharded", "6steps")
    dist.destroy_process_group()
    _compare("FSDP on one rank, 6 steps", sharded, plain)


def resuming(options: CheckOptions) -> None:
    """A run that pauses and goes on against one that does not."""
    whole = _losses(options, options.work / "whole", "10steps")
    _losses(options, options.work / "paused", "10steps", until=0.5)
    _compare("a run that pauses and resumes", _losses(options, options.work / "paused", "10steps"), whole)


def using(options: CheckOptions) -> None:
    """The folder in transformers, and cloze's inference, on the device against the CPU."""
    import numpy as np
    import torch
    import transformers

    import cloze

    folder = options.work / "used"
    _losses(options, folder, "6steps")
    texts = [line for line in options.text.read_text(encoding="utf-8").splitlines() if line][:8]
    there, here = cloze.load(folder, device=options.device), cloze.load(folder, device="cpu")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForMaskedLM.from_pretrained(folder).to(options.device).eval()
    holes = [f"{tokenizer.mask_token} {text.partition(' ')[2]}" for text in texts]
    with torch.no_grad():
        read = tokenizer(holes, return_tensors="pt", padding=True).to(options.device)
        hf = network(**read).logits.softmax(-1)[read["input_ids"] == tokenizer.mask_token_id].max(-1).values.float().cpu().numpy()
    for what, model in ((f"fill on {options.device} against transformers' class there", there), ("fill on cpu against it", here)):
        best = np.array([filled.masks[0][0].probability for filled in model.fill(holes, top=1)])
        row(f"export: {what}", f"largest difference of a probability {abs(best - hf).max():.1e}")
    difference = abs(there.embed(texts) - here.embed(texts)).max()
    row(f"embed on {options.device} against cpu", f"largest difference of a number {difference:.1e}")
    writer = options.work / "writer"
    cloze.pretrain(**{**options.bert, "recipe": "gpt2"}, out=writer, budget="6steps")
    there, here = cloze.load(writer, device=options.device), cloze.load(writer, device="cpu")
    scores = [np.array([score.score for score in model.score(texts)]) for model in (there, here)]
    row(f"score on {options.device} against cpu", f"largest relative difference {(abs(scores[0] / scores[1] - 1)).max():.1e}")
    started = time.perf_counter()
    written = there.generate(texts, tokens=16, temperature=0.0)
    row(f"generate on {options.device}", f"{len(written)} texts of 16 tokens in {time.perf_counter() - started:.2f} s")


def _losses(options: CheckOptions, out: Path, budget: str, **others: Any) -> dict[int, float]:
    """The training losses of a run by step."""
    import cloze

    del cloze
    from cloze.runs.run import pretrain

    arguments = {**options.bert, "out": out, "budget": budget, **others}
    arguments["overrides"] = [*arguments["overrides"], "training.log_every=1", "training.held_out=0.0"]
    pretrain(**arguments)
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {record["step"]: record["loss"] for record in log if record["event"] == "train"}


def _compare(what: str, losses: Mapping[int, float], expected: Mapping[int, float]) -> None:
    if losses.keys() != expected.keys():
        raise SystemExit(f"steps {sorted(losses)}, expected {sorted(expected)}")
    difference = max(abs(losses[step] - expected[step]) for step in expected)
    row(what, f"largest difference of a loss {difference:.1e}, last loss {list(losses.values())[-1]:.3f}")
    if not difference < 0.05:
        raise SystemExit("the losses differ by 0.05 or more")


@dataclass(frozen=True)
class TimedPart:
    """A function in a process of its own, for at most so many seconds."""

    run: Callable[[CheckOptions], None]
    seconds: int


PARTS = {
    "speed": TimedPart(speed, 170), "tests": TimedPart(tests, 130), "fsdp": TimedPart(sharding, 50),
    "resume": TimedPart(resuming, 50), "use": TimedPart(using, 60),
}


# ---- the table -------------------------------------------------------------------------------------------------------


def hardware(device: str) -> list[tuple[str, str]]:
    """What the figures were measured on."""
    names = ("torch", "transformers", "triton", "numpy", "tokenizers")
    versions = [f"python {platform.python_version()}"]
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    commit = _output("git", "-C", str(ROOT), "log", "-1", "--format=%h %cs")
    rows = [("cloze", commit or "unknown commit"), ("versions", ", ".join(versions))]
    query = "--query-gpu=name,memory.total,driver_version,power.limit"
    rows.append(("GPU", _output("nvidia-smi", query, "--format=csv,noheader") or "none: nvidia-smi does not answer"))
    about = "import torch; print(torch.version.cuda, torch.cuda.is_available(), torch.backends.cudnn.version())"
    rows.append(("CUDA of torch, available, cuDNN", _output(sys.executable, "-c", about) or "torch cannot be imported"))
    rows.append(("processor", f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"))
    rows.append(("device of this table", device))
    return rows


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def command_of(name: str, options: CheckOptions) -> list[str]:
    """The command that runs a part."""
    command = [sys.executable, __file__, "--part", name, "--device", options.device, "--work", str(options.work)]
    return [*command, *["--tiny"] * options.tiny]


def measured(name: str, command: list[str], output: Path, seconds: float) -> Iterator[tuple[str, str]]:
    """The rows of a part, whatever becomes of it; what it prints goes into the file `output`."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    started = time.monotonic()
    with output.open("w+", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            code: int | None = process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        if line.startswith(ROW):
            what, result = json.loads(line.removeprefix(ROW))
            yield what, result
    took = f"{time.monotonic() - started:.0f} s"
    if code is None:
        yield name, f"no more within {seconds:.0f} s"
    elif code:
        last = next((line for line in reversed(lines) if line.strip()), "")
        yield name, f"FAILED after {took} (exit code {code}): {last[:300]}"
    else:
        yield name, f"done in {took}"


def main() -> None:
    """Run the parts, or the one that the parent process asks for."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    asked.add_argument("--tiny", action="store_true")
    asked.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    asked.add_argument("--started", type=float, help="the Unix time at which the installation began")
    asked.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    chosen = asked.parse_args()
    if unknown := [name for name in chosen.parts.split(",") if name not in PARTS]:
        asked.error(f"--parts {','.join(unknown)}: expected some of {', '.join(PARTS)}")
    if chosen.part is not None:
        PARTS[chosen.part].run(CheckOptions(chosen.device, chosen.tiny, chosen.work))
        return
    began = time.time() if chosen.started is None else chosen.started
    work = chosen.work or Path(tempfile.mkdtemp(prefix="gpu-check-"))
    work.mkdir(parents=True, exist_ok=True)
    options = CheckOptions(chosen.device, chosen.tiny, work)
    patience = 1 if chosen.device == "cuda" else 10  # a CPU that is busy with other tests
    rows = hardware(options.device)
    if chosen.started is not None:
        rows.append(("installation", f"{time.time() - began:.0f} s"))
    try:
        write_text(options.text, *((4_000, 300) if options.tiny else (1_500_000, 60_000)))
        for name in chosen.parts.split(","):
            left = patience * TOTAL - 10 - (time.time() - began)
            if left < 15:
                rows.append((name, "not begun: nine minutes are over"))
                continue
            limit = min(left, patience * PARTS[name].seconds)
            print(f"{name}: at most {limit:.0f} s ...", file=sys.stderr, flush=True)
            rows += measured(name, command_of(name, options), work / f"{name}.txt", limit)
    finally:
        print_table(rows)
        if chosen.work is None:
            shutil.rmtree(work, ignore_errors=True)


def print_table(rows: list[tuple[str, str]]) -> None:
    """Print the rows as a table in Markdown."""
    print("\n| what | result |\n|---|---|")
    for what, result in rows:
        print(f"| {what} | {result.replace('|', '/')} |")


if __name__ == "__main__":
    main()
