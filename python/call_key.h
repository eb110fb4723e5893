// What decides a call, as bytes: equal bytes are calls of one problem, variant and device.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "python/call.h"
#include "python/tensor.h"

namespace noisefloor::python {

// The text of a field's value, as problems have it: of True and False 1 and 0.
std::string text_of(nanobind::handle value);
std::string truth_as_number(std::string text);
// The op of that name; InvalidInput where there is none.
const Op& required(const std::string& op);
std::vector<KeyValue> pairs_of(const nanobind::dict& fields);
// fp32 of float32 and torch.float32, as frameworks call it; other texts as they are.
std::string short_dtype(std::string text);

class CallKey {
 public:
  CallKey() { bytes_.reserve(256); }  // of nearly every call
  void add(std::int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(std::string_view text);
  void add(const Tensor& tensor);
  void add(nanobind::handle value);  // by type and value; of a type that fields rarely have by its text
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// `decide` with the GIL held: other threads run meanwhile, and Python is warned once where the plan's variant is not
// the one, at the caller's line: `frames` of ours stand above it.
std::shared_ptr<const Decision> decide_in_python(const Question& question, const std::optional<Device>& device,
                                                 int frames = 1);

// The plan of a call: that of plan=, a noisefloor.Plan or the file of one; of None that of `use_plan`, or null.
std::shared_ptr<const Plan> plan_of_call(nanobind::handle plan);

// By CallKey::bytes.
struct HashBytes {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
};
template <class Value>
using ByCall = std::unordered_map<std::string, Value, HashBytes, std::equal_to<>>;

}  // namespace noisefloor::python
