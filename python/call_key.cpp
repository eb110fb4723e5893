#include "python/call_key.h"

#include <nanobind/stl/string.h>

#include <bit>

#include "kernels/catalogue.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

// What stands before a value, so that none reads as one of another type. As text 1, 1.0 and True differ.
enum class Tag : char { none, text, integer, real, no, yes, other, tensor };

}  // namespace

std::string truth_as_number(std::string text) {
  return text == "True" ? "1" : text == "False" ? "0" : text;
}

std::string short_dtype(std::string text) {
  constexpr std::string_view kPrefix = "torch.";
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"float32", "fp32"}, {"float16", "fp16"}, {"bfloat16", "bf16"}, {"float64", "fp64"}};
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  for (const auto& [name, short_name] : kNames)
    if (text == name) return short_name;
  return text;
}

std::string text_of(nb::handle value) {
  return truth_as_number(nb::cast<std::string>(nb::str(value)));
}

const Op& required(const std::string& op) {
  if (const Op* found = find_op(op)) return *found;
  throw InvalidInput("there is no op '" + op + "'");
}

std::vector<KeyValue> pairs_of(const nb::dict& fields) {
  std::vector<KeyValue> pairs;
  for (const auto& [key, value] : fields) pairs.push_back({nb::cast<std::string>(key), nb::cast<std::string>(value)});
  return pairs;
}

std::shared_ptr<const Decision> decide_in_python(const Question& question, const std::optional<Device>& device,
                                                 int frames) {
  const std::shared_ptr<const Decision> decision = [&] {
    const WithoutGil released;
    return decide(question, device);
  }();
  if (!decision->warning.empty() && PyErr_WarnEx(PyExc_UserWarning, decision->warning.c_str(), 1 + frames) != 0)
    nb::raise_python_error();
  return decision;
}

void CallKey::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  bytes_ += text;
}

void CallKey::add(const Tensor& tensor) {
  bytes_ += static_cast<char>(Tag::tensor);
  bytes_ += static_cast<char>(tensor.dtype);
  bytes_ += static_cast<char>(tensor.shape.rank());
  for (const std::int64_t extent : tensor.shape) add(extent);
}

void CallKey::add(nb::handle value) {
  const auto tag = [&](Tag of) { bytes_ += static_cast<char>(of); };
  if (value.is_none()) return tag(Tag::none);
  if (value.is(nb::handle(Py_True))) return tag(Tag::yes);
  if (value.is(nb::handle(Py_False))) return tag(Tag::no);
  if (PyUnicode_CheckExact(value.ptr())) {
    Py_ssize_t size = 0;
    if (const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size); text != nullptr) {
      tag(Tag::text);
      return add(std::string_view(text, static_cast<std::size_t>(size)));
    }
    PyErr_Clear();
  }
  if (PyLong_CheckExact(value.ptr())) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) {
      tag(Tag::integer);
      return add(static_cast<std::int64_t>(number));
    }
  }
  if (PyFloat_CheckExact(value.ptr())) {
    tag(Tag::real);
    return add(std::bit_cast<std::int64_t>(PyFloat_AsDouble(value.ptr())));
  }
  tag(Tag::other);
  add(std::string_view(text_of(value)));
}

}  // namespace noisefloor::python
