"""Reads a Python file as a plugin (docs/plugins.md), and gives its rows to the program whose process this is.

python_plugin.py FILE ADDRESS DEVICE: the address of the program's function that takes the rows' function; CUDA's number, or -1.
"""

import contextlib
import ctypes
import math
import os
import runpy
import sys
import traceback
from ctypes import CFUNCTYPE, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

DTYPES = ["fp32", "bf16", "fp16", "fp64", "int32", "int64", "uint8"]
DLPACK = {"fp32": (2, 32), "bf16": (4, 16), "fp16": (2, 16), "fp64": (2, 64), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8)}
NUMPY = {"fp32": "float32", "fp16": "float16", "fp64": "float64", "int32": "int32", "int64": "int64", "uint8": "uint8"}
CHOICE, REAL, OUT, INOUT = 2, 1, 1, 2


def struct(**fields):
    return type("Struct", (ctypes.Structure,), {"_fields_": list(fields.items())})


# As plugin.h and DLPack have them. A text that is given out is a c_void_p: ctypes would make its own object of a c_char_p.
CField = struct(name=c_char_p, text=c_char_p, integer=c_int64, real=c_double, type=c_int32)
CTensor = struct(name=c_char_p, data=c_void_p, shape=ctypes.POINTER(c_int64), rank=c_int32, dtype=c_int32, role=c_int32)
CProblem = struct(size=c_uint32, dtype=c_int32, op=c_char_p, text=c_char_p, fields=ctypes.POINTER(CField), tensors=ctypes.POINTER(CTensor),
                  field_count=c_int32, tensor_count=c_int32, compute_capability=c_int32, sm_count=c_int32, l2_bytes=c_uint64,
                  shared_bytes_per_block=c_uint64)  # fmt: skip
CLaunch = struct(size=c_uint32, flags=c_uint32, problem=ctypes.POINTER(CProblem), workspace=c_void_p, prepared=c_void_p, stream=c_void_p)
CAN_RUN = CFUNCTYPE(c_void_p, ctypes.POINTER(CProblem))
CREATE = CFUNCTYPE(c_int, ctypes.POINTER(CProblem), ctypes.POINTER(c_void_p))
BYTES = CFUNCTYPE(c_size_t, c_void_p, ctypes.POINTER(CProblem))
PREPARE = CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(CLaunch), c_void_p)
LAUNCH = CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(CLaunch))
ERROR_TEXT = CFUNCTYPE(c_void_p, c_void_p, c_int)
DESTROY = CFUNCTYPE(None, c_void_p)
CPlugin = struct(abi=c_uint32, size=c_uint32, op=c_char_p, name=c_char_p, kind=c_char_p, arch=c_char_p, can_run=CAN_RUN, create=CREATE,
                 workspace_bytes=BYTES, prepared_bytes=BYTES, prepare=PREPARE, launch=LAUNCH, error_text=ERROR_TEXT, destroy=DESTROY)  # fmt: skip
DLTensor = struct(data=c_void_p, device_type=c_int32, device=c_int32, rank=c_int32, code=c_uint8, bits=c_uint8, lanes=c_uint16,
                  shape=ctypes.POINTER(c_int64), strides=c_void_p, byte_offset=c_uint64, context=c_void_p, deleter=c_void_p)  # fmt: skip
KEPT = []  # DLTensors: who reads one needs it as long as it likes


class Memory:
    """A tensor of the program's, for whatever reads DLPack."""

    def __init__(self, data, shape, dtype, device):
        self.data, self.shape, self.dtype, self.device = data, shape, dtype, device

    def __dlpack_device__(self):
        return (1, 0) if self.device < 0 else (2, self.device)

    def __dlpack__(self, **_):
        KEPT.append(DLTensor(self.data, *self.__dlpack_device__(), len(self.shape), *DLPACK[self.dtype], 1, (c_int64 * len(self.shape))(*self.shape)))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
        return new(ctypes.addressof(KEPT[-1]), b"dltensor", None)


class Problem:
    """Its fields as attributes (problem.groups), `dtype`, `op`, `text`, and `fields`, a dictionary of all."""

    def __init__(self, c):
        self.fields = {}
        for field in c.fields[: c.field_count]:
            value = field.text.decode() if field.type == CHOICE else field.real if field.type == REAL else field.integer
            self.fields[field.name.decode()] = value
        self.op, self.dtype, self.text = c.op.decode(), DTYPES[c.dtype], c.text.decode()
        for name, value in self.fields.items():
            self.__dict__.setdefault(name, value)


class Tensors(dict):
    """By name, in the op's order: t.x or t["x"]; t.get("bias") is None where the problem has none. `inputs` and `outputs`: dictionaries of
    these (in both what is read and written). `stream`: CUDA's."""

    __getattr__ = dict.__getitem__
    stream = None

    def __init__(self):
        super().__init__()
        self.__dict__.update(inputs={}, outputs={})


def framework():
    """That which the file has imported."""
    return next((sys.modules[name] for name in ("torch", "cupy") if name in sys.modules), None)


def numpy_array(memory, writable):
    import numpy

    if memory.dtype == "bf16":
        import ml_dtypes  # says which package is missing

        dtype = numpy.dtype(ml_dtypes.bfloat16)
    else:
        dtype = numpy.dtype(NUMPY[memory.dtype])
    data = (ctypes.c_char * (math.prod(memory.shape) * dtype.itemsize)).from_address(memory.data)
    array = numpy.frombuffer(data, dtype).reshape(memory.shape)
    array.flags.writeable = writable
    return array


def tensors_of(c, device):
    found = Tensors()
    for tensor in c.tensors[: c.tensor_count]:
        memory = Memory(tensor.data, tuple(tensor.shape[: tensor.rank]), DTYPES[tensor.dtype], device)
        library = framework()
        if library is not None and hasattr(library, "from_dlpack") and (device >= 0 or library.__name__ == "torch"):
            value = library.from_dlpack(memory)
        else:
            value = memory if device >= 0 else numpy_array(memory, tensor.role in (OUT, INOUT))
        name = tensor.name.decode()
        found[name] = value
        for role, group in ((OUT, found.outputs), (0, found.inputs)):
            if tensor.role in (role, INOUT):
                group[name] = value
    return found


def on_stream(number, device):
    """What the framework launches inside goes to the program's stream."""
    library = framework()
    if device < 0 or library is None:
        return contextlib.nullcontext()
    if library.__name__ == "torch":
        return library.cuda.stream(library.cuda.ExternalStream(number or 0, device=library.device("cuda", device)))
    return library.cuda.ExternalStream(number or 0, device)


def wait(device):
    """For what the framework launched on a stream of its own."""
    library = framework()
    if device >= 0 and library is not None:
        library.cuda.synchronize() if library.__name__ == "torch" else library.cuda.Device(device).synchronize()


def copy(outputs, results):
    """Of a function that returns its outputs: in its time."""
    results = results if isinstance(results, (tuple, list)) else (results,)
    if len(results) != len(outputs):
        raise ValueError(f"it returned {len(results)} tensors, the op has {len(outputs)} outputs; None says that they are written")
    for output, result in zip(outputs, results):
        if tuple(result.shape) != tuple(output.shape):
            raise ValueError(f"it returned a tensor of shape {tuple(result.shape)}, the output has {tuple(output.shape)}")
        if hasattr(output, "copy_"):
            output.copy_(result)
        else:
            output[...] = result


class Row:
    """One function of the file, as the program calls it."""

    def __init__(self, file, module, name, function, device):
        self.file, self.function, self.device = file, function, device
        self.may_run, self.setup = module.get("can_run"), module.get("setup")
        self.words = b""
        self.cases = {}  # by state: the problem, and tensors by their pointers
        host = device < 0
        arch, kind = module.get("arch", "host" if host else "any"), module.get("kind", "host" if host else "naive")
        for text, what in ((module["op"], "op"), (arch, "arch"), (kind, "kind")):
            if not isinstance(text, str):
                raise TypeError(f"'{what}' is {text!r}, not a text")
        self.c = CPlugin(1, ctypes.sizeof(CPlugin), module["op"].encode(), name.encode(), kind.encode(), arch.encode(), CAN_RUN(self.can_run),
                         CREATE(self.create), launch=LAUNCH(self.launch), error_text=ERROR_TEXT(self.error_text), destroy=DESTROY(self.destroy))  # fmt: skip

    def say(self, text):
        self.words = str(text).encode()
        return ctypes.cast(c_char_p(self.words), c_void_p).value

    def failed(self, error):
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
        place = f" ({os.path.basename(self.file)}, line {lines[-1]})" if lines else ""
        text = next(iter(str(error).splitlines()), "")
        self.say(f"{type(error).__name__}: {text}{place}")
        return 1

    def can_run(self, problem):
        if self.may_run is None:
            return None
        try:
            answer = self.may_run(Problem(problem.contents))
        except BaseException as error:  # sys.exit too
            self.failed(error)
            return self.say(f"can_run failed: {self.words.decode()}")
        return None if answer is None or answer is True else self.say(answer if isinstance(answer, str) else "can_run says no")

    def create(self, problem, state):
        try:
            number = max(self.cases, default=0) + 1
            one = Problem(problem.contents)
            if self.setup is not None:
                one.state = self.setup(one)
                wait(self.device)
            self.cases[number] = one, {}
            state[0] = number
        except BaseException as error:
            return self.failed(error)
        return 0

    def launch(self, state, call):
        try:
            (problem, known), c = self.cases[state], call.contents
            tensors = c.problem.contents.tensors
            pointers = tuple(tensors[i].data for i in range(c.problem.contents.tensor_count))
            if pointers not in known:
                known[pointers] = tensors_of(c.problem.contents, self.device)
            given = known[pointers]
            given.stream = c.stream
            with on_stream(c.stream, self.device):
                results = self.function(problem, given)
                if results is not None:
                    copy(list(given.outputs.values()), results)
        except BaseException as error:
            return self.failed(error)
        return 0

    def error_text(self, _, __):
        return ctypes.cast(c_char_p(self.words), c_void_p).value

    def destroy(self, state):
        self.cases.pop(state, None)


def rows_of(file, device):
    """`launch` is a row of the file's name, or of `name`; each launch_NAME another one."""
    module = runpy.run_path(file, run_name="noisefloor_plugin")
    if "op" not in module:
        raise ValueError("it has no 'op', as in op = \"groupnorm\" (noisefloor list ops)")
    found = []
    for name, value in module.items():
        if name == "launch" or name.startswith("launch_"):
            if not callable(value):
                raise TypeError(f"'{name}' is {value!r}, not a function of (problem, tensors)")
            stem = os.path.splitext(os.path.basename(file))[0]
            found.append(Row(file, module, module.get("name", stem) if name == "launch" else name[len("launch_") :], value, device))
    if not found:
        raise ValueError("it has no function launch(problem, tensors)")
    return found


def main():
    file, address, device = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.argv, sys.path[0] = [file], os.path.dirname(file)
    try:
        rows = rows_of(file, device)
    except BaseException as error:
        traceback.print_exc()
        print(f"{sys.argv[0]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 2
    at = CFUNCTYPE(c_void_p, c_uint32)(lambda index: ctypes.addressof(rows[index].c) if index < len(rows) else None)
    return CFUNCTYPE(c_int, c_void_p)(address)(ctypes.cast(at, c_void_p))


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads and contexts of frameworks have nothing more to say
