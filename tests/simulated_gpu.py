"""A GPU that is not there: tensors that say `cuda`, with true numbers in the memory of the CPU.

Without a driver, torch cannot carry fake `cuda` tensors through a backward pass: under `FakeTensorMode`, it ends with "Cannot
access accelerator device when none is available" (CPU build of 2.13) or "hasPrimaryContext expects a valid device index" (CUDA
build of 2.14). So a mark on a tensor's memory says that it is on the GPU. Two modes keep the marks: one for the functions that
Python calls, which name devices, and one for the operations below them, in forward and backward passes. They raise where CUDA
would: a CPU tensor among those of the GPU, `numpy()`. They record where the host would wait for the device. Numbers are computed
as they are, so whatever depends on `device.type == "cuda"` can be compared with what the CPU computes.

Not simulated: streams, memory, speed, kernels of the GPU and their limits. `make gpu-check` is for those.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda", 0)
_PACKAGE = str(Path(__file__).resolve().parents[1] / "cloze")
#: Operations after which the host waits: it reads a number, or the size of what they make.
_WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive",
    "unique_dim_consecutive", "equal", "bincount", "linalg_cholesky_ex", "_linalg_svd", "linalg_eigh", "_linalg_eigh",
}
#: Operations that take 0-dim CPU tensors from nowhere: all others broadcast them, as they do numbers.
_JOINS = {"cat", "stack", "index_select", "index_copy", "index_copy_", "mm", "bmm", "addmm", "embedding", "gather", "scatter"}

#: The memory that is on the GPU, for as long as it exists: the package keeps tables for the steps after.
_MARKED: dict[int, StorageWeakRef] = {}


class SimulatedGpu:
    """While it is entered, `cuda` is a device. `waits` counts where the host would wait for it: (operation, place in cloze).

    `compiled_waits` are those inside modules that `watch` has named: there torch.compile would leave its graph. `kernels` counts
    calls of kernels that only a GPU has.
    """

    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()
        self.compiled_waits: Counter[tuple[str, str]] = Counter()
        self.kernels: Counter[str] = Counter()
        self._depth = 0
        self.inside = False
        self._stack = ExitStack()

    def __enter__(self) -> SimulatedGpu:
        for target, name, value in _patches(self):
            self._stack.enter_context(mock.patch.object(target, name, value))
        self._stack.enter_context(_Operations(self))
        self._stack.enter_context(_Functions(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def holds(self, x: Tensor) -> bool:
        """Whether a tensor is on the GPU."""
        storages = _storages(x)
        return bool(storages) and all(self._is_marked(storage) for storage in storages)

    def mark(self, x: Tensor, on: bool = True) -> Tensor:
        """Say of a tensor's memory that it is on the GPU, or that it is not."""
        for storage in _storages(x):
            if on:
                _MARKED[storage._cdata] = StorageWeakRef(storage)
            else:
                _MARKED.pop(storage._cdata, None)
        return x

    def wait(self, what: str) -> None:
        """Record that the host waits."""
        entry = (what, _place())
        self.waits[entry] += 1
        if self._depth:
            self.compiled_waits[entry] += 1

    def watch(self, modules: Sequence[nn.Module]) -> None:
        """Record apart what waits inside of these modules."""
        for module in modules:
            module.register_forward_pre_hook(lambda *_: self._enter(1))
            module.register_forward_hook(lambda *_: self._enter(-1), always_call=True)

    @contextmanager
    def inside_torch(self, on: bool) -> Iterator[None]:
        """While torch computes something of tensors on the GPU: what it makes in between is there too."""
        before, self.inside = self.inside, on
        try:
            yield
        finally:
            self.inside = before

    def _enter(self, change: int) -> None:
        self._depth += change

    def _is_marked(self, storage: Any) -> bool:
        reference = _MARKED.get(storage._cdata)
        return reference is not None and not reference.expired()


def _storages(x: Tensor) -> list[Any]:
    with torch._C.DisableTorchFunction():
        if x.is_mkldnn:
            return []
        parts = [x._indices(), x._values()] if x.layout == torch.sparse_coo else [x]
        return [part.untyped_storage() for part in parts]


def _place() -> str:
    """The innermost line of cloze that is running, or the first outside of torch in a backward pass."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(_PACKAGE)]
    if not frames:
        return "tests"
    return f"{Path(frames[-1].filename).relative_to(Path(_PACKAGE).parent)}:{frames[-1].lineno}"


class _Functions(TorchFunctionMode):
    """What Python calls, where a device can be named: factories, `to`, `cuda`, `cpu`, the attribute `device`."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self.gpu, func, args, kwargs)
        if func in _TO:
            return _to(self.gpu, args[0], *_TO[func](self.gpu, args[1:], kwargs))
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = "cpu"
            made = func(*args, **kwargs)
            if func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor):
                self.gpu.wait("copy to the GPU")
            return self._marked(made)
        if device is not None and args and isinstance(args[0], Tensor):  # new_zeros(device="cpu") of a tensor of the GPU
            return self._marked(func(*args, **kwargs), False)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not tensors and self.gpu.inside:
            return self._marked(func(*args, **kwargs), False)  # a factory that cloze calls in a backward pass, without a device
        with self.gpu.inside_torch(any(self.gpu.holds(x) for x in tensors)):
            made = func(*args, **kwargs)
        if func is Tensor.new_tensor and self.gpu.holds(args[0]):
            self.gpu.wait("copy to the GPU")
            self._marked(made)
        return made

    def _marked(self, made: Any, on: bool = True) -> Any:
        for x in tree_leaves(made):
            if isinstance(x, Tensor):
                self.gpu.mark(x, on)
        return made


def _device_of(gpu: SimulatedGpu, func: Any, args: Any, kwargs: Any) -> torch.device:
    return CUDA if gpu.holds(args[0]) else func(*args)


def _is_cuda(gpu: SimulatedGpu, func: Any, args: Any, kwargs: Any) -> bool:
    return gpu.holds(args[0])


def _is_cpu(gpu: SimulatedGpu, func: Any, args: Any, kwargs: Any) -> bool:
    return not gpu.holds(args[0])


def _numpy(gpu: SimulatedGpu, func: Any, args: Any, kwargs: Any) -> Any:
    if gpu.holds(args[0]):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
    return func(*args, **kwargs)


def _list(gpu: SimulatedGpu, func: Any, args: Any, kwargs: Any) -> Any:
    if gpu.holds(args[0]):
        gpu.wait("tolist")
    return func(*args, **kwargs)


_SPECIAL: Mapping[Any, Callable[..., Any]] = {
    Tensor.device.__get__: _device_of, Tensor.is_cuda.__get__: _is_cuda, Tensor.is_cpu.__get__: _is_cpu,
    Tensor.pin_memory: lambda gpu, func, args, kwargs: args[0],
    Tensor.numpy: _numpy, Tensor.__array__: _numpy, Tensor.tolist: _list,
}


def _parsed(gpu: SimulatedGpu, args: Any, kwargs: Any) -> tuple[torch.device | None, torch.dtype | None, bool]:
    """Device, dtype and `non_blocking` of a call of `to`."""
    args = [*args]
    other = args[0] if args else kwargs.pop("other", None)
    if isinstance(other, Tensor):
        return (CUDA if gpu.holds(other) else torch.device("cpu")), other.dtype, bool(kwargs.get("non_blocking"))
    kwargs.pop("copy", None)
    device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args[:3], **kwargs)
    return device, dtype, non_blocking


_TO: Mapping[Any, Callable[..., Any]] = {
    Tensor.to: _parsed,
    Tensor.cuda: lambda gpu, args, kwargs: (CUDA, None, bool(kwargs.get("non_blocking"))),
    Tensor.cpu: lambda gpu, args, kwargs: (torch.device("cpu"), None, False),
}


def _to(gpu: SimulatedGpu, x: Tensor, device: torch.device | None, dtype: torch.dtype | None, non_blocking: bool) -> Tensor:
    here = gpu.holds(x)
    there = here if device is None else device.type == "cuda"
    if there == here:
        return x if dtype in (None, x.dtype) else x.to(dtype)
    if not non_blocking:
        gpu.wait("copy to the GPU" if there else "copy to the CPU")
    return gpu.mark(x.to(x.dtype if dtype is None else dtype, copy=True), there)


class _Operations(TorchDispatchMode):
    """The operations themselves, also those of backward passes and optimizers."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        here = [self.gpu.holds(x) for x in tensors]
        if not any(here):
            made = func(*args, **kwargs)
            if not tensors and self.gpu.inside:  # what torch itself makes next to its arguments, such as zeros for a gradient
                for x in tree_leaves(made):
                    if isinstance(x, Tensor):
                        self.gpu.mark(x)
            return made
        if name == "copy_":
            if not all(here) and not (len(args) > 2 and args[2]):
                self.gpu.wait("copy to the GPU" if here[0] else "copy to the CPU")
            return func(*args, **kwargs)
        self._require_one_device(name, func, args, tensors, here)
        if name in _WAITS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.gpu.wait(name)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
            self._index(name, args)
        if name in _FLASH:
            self.gpu.kernels[name] += 1
        outputs = _FLASH[name](*args, **kwargs) if name in _FLASH else func(*args, **kwargs)
        if name != "_local_scalar_dense":
            for x in tree_leaves(outputs):
                if isinstance(x, Tensor):
                    self.gpu.mark(x)
        return outputs

    def _require_one_device(self, name: str, func: Any, args: Any, tensors: list[Tensor], here: list[bool]) -> None:
        indices = {id(x) for x in args[1] if x is not None} if name.removesuffix("_") in ("index", "index_put") else set()
        for x, on in zip(tensors, here, strict=True):
            if not on and id(x) not in indices and (x.dim() > 0 or name in _JOINS):
                raise RuntimeError(
                    f"{func}: expected all tensors to be on the same device, but a tensor {tuple(x.shape)} of {x.dtype} is on "
                    f"the CPU and others are on cuda:0 ({_place()})"
                )

    def _index(self, name: str, args: Any) -> None:
        indices = [x for x in args[1] if x is not None]
        if any(not self.gpu.holds(x) and x.dim() > 0 for x in indices):
            self.gpu.wait("copy of an index to the GPU")
        masks = [x for x in indices if x.dtype in (torch.bool, torch.uint8)]
        filled = name != "index" and args[2].numel() == 1 and len(indices) == 1  # torch makes it a masked_fill
        if masks and not filled:
            self.gpu.wait(f"{name} by a mask")


def _flash_forward(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor, longest: int, key_longest: int, rate: float,
    causal: bool, return_mask: bool, *, scale: float | None = None, window_size_left: int | None = None,
    window_size_right: int | None = None, **others: Any,
) -> tuple[Tensor, ...]:
    """Flash attention of packed rows (T, H, W), as its contract says: each run of `starts` by itself. Without dropout."""
    assert rate == 0.0, "the simulated kernel has no dropout"
    assert all(x.dtype in (torch.bfloat16, torch.float16) for x in (query, key, value)) and starts.dtype == torch.int32
    assert int(starts[0]) == 0 and int(starts[-1]) == len(query) and bool((starts.diff() >= 0).all())
    output = torch.empty_like(query)
    for run in _runs(starts):
        q, k, v, weights, _ = _weights(query[run], key[run], value[run], causal, scale, window_size_left, window_size_right)
        output[run] = (weights @ v).transpose(0, 1).to(output.dtype)
    seed = torch.zeros((), dtype=torch.int64)
    return output, torch.zeros(query.shape[1], len(query)), seed, seed.clone(), torch.empty(0)


def _flash_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, starts: Tensor,
    key_starts: Tensor, longest: int, key_longest: int, rate: float, causal: bool, *states: Any, scale: float | None = None,
    window_size_left: int | None = None, window_size_right: int | None = None, **others: Any,
) -> tuple[Tensor, ...]:
    """The gradients of query, key and value."""
    gradients = tuple(torch.zeros_like(x) for x in (query, key, value))
    for run in _runs(starts):
        q, k, v, weights, scale_ = _weights(query[run], key[run], value[run], causal, scale, window_size_left, window_size_right)
        of_output = gradient[run].transpose(0, 1).float()
        of_weights = of_output @ v.transpose(1, 2)
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale_
        found = of_scores @ k, of_scores.transpose(1, 2) @ q, weights.transpose(1, 2) @ of_output
        for whole, part in zip(gradients, found, strict=True):
            heads = whole.shape[1]
            whole[run] = part.unflatten(0, (heads, -1)).sum(1).transpose(0, 1).to(whole.dtype)
    return gradients


def _runs(starts: Tensor) -> list[slice]:
    bounds = starts.tolist()
    return [slice(begin, end) for begin, end in zip(bounds, bounds[1:], strict=False) if begin < end]


def _weights(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float | None, left: int | None, right: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Queries, keys and values of one run (H, T, W), each head's own, the weights (H, T, T), and the scale of scores."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (x.transpose(0, 1).float() for x in (query, key, value))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    hidden = (distance < 0) if causal else torch.zeros_like(distance, dtype=torch.bool)
    if left is not None and left >= 0:
        hidden = hidden | (distance > left)
    if right is not None and right >= 0:
        hidden = hidden | (distance < -right)
    return q, k, v, (q @ k.transpose(1, 2) * scale).masked_fill(hidden, -torch.inf).softmax(-1), scale


_FLASH: Mapping[str, Callable[..., Any]] = {
    "_flash_attention_forward": _flash_forward, "_flash_attention_backward": _flash_backward,
}


def _patches(gpu: SimulatedGpu) -> Iterator[tuple[Any, str, Any]]:
    """What torch without CUDA cannot answer, or refuses."""
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "is_bf16_supported": True, "current_device": 0, "synchronize": None,
        "is_current_stream_capturing": False, "get_device_name": "simulated", "mem_get_info": (1 << 36, 1 << 36),
        "memory_allocated": 0, "max_memory_allocated": 0, "reset_peak_memory_stats": None, "empty_cache": None,
        "get_device_capability": (9, 0),
        "manual_seed": None, "manual_seed_all": None,
    }
    for name, answer in answers.items():
        yield torch.cuda, name, lambda *args, _answer=answer, **kwargs: _answer
    yield torch.cuda, "device", lambda device: nullcontext()
    yield torch.backends.cuda, "is_flash_attention_available", lambda: True
    engine = torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        on = any(isinstance(x, Tensor) and gpu.holds(x) for x in tree_leaves((args, kwargs)))
        with gpu.inside_torch(on), _Functions(gpu):  # `backward` was called through the mode, which is off inside of it
            return engine(*args, **kwargs)

    yield torch.autograd, "_engine_run_backward", run_backward
    autocast, enabled, dtype = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    yield torch, "autocast", lambda kind, *args, **kwargs: autocast(_near(kind), *args, **kwargs)
    yield torch, "is_autocast_enabled", lambda kind="cuda": enabled(_near(kind))
    yield torch, "get_autocast_dtype", lambda kind: dtype(_near(kind))


def _near(kind: str) -> str:
    return "cpu" if kind == "cuda" else kind
