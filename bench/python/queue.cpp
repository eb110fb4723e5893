#include "bench/python/queue.h"

#include <nanobind/stl/string.h>

#include <new>
#include <stdexcept>

#include "bench/python/with_python.h"
#include "kernels/core/alignment.h"
#include "kernels/core/op.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kEmpty[] = "empty", kStream[] = "stream";

}  // namespace

Queue::Queue(const std::string& op, const Device& where, const nb::object& whose, nb::handle given)
    : device(where), like(whose) {
  if (!device.gpu) {
    if (!given.is_none()) throw InvalidInput(op + ": 'stream' is for tensors on a GPU; these are on the CPU");
    return;
  }
  const std::optional<Stream> current = given.is_none() ? current_stream(like, device.index) : std::nullopt;
  if (current) {
    stream = *current;
    return;
  }
  number = framework<kStream>(like, device.index, given);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): frameworks give streams as numbers
  stream = reinterpret_cast<Stream>(nb::cast<std::uintptr_t>(number));
}

nb::object empty_tensor(const Queue& queue, std::span<const std::int64_t> shape, DType dtype) {
  if (queue.number.is_none())
    if (nb::object made = torch_empty(queue.like, shape, dtype)) return made;
  return framework<kEmpty>(queue.like, tuple_of(shape), to_string(dtype), queue.number);
}

ScratchMemory::ScratchMemory(const Queue& queue, std::size_t bytes) {
  if (bytes == 0) return;
  if (!queue.device.gpu) {
    host_.reset(std::aligned_alloc(kAllocationAlignment, aligned(bytes)));
    if (host_ == nullptr) throw std::bad_alloc();
    data_ = host_.get();
    return;
  }
  if (queue.number.is_none()) direct_ = framework_memory(queue.like, queue.device.index, bytes);
  data_ = direct_.data;
  if (data_ != nullptr) return;
  const auto extent = static_cast<std::int64_t>(bytes);
  owner_ = empty_tensor(queue, {&extent, 1}, DType::uint8);
  static const std::string call = "a call";
  const Tensor scratch = read_tensor(owner_, {call, "scratch"}, true);
  if (scratch.device != queue.device || scratch.bytes() < bytes)
    throw std::runtime_error("the framework made scratch memory of another size, or on another device, than asked for");
  data_ = scratch.data;
}

}  // namespace noisefloor::python
