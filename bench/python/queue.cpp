#include "bench/python/queue.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "bench/python/device.h"
#include "bench/python/with_python.h"
#include "kernels/core/alignment.h"
#include "kernels/core/op.h"

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

// Functions of PyTorch's allocator, without a tensor around the memory, which takes longer to make; none where this
// PyTorch has none.
struct Allocator {
  nb::object allocate, free;
};
const Allocator& torch_allocator() {
  static const Allocator* found = nullptr;  // the GIL guards it
  if (found == nullptr) {
    const nb::object c = nb::module_::import_("torch").attr("_C");
    found = new Allocator{nb::getattr(c, "_cuda_cudaCachingAllocator_raw_alloc", nb::none()),
                          nb::getattr(c, "_cuda_cudaCachingAllocator_raw_delete", nb::none())};
  }
  return *found;
}

nb::object called(const nb::object& function, const nb::object& one, const nb::object& other = {}) {
  PyObject* const given[] = {one.ptr(), other.ptr()};
  return nb::steal(outlive_python([&] { return PyObject_Vectorcall(function.ptr(), given, other ? 2 : 1, nullptr); }));
}

}  // namespace

void note_use(nb::handle memory, const Tensor& tensor, const Queue& queue) {
  if (!queue.device.gpu || !tensor.torch) return;                      // PyTorch's allocator alone must be told
  static auto* const known = new std::unordered_map<PyObject*, Told>;  // the GIL guards it; Python may end before it
  Told& told = (*known)[memory.ptr()];
  const nb::object alive = told.tensor == nullptr ? nb::none() : nb::steal(PyObject_CallNoArgs(told.tensor));
  if (!alive.is(memory) || told.data != tensor.data) {
    Py_XDECREF(told.tensor);
    told = {PyWeakref_NewRef(memory.ptr(), nullptr), tensor.data, {}};
    if (told.tensor == nullptr) nb::raise_python_error();
  }
  if (std::ranges::count(told.streams, queue.stream) > 0) return;
  if (known->size() > kMostTold) {
    for (auto& [object, one] : *known) Py_XDECREF(one.tensor);
    known->clear();
  }
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
    if (nb::object made = torch_empty(queue.like, shape, dtype)) return made;
  return framework<kMakeEmpty>(queue.like, tuple_of(shape), to_string(dtype), queue.number);
}

ScratchMemory::ScratchMemory(const Queue& queue, std::size_t bytes) {
  if (bytes == 0) return;
  if (!queue.device.gpu) {
    host_.reset(std::aligned_alloc(kAllocationAlignment, aligned(bytes)));
    if (host_ == nullptr) throw std::bad_alloc();
    data_ = host_.get();
    return;
  }
  if (queue.number.is_none() && is_torch(queue.like) && is_current(queue.device)) {
    if (const auto& [allocate, free] = torch_allocator(); !allocate.is_none() && !free.is_none()) {
      address_ = called(allocate, nb::int_(bytes), nb::int_(reinterpret_cast<std::uintptr_t>(queue.stream)));
      if (!address_) nb::raise_python_error();
      data_ = PyLong_AsVoidPtr(address_.ptr());
      return;
    }
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

ScratchMemory::~ScratchMemory() {
  if (address_ && !called(torch_allocator().free, address_)) PyErr_Clear();
}

}  // namespace noisefloor::python
