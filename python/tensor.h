// Tensors of any framework, by DLPack or the buffer protocol; NumPy's bfloat16, which neither knows, by its name.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "python/call.h"

namespace noisefloor::python {

// Extents, outermost first, without memory of their own: each call has several.
class Shape {
 public:
  static constexpr std::size_t kMost = 8;  // no op has as many
  Shape() = default;
  explicit Shape(std::span<const std::int64_t> extents) : rank_(extents.size()) {
    std::ranges::copy(extents, extents_.begin());
  }
  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return begin() + rank_; }

 private:
  std::array<std::int64_t, kMost> extents_{};
  std::size_t rank_ = 0;
};

struct Tensor {
  std::shared_ptr<void> keeper;  // of the memory; null where the object keeps it that this was read from
  void* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;
  Device device;
  bool torch = false;  // of PyTorch

  std::size_t bytes() const;
  bool overlaps(const Tensor& other) const;  // in memory
};

// What a message calls a tensor, made when there is one: "groupnorm: 'x'", "groupnorm: output 'y'".
struct Name {
  const std::string& op;
  std::string_view argument;
  const char *before = ": '", *after = "'";
  std::string text() const { return op + before + std::string(argument) + after; }
};

// Which of PyTorch's gradients are recorded; none of a tensor that the call itself had made.
struct Gradients {
  bool recorded = false;
  nanobind::object forward;  // its forward_ad, while it has a level open
};
Gradients gradients_now();  // asked once a call

// It is good as long as the object is. Throws nb::type_error where it is no tensor, InvalidInput where it is
// one that no op takes: another element type, strided, misaligned, read-only where it is written, needing a gradient.
Tensor read_tensor(nanobind::handle object, const Name& name, bool written, const Gradients& gradients = {});

// The same of PyTorch's, and a misaligned one by its clone.
Tensor read_or_clone(nanobind::handle object, const Name& name, const Gradients& gradients);

bool is_torch(nanobind::handle tensor);  // of PyTorch

// By the framework of `like`, without a call into Python, where it has DLPack's exchange in C; else none.
std::optional<Stream> current_stream(nanobind::handle like, int gpu);

// Tells PyTorch's autograd, which refuses a backward pass that would read what was there before.
void note_write(nanobind::handle tensor);

nanobind::tuple tuple_of(std::span<const std::int64_t> shape);
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace noisefloor::python
