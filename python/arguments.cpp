#include "python/arguments.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bench/platform/refusal.h"
#include "kernels/catalogue.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

std::string truth_as_number(std::string text) {
  return text == "True" ? "1" : text == "False" ? "0" : text;
}

// The text of a field's value, as problems have it: of True and False 1 and 0.
std::string text_of(nb::handle value) {
  return truth_as_number(nb::cast<std::string>(nb::str(value)));
}

// What stands before a value, so that none reads as one of another type. As text 1, 1.0 and True differ.
enum class Tag : char { none, text, integer, real, no, yes, other, tensor };

class CallKey {
 public:
  CallKey() { bytes_.reserve(256); }  // of nearly every call
  void add(std::int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(std::string_view text);
  void add(const Tensor& tensor);
  void add(nb::handle value);  // by type and value; of a type that fields rarely have by its text
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

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

}  // namespace

const Op& required(const std::string& op) {
  if (const Op* found = find_op(op)) return *found;
  throw InvalidInput("there is no op '" + op + "'");
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

Arguments::Arguments(const std::string& op, std::vector<std::string> tensors, std::vector<std::string> fields)
    : op_(&required(op)), tensors_(std::move(tensors)), fields_(std::move(fields)) {
  for (const std::string& tensor : tensors_) {
    shared_.push_back(std::ranges::count(op_->fields, tensor, &FieldInfo::name) > 0);
    updated_.push_back(std::ranges::any_of(
        op_->table.rules, [&](const TensorRule& rule) { return rule.name == tensor && rule.role == Role::inout; }));
  }
}

Arguments::Items Arguments::items(const nb::tuple& tuple, const std::vector<std::string>& names) const {
  if (tuple.size() != names.size())
    throw nb::type_error(fmt::format("{}: {} arguments, not {}", op_->name, names.size(), tuple.size()).c_str());
  Items all;
  for (const nb::handle one : tuple) all.push_back(one.ptr());
  return all;
}

std::vector<Arguments::Input> Arguments::read_inputs(std::span<PyObject* const> tensors, Taken taken,
                                                     const Gradients& gradients, nb::object& like) const {
  std::vector<Input> inputs;
  const Input* first = nullptr;
  inputs.reserve(tensors.size() - static_cast<std::size_t>(std::ranges::count(tensors, Py_None)));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const nb::handle given = tensors[i];
    if (given.is_none() || is_field(i, given)) continue;
    if (taken == Taken::shapes_too && (nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given))) {
      std::vector<std::int64_t> shape;
      if (!nb::try_cast(given, shape) || shape.size() > Shape::kMost)
        throw nb::type_error(
            fmt::format("{} must be a tensor, or a shape of integers, at most {}", named(tensors_[i]), Shape::kMost)
                .c_str());
      inputs.emplace_back().shape = Shape(shape);
      inputs.back().only_shape = true;
    } else {
      inputs.push_back({taken == Taken::at_any_address
                            ? read_or_clone(given, name(tensors_[i]), gradients)
                            : read_tensor(given, name(tensors_[i]), updated_[i], gradients)});
      if (!like) like = nb::borrow(given);
      if (first == nullptr) first = &inputs.back();
      if (inputs.back().device != first->device)
        throw refusal("{} is on {}, '{}' on {}; all tensors must be on one device", named(tensors_[i]),
                      to_string(inputs.back().device), tensors_[first->place], to_string(first->device));
    }
    inputs.back().place = i;
  }
  if (inputs.empty()) throw nb::type_error((op_->name + " needs tensors: " + tensors_.front() + ", ...").c_str());
  return inputs;
}

std::vector<Arguments::Output> Arguments::read_outputs(nb::handle out, const Gradients& gradients,
                                                       nb::object& like) const {
  std::vector<Output> outputs;
  bool first = true;
  const auto read = [&](nb::handle one) {
    const std::string number = std::to_string(outputs.size());
    Output& output = outputs.emplace_back(Output{nb::borrow(one), std::nullopt});
    if (one.is_none()) return;
    output.tensor = read_tensor(one, {op_->name, number, ": output ", ""}, true, gradients);
    if (std::exchange(first, false)) like = output.object;
  };
  if (nb::isinstance<nb::tuple>(out) || nb::isinstance<nb::list>(out))
    for (nb::handle one : out) read(one);
  else if (!out.is_none())
    read(out);
  return outputs;
}

Tensor Arguments::read_prepared(nb::handle prepared, const Given& given, const Decision& decision,
                                const Queue& queue) const {
  constexpr std::uintptr_t kAlignment = 64;  // of the widest vectors
  Tensor memory = read_tensor(prepared, name("prepared"), false);
  if (given.variant.is_none()) throw InvalidInput(named("prepared") + " is of one variant: give its name as variant=");
  if (memory.device != queue.device)
    throw refusal("{} is on {}, the tensors are on {}", named("prepared"), to_string(memory.device),
                  to_string(queue.device));
  if (memory.dtype != DType::uint8 || memory.bytes() != decision.prepared_bytes)
    throw refusal(
        "{} has {} bytes, and variant '{}' in {} needs {} uint8: it was prepared for other weights, another dtype or "
        "another variant",
        named("prepared"), memory.bytes(), decision.variant->name, to_string(decision.dtype), decision.prepared_bytes);
  if (reinterpret_cast<std::uintptr_t>(memory.data) % kAlignment != 0)
    throw refusal("{} must begin at a multiple of {} bytes", named("prepared"), kAlignment);
  note_use(prepared, memory, queue);
  return memory;
}

std::vector<void*> Arguments::pointers_of(const Decision& decision, const std::vector<Input>& inputs) const {
  std::vector<void*> pointers(decision.specs.size());
  for (std::size_t k = 0; k < pointers.size(); ++k)
    for (const Input& input : inputs)
      if (tensors_[input.place] == decision.specs[k].name) pointers[k] = input.data;
  return pointers;
}

std::vector<KeyValue> Arguments::split_fields(const std::string& text) const {
  try {
    return split_problem_text(text);
  } catch (const InvalidInput& error) {
    throw refusal("{} '{}': {}", named("fields"), text, error.what());
  }
}

Question Arguments::ask(const Given& given) const {
  Question question;
  question.op = op_;
  for (std::size_t i = 0; i < given.fields.values.size(); ++i)
    if (given.fields.values[i] != Py_None) question.fields.push_back({fields_[i], text_of(given.fields.values[i])});
  if (!given.fields.text.is_none())
    for (KeyValue& field : split_fields(nb::cast<std::string>(given.fields.text)))
      question.fields.push_back({field.key, truth_as_number(std::move(field.value))});
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (is_field(i, given.tensors[i])) question.fields.push_back({tensors_[i], text_of(given.tensors[i])});
  question.variant = word("variant", given.variant);
  question.dtype = short_dtype(word("dtype", nb::getattr(given.dtype, "__name__", given.dtype)));
  question.plan = given.plan;
  return question;
}

Question Arguments::question_of(const Given& given, const std::vector<Input>& inputs,
                                const std::vector<Output>& outputs) const {
  Question question = ask(given);
  for (const Input& input : inputs) {
    question.shapes[tensors_[input.place]] = std::vector(input.shape.begin(), input.shape.end());
    if (!input.only_shape) question.types[tensors_[input.place]] = to_string(input.dtype);
  }
  for (const Output& output : outputs)
    question.out_types.emplace_back(output.tensor ? to_string(output.tensor->dtype) : "");
  return question;
}

std::string Arguments::key_of(const Given& given, const std::vector<Input>& inputs, const std::vector<Output>& outputs,
                              const Device& device) const {
  CallKey key;
  key.add(device.gpu ? device.index : -1);
  auto input = inputs.begin();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (input != inputs.end() && input->place == i)
      key.add(*input++);
    else
      key.add(nb::handle(given.tensors[i]));
  for (PyObject* const field : given.fields.values) key.add(nb::handle(field));
  key.add(given.fields.text);
  key.add(static_cast<std::int64_t>(outputs.size()));
  for (const Output& output : outputs) key.add(output.tensor ? static_cast<std::int64_t>(output.tensor->dtype) : -1);
  key.add(given.dtype);
  key.add(given.variant);
  key.add(given.plan ? static_cast<std::int64_t>(given.plan->number) : 0);
  return key.take();
}

std::string Arguments::word(const char* argument, nb::handle given) const {
  if (given.is_none()) return "";
  std::string text = nb::cast<std::string>(nb::str(given));
  if (text.empty()) throw InvalidInput(named(argument) + " is an empty text; None leaves it open");
  return text;
}

Question Arguments::ask_of_shapes(const nb::tuple& tensors, nb::handle fields, nb::handle variant, nb::handle dtype,
                                  nb::handle plan) const {
  const bool text = nb::isinstance<nb::str>(fields);
  const Items in_order = items(tensors, tensors_),
              values = text ? Items() : items(nb::cast<nb::tuple>(fields), fields_);
  Question question =
      ask({in_order, {values, text ? fields : nb::handle(Py_None)}, variant, dtype, plan_of_call(plan)});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const nb::handle given = tensors[i];
    if (given.is_none() || is_field(i, given)) continue;
    const auto pair = nb::cast<nb::tuple>(given);
    question.shapes[tensors_[i]] = nb::cast<std::vector<std::int64_t>>(pair[0]);
    question.types[tensors_[i]] = nb::cast<std::string>(pair[1]);
    if (!parse_dtype(question.types[tensors_[i]]))
      throw InvalidInput(named(tensors_[i]) + " has an element type that no op takes");
  }
  return question;
}

bool Arguments::is_field(std::size_t tensor, nb::handle given) const {
  return shared_[tensor] &&
         (nb::isinstance<nb::str>(given) || nb::isinstance<nb::int_>(given) || nb::isinstance<nb::float_>(given));
}

void Arguments::check_output(const TensorSpec& spec, const std::vector<Output>& outputs, std::size_t number,
                             const Device& device, const std::vector<Input>& inputs,
                             const std::optional<Tensor>& prepared) const {
  const Tensor& tensor = *outputs[number].tensor;
  const Name what{op_->name, spec.name, ": output '"};
  if (!std::ranges::equal(tensor.shape, spec.shape))
    throw refusal("{} must be {}, not {}", what.text(), shape_text(spec.shape), shape_text(tensor.shape));
  if (tensor.device != device)
    throw refusal("{} is on {}, the inputs are on {}", what.text(), to_string(tensor.device), to_string(device));
  for (const Input& input : inputs)
    if (tensor.overlaps(input))
      throw refusal("{} shares memory with '{}'; no op works in place", what.text(), tensors_[input.place]);
  if (prepared && tensor.overlaps(*prepared))
    throw InvalidInput(what.text() + " shares memory with the packed weights");
  for (std::size_t i = 0; i < number; ++i)
    if (tensor.overlaps(*outputs[i].tensor)) throw refusal("{} shares memory with output {}", what.text(), i);
}

}  // namespace noisefloor::python
