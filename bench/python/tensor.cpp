#include "bench/python/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr std::uintptr_t kAlignment = 16;  // of the widest loads and stores

std::optional<DType> dtype_of(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  if (type.lanes != 1) return std::nullopt;
  if (code == Code::Float && type.bits == 64) return DType::fp64;
  if (code == Code::Float && type.bits == 32) return DType::fp32;
  if (code == Code::Float && type.bits == 16) return DType::fp16;
  if (code == Code::Bfloat && type.bits == 16) return DType::bf16;
  if (code == Code::Int && type.bits == 64) return DType::int64;
  if (code == Code::Int && type.bits == 32) return DType::int32;
  if (code == Code::UInt && type.bits == 8) return DType::uint8;
  return std::nullopt;
}

// An attribute that each call asks for; None where there is none. The name is made and hashed once.
template <auto& name>
nb::object asked_often(nb::handle object) {
  static PyObject* const interned = PyUnicode_InternFromString(name);
  PyObject* const value = PyObject_GetAttr(object.ptr(), interned);
  if (value != nullptr) return nb::steal(value);
  PyErr_Clear();
  return nb::none();
}
constexpr char kRequiresGrad[] = "requires_grad", kExchangeApi[] = "__dlpack_c_exchange_api__",
               kCurrentLevel[] = "_current_level";

// PyTorch's forward_ad, while it has a level open; each call asks.
nb::object forward_gradients() {
  static PyObject* const name = PyUnicode_InternFromString("torch.autograd.forward_ad");
  nb::object found = nb::steal(PyImport_GetModule(name));
  PyErr_Clear();
  if (!found) return nb::none();
  const nb::object level = asked_often<kCurrentLevel>(found);
  return nb::isinstance<nb::int_>(level) && nb::cast<int>(level) >= 0 ? found : nb::none();
}

std::string python_type(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

// What str() says of an attribute; "" where there is none.
std::string attribute_text(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::str(""));
  return nb::cast<std::string>(nb::str(nb::handle(value)));
}

// What a framework said of a tensor, whichever way it was asked. Strides are in elements; null where it is contiguous.
void take(const nb::dlpack::dltensor& given, nb::handle object, bool bf16, Tensor& tensor, std::string& problem) {
  const auto type = bf16 ? std::optional(DType::bf16) : dtype_of(given.dtype);
  const int device = given.device.device_type;
  if (!type) {
    problem = "has an element type that no op takes: " + attribute_text(object, "dtype");
  } else if (device == nb::device::cpu::value || device == nb::device::cuda_host::value) {
    tensor.device = {};
  } else if (device == nb::device::cuda::value || device == nb::device::cuda_managed::value) {
    tensor.device = {true, given.device.device_id};
  } else {
    problem = fmt::format("is on a device that noisefloor does not know (DLPack's number {})", device);
  }
  if (!problem.empty()) return;
  tensor.dtype = *type;
  tensor.data = static_cast<char*>(given.data) + given.byte_offset;
  tensor.shape.assign(given.shape, given.shape + given.ndim);
  if (std::ranges::count(tensor.shape, 0) > 0) return;  // which is refused by its shape
  std::int64_t contiguous = 1;
  bool strided = false;
  for (std::size_t i = tensor.shape.size(); given.strides != nullptr && i-- > 0;) {
    strided = strided || (tensor.shape[i] > 1 && given.strides[i] != contiguous);
    contiguous *= tensor.shape[i];
  }
  if (strided)
    problem = fmt::format("must be contiguous in row-major order; its shape is {}, its strides are {}",
                          shape_text(tensor.shape), shape_text({given.strides, given.strides + given.ndim}));
  else if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0)
    problem = fmt::format("must begin at a multiple of {} bytes, which a view into another tensor may not; copy it",
                          kAlignment);
  else if (given.data == nullptr)
    problem = "has no memory of its own";
}

template <class Array>
bool import_array(nb::handle object, Tensor& tensor, std::string& problem, bool bf16) {
  Array array;
  if (!nb::try_cast<Array>(object, array)) return false;
  std::vector<std::int64_t> shape(array.ndim()), strides(array.ndim());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    shape[i] = static_cast<std::int64_t>(array.shape(i));
    strides[i] = array.stride(i);
  }
  const nb::dlpack::dltensor given{const_cast<void*>(static_cast<const void*>(array.data())),
                                   {array.device_type(), array.device_id()},
                                   static_cast<std::int32_t>(shape.size()),
                                   array.dtype(),
                                   shape.data(),
                                   strides.data(),
                                   0};
  take(given, object, bf16, tensor, problem);
  tensor.array = nb::ndarray<nb::ro>(array);
  return true;
}

// DLPack's exchange in C (dlpack.h, version 1.3), which needs no call of __dlpack__: as far as it is used here.
struct ManagedTensor {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;  // 1: read-only
  nb::dlpack::dltensor tensor;
};
struct ExchangeApi {
  std::uint32_t major, minor;
  const ExchangeApi* older;
  void* allocate;
  int (*managed_tensor)(void* object, ManagedTensor** out);
};

// Whether the object's framework has it, and gave the tensor.
bool exchange(nb::handle object, Tensor& tensor, std::string& problem, bool written) {
  const nb::object capsule = asked_often<kExchangeApi>(object.type());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return false;
  const auto* api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr || api->major != 1 || api->managed_tensor == nullptr) return false;
  ManagedTensor* managed = nullptr;
  if (api->managed_tensor(object.ptr(), &managed) != 0) {
    PyErr_Clear();
    return false;
  }
  tensor.managed = std::shared_ptr<void>(managed, [](void* data) {
    auto* const owned = static_cast<ManagedTensor*>(data);
    if (owned->deleter != nullptr) owned->deleter(owned);
  });
  if (written && (managed->flags & 1) != 0)
    problem = "is read-only, and would be written";
  else
    take(managed->tensor, object, false, tensor, problem);
  return true;
}

// Of that very class: others may have its name.
bool is_exactly(nb::handle object, const char* module, const char* name) {
  const nb::object found = nb::steal(PyImport_GetModule(nb::str(module).ptr()));
  PyErr_Clear();
  return found && object.type().is(nb::getattr(found, name, nb::none()));
}

// What nanobind takes of an object only once: the capsule of its __dlpack__, marked as used from then on. nanobind
// itself marks none but those that it was given, and reads freed memory where an object hands out the same one again.
// NumPy and PyTorch make one for each call.
nb::object capsule_of(nb::handle object) {
  if (PyCapsule_CheckExact(object.ptr()) || is_exactly(object, "numpy", "ndarray") ||
      is_exactly(object, "torch", "Tensor") || !nb::hasattr(object, "__dlpack__"))
    return nb::borrow(object);
  const nb::object ask = object.attr("__dlpack__");
  try {
    return ask(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error&) {  // older than max_version, or it has none to give
  }
  try {
    return ask();
  } catch (nb::python_error&) {
    return nb::borrow(object);
  }
}

bool is_used(nb::handle capsule) {
  if (!PyCapsule_CheckExact(capsule.ptr())) return false;
  const char* const name = PyCapsule_GetName(capsule.ptr());
  return name != nullptr && std::string_view(name).starts_with("used_dltensor");
}

}  // namespace

std::size_t Tensor::bytes() const {
  std::size_t count = size_of(dtype);
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

nb::tuple tuple_of(const std::vector<std::int64_t>& shape) {
  nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!extents) nb::raise_python_error();
  for (std::size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(i), nb::int_(shape[i]).release().ptr());
  return nb::borrow<nb::tuple>(extents);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Tensor read_tensor(nb::handle object, const Name& name, bool written) {
  Tensor tensor;
  std::string problem;
  nb::object source = nb::borrow(object);
  const auto read = [&](nb::handle given, bool bf16) {
    source = capsule_of(given);
    if (is_used(source))
      throw InvalidInput(name.text() + " is a DLPack capsule that was taken before; each serves once");
    return written ? import_array<nb::ndarray<>>(source, tensor, problem, bf16)
                   : import_array<nb::ndarray<nb::ro>>(source, tensor, problem, bf16);
  };
  if (asked_often<kRequiresGrad>(object).is(nb::handle(Py_True))) {
    if (nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")()))
      throw InvalidInput(name.text() + " requires a gradient, and the ops have none: call them under torch.no_grad()");
    source = source.attr("detach")();
  }
  if (const nb::object forward = forward_gradients();
      !forward.is_none() && nb::isinstance(object, nb::module_::import_("torch").attr("Tensor")) &&
      !forward.attr("unpack_dual")(object).attr("tangent").is_none())
    throw InvalidInput(name.text() + " has a forward-mode gradient, and the ops have none");
  bool done = exchange(source, tensor, problem, written);
  if (!done) done = read(nb::object(source), false);
  if (!done && python_type(object) == "ndarray" && attribute_text(object, "dtype") == "bfloat16")
    done = read(object.attr("view")("uint16"), true);
  if (!done && written && import_array<nb::ndarray<nb::ro>>(source, tensor, problem, false))
    throw InvalidInput(name.text() + " is read-only, and would be written");
  if (!done)
    throw nb::type_error(fmt::format("{} must be a tensor (of NumPy, PyTorch or whatever has DLPack), not a {}",
                                     name.text(), python_type(object))
                             .c_str());
  if (!problem.empty()) throw InvalidInput(name.text() + " " + problem);
  return tensor;
}

}  // namespace noisefloor::python
