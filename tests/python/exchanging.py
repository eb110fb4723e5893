"""Arrays whose type has DLPack's exchange in C (version 1.3), by ctypes: what PyTorch 2.10 and newer have."""

import ctypes

import numpy as np

CODES = {"float32": (2, 32), "float16": (2, 16), "int64": (0, 64)}
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


GiveBorrowed = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))


class Api(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                ("managed", ctypes.c_void_p), ("object", ctypes.c_void_p), ("borrowed", GiveBorrowed), ("current_stream", ctypes.c_void_p)]


class Wrapped:
    """An array that has DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def make_type(major=1, borrows=True, fails=False):
    """A new type around a NumPy array. `asked` of its objects lists how each was read."""

    class Exchanging(Wrapped):
        def __init__(self, array):
            self.array, self.asked = array, []
            self.extents = (ctypes.c_int64 * array.ndim)(*array.shape)
            self.steps = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))

        def fill(self, out):
            code, bits = CODES[str(self.array.dtype)]
            out.data, out.device_type, out.device_id, out.ndim = self.array.ctypes.data, 1, 0, self.array.ndim
            out.code, out.bits, out.lanes, out.shape, out.strides, out.byte_offset = code, bits, 1, self.extents, self.steps, 0

        def __dlpack__(self, **arguments):
            self.asked.append("__dlpack__")
            return super().__dlpack__(**arguments)

    def borrow(one, out):
        one.asked.append("borrowed")
        if fails:
            return -1
        one.fill(out.contents)
        return 0

    Exchanging.api = api = Api(major, 3, None, None, None, None, GiveBorrowed(borrow) if borrows else GiveBorrowed(), None)  # kept as long as the type
    Exchanging.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(api), b"dlpack_exchange_api", None)
    return Exchanging


def ones(shape, dtype=np.float32):
    """At a multiple of 16 bytes, which NumPy does not promise of small arrays."""
    count = int(np.prod(shape))
    memory = np.ones(count + 16, dtype)
    first = (-memory.ctypes.data % 64) // memory.itemsize
    return memory[first : first + count].reshape(shape)
