// Tensors of any framework, by DLPack or the buffer protocol; NumPy's bfloat16, which neither knows, by its name.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/python/call.h"

namespace noisefloor::python {

struct Tensor {
  nanobind::ndarray<nanobind::ro> array;  // one of these two keeps the memory
  std::shared_ptr<void> managed;
  void* data = nullptr;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  Device device;

  std::size_t bytes() const;
};

// What a message calls a tensor, made when there is one: "groupnorm: 'x'", "groupnorm: output 'y'".
struct Name {
  const std::string& op;
  std::string_view argument;
  const char *before = ": '", *after = "'";
  std::string text() const { return op + before + std::string(argument) + after; }
};

// Throws nb::type_error where it is no tensor, InvalidInput where it is
// one that no op takes: another element type, strided, misaligned, read-only where it is written, needing a gradient.
Tensor read_tensor(nanobind::handle object, const Name& name, bool written);

nanobind::tuple tuple_of(const std::vector<std::int64_t>& shape);
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace noisefloor::python
