#include "python/exchange.h"

#include <fmt/format.h>

#include <utility>

#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {

// DLPack's exchange in C (dlpack.h, version 1.3), which needs no call of __dlpack__: as far as it is used here.
struct ExchangeApi {
  std::uint32_t major, minor;
  const ExchangeApi* older;
  void *allocate, *managed_tensor, *object;
  int (*borrowed_tensor)(void* object, nb::dlpack::dltensor* out);  // may be null; of what the object keeps
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

namespace {

constexpr char kExchangeApi[] = "__dlpack_c_exchange_api__", kTensor[] = "Tensor";

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

}  // namespace

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

std::string attribute_text(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::str(""));
  return nb::cast<std::string>(nb::str(nb::handle(value)));
}

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

}  // namespace noisefloor::python
