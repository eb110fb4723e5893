// DLPack: what frameworks say of their tensors, by their exchange in C where they have one.
#pragma once

#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "python/tensor.h"

namespace noisefloor::python {

struct ExchangeApi;  // DLPack's exchange in C

// What a type says of its tensors.
struct TypeFacts {
  PyObject* type = nullptr;
  const ExchangeApi* api = nullptr;  // null: it has none
  bool torch = false;
};

TypeFacts facts_of(nanobind::handle object);

// What a framework said of the tensor `object`, whichever way it was asked: the fields of `tensor`, or the problem with
// it. Strides are in elements; null where it is contiguous. `bf16`: it was asked as what DLPack knows in its place.
void take(const nanobind::dlpack::dltensor& given, nanobind::handle object, bool bf16, Tensor& tensor,
          std::string& problem);

// Whether the object's framework has the exchange in C, and lent the tensor. What is written is lent by PyTorch alone,
// which has none that may not be: a loan does not say.
bool exchange(nanobind::handle object, const TypeFacts& facts, Tensor& tensor, std::string& problem, bool written);

// What str() says of an attribute; "" where there is none.
std::string attribute_text(nanobind::handle object, const char* name);

bool is_torch(nanobind::handle tensor);  // of PyTorch

// By the framework of `like`, without a call into Python, where it has DLPack's exchange in C; else none.
std::optional<Stream> current_stream(nanobind::handle like, int gpu);

}  // namespace noisefloor::python
