// Where a call runs, and the memory that the caller's framework gives it there.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "python/tensor.h"

namespace noisefloor::python {

struct Queue {
  Device device;
  nanobind::object like;  // whose framework is asked: the first output that was given, else the first input
  Stream stream = nullptr;
  nanobind::object number = nanobind::none();  // of the stream; None where it is the framework's current one, or none
  mutable std::optional<bool> is_now;          // whether its GPU is the current one; asked once

  // `given`: a stream, its number, or None for the framework's current one. Throws InvalidInput for one on the CPU.
  Queue(const std::string& op, const Device& device, const nanobind::object& like, nanobind::handle given);
};

// An uninitialised tensor of the framework.
nanobind::object empty_tensor(const Queue& queue, std::span<const std::int64_t> shape, DType dtype);

// Tells the framework of prepared weights that the queue's stream reads them, once for each stream.
void note_use(nanobind::handle memory, const Tensor& tensor, const Queue& queue);

// Memory for one launch. On a GPU it is the framework's, too, so that a CUDA graph may capture the call, and the memory
// is used again only behind the launch, on its stream. On the host a thread keeps the last block for its next call:
// fresh pages take longer than what is written into them.
class ScratchMemory {
 public:
  ScratchMemory(const Queue& queue, std::size_t bytes);
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  void* data() const { return data_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  struct Block {
    std::unique_ptr<void, Free> data;
    std::size_t bytes = 0;
  };
  static thread_local Block spare_;
  void* data_ = nullptr;
  Block host_;                // one of these three keeps it
  nanobind::object address_;  // of PyTorch's allocator
  nanobind::object owner_;
};

}  // namespace noisefloor::python
