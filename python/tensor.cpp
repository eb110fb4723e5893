#include "python/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "bench/platform/refusal.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kRequiresGrad[] = "requires_grad", kCurrentLevel[] = "_current_level",
               kIsGradEnabled[] = "is_grad_enabled", kForwardAd[] = "torch.autograd.forward_ad",
               kExchangeApi[] = "__dlpack_c_exchange_api__", kTensor[] = "Tensor";

constexpr std::uintptr_t kAlignment = 16;  // of the widest loads and stores

std::string python_type(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

// DLPack's exchange in C (dlpack.h, version 1.3), which needs no call of __dlpack__: as far as it is used here.
struct ExchangeApi {
  std::uint32_t major, minor;
  const ExchangeApi* older;
  void *allocate, *managed_tensor, *object;
  int (*borrowed_tensor)(void* object, nb::dlpack::dltensor* out);  // may be null; of what the object keeps
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

// What a type says of its tensors.
struct TypeFacts {
  PyObject* type = nullptr;
  const ExchangeApi* api = nullptr;  // null: it has none
  bool torch = false;
};

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

TypeFacts ask_type(nb::handle type) {
  TypeFacts facts{type.ptr()};
  const nb::object capsule = asked_often<kExchangeApi>(type);
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0)
    facts.api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (facts.api != nullptr && facts.api->major != 1) facts.api = nullptr;
  if (const nb::object torch = imported<kTorch>()) {
    const nb::object tensor = asked_often<kTensor>(torch);
    facts.torch = nb::isinstance<nb::type_object>(tensor) && PyObject_IsSubclass(type.ptr(), tensor.ptr()) == 1;
    PyErr_Clear();
  }
  return facts;
}

// Asked once for each of the last few types, which stay as long as they are known. The GIL guards the statics.
TypeFacts facts_of(nb::handle object) {
  static std::array<TypeFacts, 8> known;
  static std::size_t next = 0;
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  for (const TypeFacts& facts : known)
    if (facts.type == type) return facts;
  const TypeFacts facts = ask_type(type);
  Py_INCREF(type);
  PyObject* const forgotten = std::exchange(known[next++ % known.size()], facts).type;
  Py_XDECREF(forgotten);
  return facts;
}

// What str() says of an attribute; "" where there is none.
std::string attribute_text(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::str(""));
  return nb::cast<std::string>(nb::str(nb::handle(value)));
}

// What a framework said of the tensor `object`, whichever way it was asked: the fields of `tensor`, or the problem with
// it. Strides are in elements; null where it is contiguous. `bf16`: it was asked as what DLPack knows in its place.
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
  if (problem.empty() && given.ndim > static_cast<std::int32_t>(Shape::kMost))
    problem = fmt::format("has {} dimensions, and no op takes more than {}", given.ndim, Shape::kMost);
  if (!problem.empty()) return;
  tensor.dtype = *type;
  tensor.data = static_cast<char*>(given.data) + given.byte_offset;
  const auto rank = static_cast<std::size_t>(given.ndim);
  tensor.shape = Shape({given.shape, rank});
  if (std::ranges::count(tensor.shape, 0) > 0) return;  // which is refused by its shape
  std::int64_t contiguous = 1;
  bool strided = false;
  for (std::size_t i = rank; given.strides != nullptr && i-- > 0;) {
    strided = strided || (tensor.shape[i] > 1 && given.strides[i] != contiguous);
    contiguous *= tensor.shape[i];
  }
  if (strided)
    problem = fmt::format("must be contiguous in row-major order; its shape is {}, its strides are {}{}",
                          shape_text(tensor.shape), shape_text({given.strides, rank}),
                          rank > 2 && tensor.shape[1] > 1 && given.strides[1] == 1
                              ? "; axis 1 lies last in memory: permute the tensor so that it is the last"
                              : "");
  else if (given.data == nullptr)
    problem = "has no memory of its own";
}

// Whether the object's framework has the exchange in C, and lent the tensor. What is written is lent by PyTorch alone,
// which has none that may not be: a loan does not say.
bool exchange(nb::handle object, const TypeFacts& facts, Tensor& tensor, std::string& problem, bool written) {
  if (facts.api == nullptr || facts.api->borrowed_tensor == nullptr || (written && !facts.torch)) return false;
  nb::dlpack::dltensor borrowed{};
  if (facts.api->borrowed_tensor(object.ptr(), &borrowed) == 0) {
    take(borrowed, object, false, tensor, problem);
    return true;
  }
  PyErr_Clear();
  return false;
}

template <class Array>
bool import_array(nb::handle source, nb::handle object, Tensor& tensor, std::string& problem, bool bf16) {
  Array array;
  if (!nb::try_cast<Array>(source, array)) return false;
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
  tensor.keeper = std::make_shared<Array>(std::move(array));
  return true;
}

// Whether what PyTorch gave is an offset into no storage: an address that no allocator gives, so that others need not
// be asked.
bool lacks_storage(nb::handle object, const Tensor& tensor) {
  constexpr std::uintptr_t kLowest = std::uintptr_t{1} << 32;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) >= kLowest || std::ranges::count(tensor.shape, 0) > 0) return false;
  try {
    return nb::cast<std::uintptr_t>(object.attr("untyped_storage")().attr("data_ptr")()) == 0;
  } catch (nb::python_error&) {  // fakes of tensors refuse to say
    return true;
  }
}

// The capsule of an object's __dlpack__, marked as used once it is taken. nanobind marks none but those that it was
// given, and reads freed memory where an object hands out the same one again.
nb::object capsule_of(nb::handle object) {
  if (PyCapsule_CheckExact(object.ptr()) || !nb::hasattr(object, "__dlpack__")) return nb::borrow(object);
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
  const char* const name = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
  return name != nullptr && std::string_view(name).starts_with("used_dltensor");
}

// Why `source`, which is the tensor `object` without its gradient, gave no memory; "" of what is no tensor.
std::string why_not_given(nb::handle object, nb::handle source) {
  if (!nb::hasattr(object, "__dlpack__")) return "";
  std::string facts;
  for (const char* const name : {"dtype", "layout", "device"})
    if (const std::string text = attribute_text(object, name); !text.empty())
      facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", name, text);
  std::string reason = "its DLPack capsule cannot be taken";
  try {
    if (nb::hasattr(source, "__dlpack__")) source.attr("__dlpack__")();
  } catch (const nb::python_error& error) {
    reason = nb::cast<std::string>(nb::str(error.value()));
  }
  return fmt::format("{} ({})", reason, facts);
}

}  // namespace

bool is_torch(nb::handle tensor) {
  return facts_of(tensor).torch;
}

std::optional<Stream> current_stream(nb::handle like, int gpu) {
  const TypeFacts facts = facts_of(like);
  void* stream = nullptr;
  if (facts.api == nullptr || facts.api->current_stream == nullptr) return std::nullopt;
  if (facts.api->current_stream(nb::device::cuda::value, gpu, &stream) == 0) return static_cast<Stream>(stream);
  PyErr_Clear();
  return std::nullopt;
}

std::size_t Tensor::bytes() const {
  std::size_t count = size_of(dtype);
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

bool Tensor::overlaps(const Tensor& other) const {
  const auto *a = static_cast<const char*>(data), *b = static_cast<const char*>(other.data);
  return std::less<>()(a, b + other.bytes()) && std::less<>()(b, a + bytes());
}

nb::tuple tuple_of(std::span<const std::int64_t> shape) {
  nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!extents) nb::raise_python_error();
  for (std::size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(i), nb::int_(shape[i]).release().ptr());
  return nb::borrow<nb::tuple>(extents);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Gradients gradients_now() {
  Gradients now;
  const nb::object torch = imported<kTorch>();
  const nb::object recorded = torch ? asked_often<kIsGradEnabled>(torch) : nb::none();
  if (recorded.is_none()) return now;
  now.recorded = recorded().is(nb::handle(Py_True));
  const nb::object forward_ad = imported<kForwardAd>();
  const nb::object level = forward_ad ? asked_often<kCurrentLevel>(forward_ad) : nb::none();
  if (nb::isinstance<nb::int_>(level) && nb::cast<int>(level) >= 0) now.forward = forward_ad;
  return now;
}

void note_write(nb::handle tensor) {
  static PyObject* increment = nullptr;  // the GIL guards it
  if (increment == nullptr)
    increment = nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version")).release().ptr();
  PyObject* const given[] = {tensor.ptr()};
  const nb::object done = nb::steal(PyObject_Vectorcall(increment, given, 1, nullptr));
  if (done) return;
  nb::python_error error;
  if (!nb::cast<bool>(tensor.attr("is_inference")())) throw error;  // which has no version
}

namespace {

bool is_misaligned(const Tensor& tensor) {  // an empty one is refused by its shape
  return reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0 && std::ranges::count(tensor.shape, 0) == 0;
}

Tensor read_at_any_address(nb::handle object, const Name& name, bool written, const Gradients& gradients) {
  Tensor tensor;
  std::string problem;
  nb::object source = nb::borrow(object);
  const auto read = [&](nb::handle given, bool bf16) {
    source = capsule_of(given);
    if (is_used(source))
      throw InvalidInput(name.text() + " is a DLPack capsule that was taken before; each serves once");
    return written ? import_array<nb::ndarray<>>(source, object, tensor, problem, bf16)
                   : import_array<nb::ndarray<nb::ro>>(source, object, tensor, problem, bf16);
  };
  const TypeFacts facts = facts_of(object);
  const auto requires_gradient = [&] { return asked_often<kRequiresGrad>(object).is(nb::handle(Py_True)); };
  if (gradients.recorded && requires_gradient())
    throw InvalidInput(name.text() + " requires a gradient, and the ops have none: call them under torch.no_grad()");
  if (facts.torch && gradients.forward && !gradients.forward.attr("unpack_dual")(object).attr("tangent").is_none())
    throw InvalidInput(name.text() + " has a forward-mode gradient, and the ops have none");
  bool done = exchange(object, facts, tensor, problem, written);
  if (done && problem.empty() && facts.torch && lacks_storage(object, tensor)) problem = "has no memory of its own";
  if (!done && requires_gradient()) source = source.attr("detach")();
  if (!done) done = read(nb::object(source), false);
  if (!done && python_type(object) == "ndarray" && attribute_text(object, "dtype") == "bfloat16")
    done = read(object.attr("view")("uint16"), true);
  if (!done && written && import_array<nb::ndarray<nb::ro>>(source, object, tensor, problem, false))
    throw InvalidInput(name.text() + " is read-only, and would be written");
  if (const std::string reason = done ? "" : why_not_given(object, source); !reason.empty())
    throw refusal("{} cannot be read: {}", name.text(), reason);
  if (!done)
    throw nb::type_error(fmt::format("{} must be a tensor (of NumPy, PyTorch or whatever has DLPack), not a {}",
                                     name.text(), python_type(object))
                             .c_str());
  if (!problem.empty()) throw InvalidInput(name.text() + " " + problem);
  tensor.torch = facts.torch;
  return tensor;
}

}  // namespace

Tensor read_tensor(nb::handle object, const Name& name, bool written, const Gradients& gradients) {
  Tensor tensor = read_at_any_address(object, name, written, gradients);
  if (is_misaligned(tensor))
    throw refusal("{} must begin at a multiple of {} bytes, which a view into another tensor may not; copy it",
                  name.text(), kAlignment);
  return tensor;
}

Tensor read_or_clone(nb::handle object, const Name& name, const Gradients& gradients) {
  Tensor tensor = read_at_any_address(object, name, false, gradients);
  if (!is_misaligned(tensor)) return tensor;
  const nb::object clone = object.attr("clone")();
  tensor = read_tensor(clone, name, false, gradients);
  tensor.keeper = std::make_shared<nb::object>(clone);
  return tensor;
}

}  // namespace noisefloor::python
