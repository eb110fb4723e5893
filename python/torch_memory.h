// Memory of PyTorch's, by its functions in C where it has them: they take half as long as those it documents.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "python/queue.h"

namespace noisefloor::python {

// An uninitialised tensor on the queue's device, on the current stream of PyTorch; null where the caller's framework is
// another one.
nanobind::object torch_empty(const Queue& queue, std::span<const std::int64_t> shape, DType dtype);

// An address of its allocator, without a tensor around it; null where it gives none, as allocators of others need not.
nanobind::object torch_memory(const Queue& queue, std::size_t bytes);
void free_torch_memory(const nanobind::object& address);

}  // namespace noisefloor::python
