#include "python/queue.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/op.h"
#include "python/exchange.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kMakeEmpty[] = "empty", kStream[] = "stream", kUsed[] = "used";

// Which streams the framework was told of, of one tensor; a weak reference, as others may come to lie at its address.
struct Told {
  PyObject* tensor = nullptr;
  const void* data = nullptr;
  std::vector<Stream> streams;
};
constexpr std::size_t kMostTold = 4096;  // to be told again costs little

}  // namespace

void note_use(nb::handle memory, const Tensor& tensor, const Queue& queue) {
  if (!queue.device.gpu || !tensor.torch) return;                      // PyTorch's allocator alone must be told
  static auto* const known = new std::unordered_map<PyObject*, Told>;  // the GIL guards it; Python may end before it
  if (known->size() > kMostTold) {
    for (auto& [object, one] : *known) Py_XDECREF(one.tensor);
    known->clear();
  }
  PyObject* const reference = PyWeakref_NewRef(memory.ptr(), nullptr);  // first: to make one may run other code
  if (reference == nullptr) nb::raise_python_error();
  Told& told = (*known)[memory.ptr()];
  const nb::object alive = told.tensor == nullptr ? nb::none() : nb::steal(PyObject_CallNoArgs(told.tensor));
  Py_XDECREF(std::exchange(told.tensor, reference));
  if (!alive.is(memory) || told.data != tensor.data) told.streams.clear();
  told.data = tensor.data;
  if (std::ranges::count(told.streams, queue.stream) > 0) return;
  framework<kUsed>(memory, reinterpret_cast<std::uintptr_t>(queue.stream));
  // Looked up anew: other threads ran. Where they emptied it, it is told again.
  if (const auto found = known->find(memory.ptr()); found != known->end())
    found->second.streams.push_back(queue.stream);
}

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
    if (nb::object made = torch_empty(queue, shape, dtype)) return made;
  return framework<kMakeEmpty>(queue.like, tuple_of(shape), to_string(dtype), queue.number);
}

thread_local ScratchMemory::Block ScratchMemory::spare_;

ScratchMemory::ScratchMemory(const Queue& queue, std::size_t bytes) {
  if (bytes == 0) return;
  if (!queue.device.gpu) {
    host_ = std::exchange(spare_, {});
    if (host_.bytes < bytes) {
      host_ = {};
      host_ = {std::unique_ptr<void, Free>(std::aligned_alloc(kAllocationAlignment, aligned(bytes))), bytes};
    }
    data_ = host_.data.get();
    if (data_ == nullptr) throw std::bad_alloc();
    return;
  }
  address_ = torch_memory(queue, bytes);
  if (address_) {
    data_ = PyLong_AsVoidPtr(address_.ptr());
    return;
  }
  const auto extent = static_cast<std::int64_t>(bytes);
  owner_ = empty_tensor(queue, {&extent, 1}, DType::uint8);
  static const std::string call = "a call";
  const Tensor scratch = read_tensor(owner_, {call, "scratch"}, true);
  if (scratch.device != queue.device || scratch.bytes() < bytes)
    throw std::runtime_error("the framework made scratch memory of another size, or on another device, than asked for");
  data_ = scratch.data;
}

ScratchMemory::~ScratchMemory() {
  if (address_) free_torch_memory(address_);
  if (host_.bytes > spare_.bytes) spare_ = std::move(host_);
}

}  // namespace noisefloor::python
