#include "python/queue.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/op.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kStream[] = "stream", kUsed[] = "used", kDevice[] = "device", kEmpty[] = "empty";

// Which streams the framework was told of, of one tensor; a weak reference, as others may come to lie at its address.
struct Told {
  PyObject* tensor = nullptr;
  const void* data = nullptr;
  std::vector<Stream> streams;
};
constexpr std::size_t kMostTold = 4096;  // to be told again costs little

// ---- Memory of PyTorch's, by its functions in C where it has them: they take half as long as those it documents.

// None of what this PyTorch does not have, and no C++ object ends after Python.
struct Functions {
  nb::object empty_strided, allocate, free, current_gpu;
};
const Functions& functions() {
  static const Functions* found = nullptr;  // the GIL guards it
  if (found == nullptr) {
    const nb::object c = nb::module_::import_("torch").attr("_C");
    const auto of = [](nb::handle object, const char* name) {
      return object.is_none() ? nb::none() : nb::getattr(object, name, nb::none());
    };
    found = new Functions{of(of(of(c, "_dynamo"), "guards"), "_empty_strided_cuda"),
                          of(c, "_cuda_cudaCachingAllocator_raw_alloc"), of(c, "_cuda_cudaCachingAllocator_raw_delete"),
                          of(c, "_cuda_getDevice")};
  }
  return *found;
}

// Null, and no error set, where it fails.
template <class... Arguments>
nb::object called(const nb::object& function, const Arguments&... arguments) {
  PyObject* const given[] = {nullptr, arguments.ptr()...};
  PyObject* const result =
      outlive_python([&] { return PyObject_Vectorcall(function.ptr(), given + 1, sizeof...(arguments), nullptr); });
  if (result == nullptr) PyErr_Clear();
  return nb::steal(result);
}

// Whether memory of the current stream of the current GPU is the queue's: the GPU has to be the current one both for
// CUDA and for PyTorch, which may put off to change it.
bool is_queue_of_now(const Queue& queue) {
  if (!queue.number.is_none() || !queue.device.gpu) return false;
  if (!queue.is_now) {
    const nb::object& ask = functions().current_gpu;
    const nb::object index = ask.is_none() || !is_current(queue.device) ? nb::object() : called(ask);
    queue.is_now = index && nb::isinstance<nb::int_>(index) && nb::cast<int>(index) == queue.device.index;
  }
  return *queue.is_now;
}

PyObject* torch_dtype(DType dtype) {
  static std::array<PyObject*, 8> known{};  // the GIL guards it
  PyObject*& type = known[static_cast<std::size_t>(dtype)];
  if (type == nullptr)
    type = nb::object(nb::module_::import_("noisefloor._frameworks").attr("torch_dtype")(to_string(dtype)))
               .release()
               .ptr();
  return type;
}

// Row-major.
nb::tuple strides_of(std::span<const std::int64_t> shape) {
  std::array<std::int64_t, Shape::kMost> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  return tuple_of({strides.data(), shape.size()});
}

// PyTorch's on its current stream; null where it is another framework's.
nb::object torch_empty(const Queue& queue, std::span<const std::int64_t> shape, DType dtype) {
  if (!is_torch(queue.like)) return {};
  const nb::tuple size = tuple_of(shape);
  PyObject* const type = torch_dtype(dtype);
  if (is_queue_of_now(queue) && !functions().empty_strided.is_none() && shape.size() <= Shape::kMost)
    if (nb::object made = called(functions().empty_strided, size, strides_of(shape), nb::handle(type))) return made;
  // Also where that failed: torch.empty says why. Asked each time: others put a function of theirs in its place for a
  // while. Named: PyTorch takes twice as long to tell a tuple from numbers.
  static PyObject* names = nullptr;  // the GIL guards it
  if (names == nullptr) names = nb::make_tuple("size", "dtype", "device").release().ptr();
  const nb::object torch = imported<kTorch>(), device = asked_often<kDevice>(queue.like);
  if (!torch) return {};
  const nb::object empty = asked_often<kEmpty>(torch);
  PyObject* const given[] = {size.ptr(), type, device.ptr()};
  nb::object made = nb::steal(PyObject_Vectorcall(empty.ptr(), given, 0, names));
  if (!made) nb::raise_python_error();
  return made;
}

void free_torch_memory(const nb::object& address) {
  (void)called(functions().free, address);
}

// An address of PyTorch's allocator, without a tensor around it; null where it gives none, as others' need not.
nb::object torch_memory(const Queue& queue, std::size_t bytes) {
  if (!is_torch(queue.like) || !is_queue_of_now(queue)) return {};
  const Functions& torch = functions();
  if (torch.allocate.is_none() || torch.free.is_none()) return {};
  nb::object made = called(torch.allocate, nb::int_(bytes), nb::int_(reinterpret_cast<std::uintptr_t>(queue.stream)));
  if (!made) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(PyLong_AsVoidPtr(made.ptr()));
  if (address != 0 && address % kAllocationAlignment == 0) return made;
  PyErr_Clear();
  if (address != 0) free_torch_memory(made);
  return {};
}

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
  return framework<kEmpty>(queue.like, tuple_of(shape), to_string(dtype), queue.number);
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
