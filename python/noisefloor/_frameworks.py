"""What a framework does for a call: empty tensors beside its own, and its stream."""

import contextlib
import functools
import sys

TORCH = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64", "int32": "int32", "uint8": "uint8"}


def framework(tensor):
    return type(tensor).__module__.partition(".")[0]


@functools.cache
def torch_dtype(name):
    return getattr(sys.modules["torch"], TORCH[name])


def array_dtype(name):
    """NumPy's; bf16 is ml_dtypes', which whoever has such an array has imported."""
    if name != "bf16":
        return TORCH[name]
    import ml_dtypes

    return ml_dtypes.bfloat16


def empty(like, shape, dtype, stream, instead="give out=, a tensor of NumPy or of another framework"):
    """An uninitialised tensor of the framework of `like`, on its device; on a GPU it belongs to `stream`, None for the framework's current one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        device = like.device
        if stream is None or stream == current_stream(torch, device.index):
            # Named: PyTorch takes twice as long to tell one tuple from numbers.
            return torch.empty(size=shape, dtype=torch_dtype(dtype), device=device)
        # The allocator hands memory out again in the order of the stream that it was made on.
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
            return torch.empty(shape, dtype=torch_dtype(dtype), device=device)
    import numpy

    if isinstance(like, (numpy.ndarray, memoryview)):
        return numpy.empty(shape, array_dtype(dtype))
    name = framework(like)
    if name == "cupy":
        cupy = sys.modules["cupy"]
        with like.device, contextlib.nullcontext() if stream is None else cupy.cuda.ExternalStream(stream):
            return cupy.empty(shape, array_dtype(dtype))
    if name in ("jax", "jaxlib"):
        raise TypeError(f"JAX's arrays cannot be written: {instead}")
    raise TypeError(f"cannot make a tensor as '{name}' has them; {instead}")


def prepared_memory(like, size, stream):
    """Bytes for prepared weights, at a multiple of 64, which PyTorch and CuPy give and NumPy may not."""
    instead = "give the first of the weights as a tensor of NumPy or of another framework"
    memory = empty(like, (size + 63,), "uint8", stream) if framework(like) == "numpy" or isinstance(like, memoryview) else None
    if memory is None:
        return empty(like, (size,), "uint8", stream, instead)
    first = -memory.ctypes.data % 64
    return memory[first : first + size]


def used(tensor, stream):
    """Tells PyTorch's allocator that another stream than the one it was made on reads it: it waits before it gives the memory away."""
    tensor.record_stream(sys.modules["torch"].cuda.ExternalStream(stream, device=tensor.device))


def current_stream(torch, device):
    """The number of PyTorch's current stream; its own way to it makes an object, which takes longer than a launch."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream


def stream(like, device, given):
    """The number of the stream to launch on: the given one's, else the framework's current one."""
    if given is not None:
        for name in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
            given = getattr(given, name, given)
        if isinstance(given, bool) or not isinstance(given, int):
            raise TypeError(f"stream must be a CUDA stream or its number, not a {type(given).__name__}")
        return given
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return current_stream(torch, device)
    if framework(like) == "cupy":
        with like.device:
            return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0
