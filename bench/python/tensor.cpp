#include "bench/python/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

bool is_true(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::none());
  return nb::isinstance<nb::bool_>(value) && nb::cast<bool>(value);
}

std::string python_type(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

// What str() says of an attribute; "" where there is none.
std::string attribute_text(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::str(""));
  return nb::cast<std::string>(nb::str(nb::handle(value)));
}

template <class Array>
bool import_array(nb::handle object, Tensor& tensor, std::string& problem, bool bf16) {
  Array array;
  if (!nb::try_cast<Array>(object, array)) return false;
  const auto type = bf16 ? std::optional(DType::bf16) : dtype_of(array.dtype());
  const int device = array.device_type();
  if (!type) {
    problem = "has an element type that no op takes: " + attribute_text(object, "dtype");
  } else if (device == nb::device::cpu::value || device == nb::device::cuda_host::value) {
    tensor.device = {};
  } else if (device == nb::device::cuda::value || device == nb::device::cuda_managed::value) {
    tensor.device = {true, array.device_id()};
  } else {
    problem = fmt::format("is on a device that noisefloor does not know (DLPack's number {})", device);
  }
  if (!problem.empty()) return true;
  tensor.dtype = *type;
  tensor.data = const_cast<void*>(static_cast<const void*>(array.data()));
  std::int64_t contiguous = 1;
  bool strided = false, empty = false;
  tensor.shape.resize(array.ndim());
  std::vector<std::int64_t> strides(array.ndim());
  for (std::size_t i = array.ndim(); i-- > 0;) {
    tensor.shape[i] = static_cast<std::int64_t>(array.shape(i));
    strides[i] = array.stride(i);
    strided = strided || (tensor.shape[i] > 1 && strides[i] != contiguous);
    empty = empty || tensor.shape[i] == 0;
    contiguous *= tensor.shape[i];
  }
  if (empty) return true;  // which is refused by its shape
  if (strided)
    problem = fmt::format("must be contiguous in row-major order; its shape is {}, its strides are {}",
                          shape_text(tensor.shape), shape_text(strides));
  else if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0)
    problem = fmt::format("must begin at a multiple of {} bytes, which a view into another tensor may not; copy it",
                          kAlignment);
  tensor.array = nb::ndarray<nb::ro>(array);
  return true;
}

}  // namespace

std::size_t Tensor::bytes() const {
  std::size_t count = size_of(dtype);
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Tensor read_tensor(nb::handle object, const std::string& what, bool written) {
  Tensor tensor;
  std::string problem;
  const auto read = [&](nb::handle source, bool bf16) {
    return written ? import_array<nb::ndarray<>>(source, tensor, problem, bf16)
                   : import_array<nb::ndarray<nb::ro>>(source, tensor, problem, bf16);
  };
  nb::object source = nb::borrow(object);
  if (is_true(object, "requires_grad")) {
    if (nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")()))
      throw InvalidInput(what + " requires a gradient, and the ops have none: call them under torch.no_grad()");
    source = source.attr("detach")();
  }
  bool done = read(source, false);
  if (!done && python_type(object) == "ndarray" && attribute_text(object, "dtype") == "bfloat16")
    done = read(object.attr("view")("uint16"), true);
  if (!done && written && import_array<nb::ndarray<nb::ro>>(object, tensor, problem, false))
    throw InvalidInput(what + " is read-only, and would be written");
  if (!done)
    throw nb::type_error(fmt::format("{} must be a tensor (of NumPy, PyTorch or whatever has DLPack), not a {}", what,
                                     python_type(object))
                             .c_str());
  if (!problem.empty()) throw InvalidInput(what + " " + problem);
  return tensor;
}

}  // namespace noisefloor::python
