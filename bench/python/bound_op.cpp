// noisefloor._core.Op: a call of an op, from the caller's tensors to the launch.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "bench/python/call.h"
#include "bench/python/call_key.h"
#include "bench/python/device.h"
#include "bench/python/function.h"
#include "bench/python/plan.h"
#include "bench/python/queue.h"
#include "bench/python/tensor.h"
#include "bench/python/with_python.h"
#include "kernels/catalogue.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kPreparedMemory[] = "prepared_memory";
constexpr std::size_t kMostCalls = 1024;  // calls of an op: shapes that never repeat must not fill the memory

// One op, called with its tensors in the order of `tensors` and its fields in that of `fields`. A name that is both, as
// a bias and whether there is one, stands among the tensors alone, and takes either.
class BoundOp {
 public:
  BoundOp(const std::string& name, std::vector<std::string> tensors, std::vector<std::string> fields)
      : op_(find_op(name)), tensors_(std::move(tensors)), fields_(std::move(fields)) {
    if (op_ == nullptr) throw InvalidInput("there is no op '" + name + "'");
    for (const std::string& tensor : tensors_)
      shared_.push_back(std::ranges::count(op_->fields, tensor, &FieldInfo::name) > 0);
  }

  // `plan`: a Plan, the file of one, or None; `prepared`: the weights as `prepare` left them for that variant, or None.
  nb::object call(const nb::tuple& tensors, const nb::tuple& fields, nb::handle out, nb::handle variant,
                  nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared) const {
    const Items in_order = items(tensors, tensors_), values = items(fields, fields_);
    return call_or_time(in_order, {values}, out, variant, stream, dtype, plan, prepared, nullptr);
  }

  // `call` as a function of arguments in the order of `names`: of tensors, fields and what else it takes; `fields` is a
  // text of several ("groups=32,fusion=silu"). With `as_list` it returns a list of all outputs.
  nb::object function(const std::vector<std::string>& names, bool as_list) const {
    std::vector<std::string> slots = tensors_;
    slots.insert(slots.end(), fields_.begin(), fields_.end());
    const std::size_t rest = slots.size();
    for (const char* name : {"out", "variant", "stream", "dtype", "plan", "prepared", "fields"})
      slots.emplace_back(name);
    std::vector<std::size_t> places;
    for (const std::string& name : names) {
      const auto found = std::ranges::find(slots, name);
      if (found == slots.end()) throw InvalidInput(named(name) + " is no argument");
      places.push_back(static_cast<std::size_t>(found - slots.begin()));
    }
    if (slots.size() > kMostArguments) throw InvalidInput(op_->name + " has too many arguments");
    const std::size_t inputs = tensors_.size();
    return make_function(op_->name, names, [this, places, inputs, rest, as_list](PyObject* const* given) {
      std::array<PyObject*, kMostArguments> all;
      all.fill(Py_None);
      for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = given[i];
      nb::object outputs =
          call_or_time({all.data(), inputs}, {{all.data() + inputs, rest - inputs}, all[rest + 6]}, all[rest],
                       all[rest + 1], all[rest + 2], all[rest + 3], all[rest + 4], all[rest + 5], nullptr);
      if (!as_list) return outputs;
      nb::list listed;
      if (nb::isinstance<nb::tuple>(outputs))
        listed.extend(outputs);
      else
        listed.append(outputs);
      return nb::object(listed);
    });
  }

  // What one launch of that call costs the host, of `count` in a row.
  double seconds_of_launch(const nb::tuple& tensors, const nb::tuple& fields, nb::handle out, nb::handle variant,
                           nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared, int count) const {
    if (count < 1) throw InvalidInput(named("count") + " must be at least 1");
    Timed timed{count};
    const Items in_order = items(tensors, tensors_), values = items(fields, fields_);
    call_or_time(in_order, {values}, out, variant, stream, dtype, plan, prepared, &timed);
    return timed.seconds;
  }

  // Lays the weights out for the calls of a variant: (the variant's name, the dtype, what it wrote or None). A shape, a
  // tuple or list of extents, stands for a tensor that each call brings.
  nb::tuple prepare(const nb::tuple& tensors, const nb::tuple& fields, nb::handle variant, nb::handle stream,
                    nb::handle dtype, nb::handle plan) const {
    const Items in_order = items(tensors, tensors_), values = items(fields, fields_);
    const Given given{in_order, {values}, variant, dtype, plan_of_call(plan)};
    nb::object like;
    const std::vector<Input> inputs = read_inputs(in_order, true, gradients_now(), like);
    if (!like) throw nb::type_error((op_->name + ": prepare needs the weights as tensors, not only shapes").c_str());
    Device device;
    for (const Input& input : inputs)
      if (input.data != nullptr) device = input.device;
    const std::shared_ptr<const Decision> decision = decide_in_python(question_of(given, inputs, {}), device);
    const Queue queue(op_->name, device, like, stream);
    nb::object owner = nb::none();
    if (decision->prepared_bytes > 0) {
      const std::vector<void*> pointers = pointers_of(*decision, inputs);
      for (std::size_t i = 0; i < decision->specs.size(); ++i)
        if (pointers[i] == nullptr && std::ranges::count(kPreparedTensors, decision->specs[i].name) > 0)
          throw InvalidInput(fmt::format("{} must be a tensor, not a shape: variant '{}' lays it out anew",
                                         named(decision->specs[i].name), decision->variant->name));
      if (device.gpu && captures(device, queue.stream))
        throw InvalidInput(op_->name +
                           ": prepare while a CUDA graph captures the stream would do nothing now; prepare before");
      owner = framework<kPreparedMemory>(like, decision->prepared_bytes, queue.number);
      void* const memory = read_tensor(owner, name("prepared"), true).data;
      const WithoutGil released;
      python::prepare(*decision, pointers, memory, device, queue.stream);
      if (device.gpu) wait_for(device, queue.stream);  // so that any stream may read it
    }
    return nb::make_tuple(decision->variant->name, to_string(decision->dtype), owner);
  }

  // Of tensors of these (shape, dtype), None where one is not given: the problem, its [(output, shape, dtype)], and how
  // far an output may be off. `fields` may be a text of those that are given.
  nb::tuple describe(const nb::tuple& tensors, nb::handle fields, nb::handle dtype) const {
    const Question question = ask_of_shapes(tensors, fields, nb::none(), dtype, nb::none());
    const std::shared_ptr<const Decision> decision = decide_in_python(question, std::nullopt);
    nb::list found;
    for (const TensorSpec& spec : decision->specs)
      if (spec.role == Role::out) found.append(nb::make_tuple(spec.name, tuple_of(spec.shape), to_string(spec.dtype)));
    const Tolerance tolerance = op_->tolerance(decision->problem, decision->dtype);
    return nb::make_tuple(op_->print(decision->problem), found,
                          nb::make_tuple(tolerance.max_error, tolerance.l2_error));
  }

  // The variant that a GPU of that compute capability, which need not be here, would run.
  std::string chosen_on(int capability, const nb::tuple& tensors, nb::handle fields, nb::handle variant,
                        nb::handle dtype, nb::handle plan) const {
    DeviceInfo device;
    device.compute_capability = capability;
    return python::chosen_on(ask_of_shapes(tensors, fields, variant, dtype, plan), device);
  }

  std::size_t calls_kept() const { return calls_.size(); }

 private:
  struct Timed {
    int count;
    double seconds = 0;
  };

  using Items = std::vector<PyObject*>;
  Items items(const nb::tuple& tuple, const std::vector<std::string>& names) const {
    if (tuple.size() != names.size())
      throw nb::type_error(fmt::format("{}: {} arguments, not {}", op_->name, names.size(), tuple.size()).c_str());
    Items all;
    for (const nb::handle one : tuple) all.push_back(one.ptr());
    return all;
  }

  // Fields' values in the order of `fields_`, none of those in `text`.
  struct Fields {
    std::span<PyObject* const> values;
    nb::handle text = Py_None;
  };

  nb::object call_or_time(std::span<PyObject* const> tensors, const Fields& fields, nb::handle out, nb::handle variant,
                          nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared,
                          Timed* timed) const {
    const Given given{tensors, fields, variant, dtype, plan_of_call(plan)};
    const Gradients gradients = gradients_now();
    nb::object like;  // whose framework makes what is not given: the first output that is, else the first input
    const std::vector<Input> inputs = read_inputs(tensors, false, gradients, like);
    const Device device = inputs.front().device;
    std::vector<Output> outputs = read_outputs(out, gradients, like);
    const std::shared_ptr<const Decision> decision = find_again(given, inputs, outputs, device);
    const Queue queue(op_->name, device, like, stream);
    std::optional<Tensor> laid_out;
    if (!prepared.is_none()) laid_out = read_prepared(prepared, given, *decision, queue);
    return run(*decision, inputs, outputs, queue, laid_out, timed);
  }

  // What was given beside outputs and streams.
  struct Given {
    std::span<PyObject* const> tensors;
    Fields fields;
    nb::handle variant, dtype;
    std::shared_ptr<const Plan> plan;
  };
  struct Input : Tensor {
    std::size_t place = 0;    // in tensors_
    bool only_shape = false;  // which has no data, and no type
  };
  struct Output {
    nb::object object = nb::none();
    std::optional<Tensor> tensor;  // none: not given
  };

  // What the same call had before, without a question.
  std::shared_ptr<const Decision> find_again(const Given& given, const std::vector<Input>& inputs,
                                             const std::vector<Output>& outputs, const Device& device) const {
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
    if (const auto found = calls_.find(key.bytes()); found != calls_.end()) return found->second;
    auto decision = decide_in_python(question_of(given, inputs, outputs), device);
    if (calls_.size() >= kMostCalls) calls_.clear();
    calls_.insert_or_assign(std::string(key.bytes()), decision);
    return decision;
  }

  // With `shapes`, some may be no tensors but a shape.
  std::vector<Input> read_inputs(std::span<PyObject* const> tensors, bool shapes, const Gradients& gradients,
                                 nb::object& like) const {
    std::vector<Input> inputs;
    const Input* first = nullptr;
    inputs.reserve(tensors.size() - static_cast<std::size_t>(std::ranges::count(tensors, Py_None)));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const nb::handle given = tensors[i];
      if (given.is_none() || is_field(i, given)) continue;
      if (shapes && (nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given))) {
        std::vector<std::int64_t> shape;
        if (!nb::try_cast(given, shape) || shape.size() > Shape::kMost)
          throw nb::type_error(
              fmt::format("{} must be a tensor, or a shape of integers, at most {}", named(tensors_[i]), Shape::kMost)
                  .c_str());
        inputs.emplace_back().shape = Shape(shape);
        inputs.back().only_shape = true;
      } else {
        inputs.push_back({read_tensor(given, name(tensors_[i]), false, gradients)});
        if (!like) like = nb::borrow(given);
        if (first == nullptr) first = &inputs.back();
        if (inputs.back().device != first->device)
          throw InvalidInput(fmt::format("{} is on {}, '{}' on {}; all tensors must be on one device",
                                         named(tensors_[i]), to_string(inputs.back().device), tensors_[first->place],
                                         to_string(first->device)));
      }
      inputs.back().place = i;
    }
    if (inputs.empty()) throw nb::type_error((op_->name + " needs tensors: " + tensors_.front() + ", ...").c_str());
    return inputs;
  }

  // `like` becomes the first that is given.
  std::vector<Output> read_outputs(nb::handle out, const Gradients& gradients, nb::object& like) const {
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

  // The memory of prepared weights, which must be as many bytes as the call's variant prepares there.
  Tensor read_prepared(nb::handle prepared, const Given& given, const Decision& decision, const Queue& queue) const {
    constexpr std::uintptr_t kAlignment = 64;  // of the widest vectors
    Tensor memory = read_tensor(prepared, name("prepared"), false);
    if (given.variant.is_none())
      throw InvalidInput(named("prepared") + " is of one variant: give its name as variant=");
    if (memory.device != queue.device)
      throw InvalidInput(fmt::format("{} is on {}, the tensors are on {}", named("prepared"), to_string(memory.device),
                                     to_string(queue.device)));
    if (memory.dtype != DType::uint8 || memory.bytes() != decision.prepared_bytes)
      throw InvalidInput(fmt::format(
          "{} has {} bytes, and variant '{}' in {} needs {} uint8: it was prepared for other weights, another dtype or "
          "another variant",
          named("prepared"), memory.bytes(), decision.variant->name, to_string(decision.dtype),
          decision.prepared_bytes));
    if (reinterpret_cast<std::uintptr_t>(memory.data) % kAlignment != 0)
      throw InvalidInput(fmt::format("{} must begin at a multiple of {} bytes", named("prepared"), kAlignment));
    note_use(prepared, memory, queue);
    return memory;
  }

  // In the order of the specs; null for outputs, and where only a shape was given.
  std::vector<void*> pointers_of(const Decision& decision, const std::vector<Input>& inputs) const {
    std::vector<void*> pointers(decision.specs.size());
    for (std::size_t k = 0; k < pointers.size(); ++k)
      for (const Input& input : inputs)
        if (tensors_[input.place] == decision.specs[k].name) pointers[k] = input.data;
    return pointers;
  }

  Name name(std::string_view argument) const { return {op_->name, argument}; }
  std::string named(const std::string& argument) const { return op_->name + ": '" + argument + "'"; }

  // Without its inputs and outputs.
  Question ask(const Given& given) const {
    Question question;
    question.op = op_;
    for (std::size_t i = 0; i < given.fields.values.size(); ++i)
      if (given.fields.values[i] != Py_None) question.fields.push_back({fields_[i], text_of(given.fields.values[i])});
    if (!given.fields.text.is_none())
      for (KeyValue& field : split_problem_text(nb::cast<std::string>(given.fields.text)))
        question.fields.push_back({field.key, truth_as_number(std::move(field.value))});
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (is_field(i, given.tensors[i])) question.fields.push_back({tensors_[i], text_of(given.tensors[i])});
    question.variant = word("variant", given.variant);
    question.dtype = word("dtype", given.dtype);
    question.plan = given.plan;
    return question;
  }

  Question question_of(const Given& given, const std::vector<Input>& inputs, const std::vector<Output>& outputs) const {
    Question question = ask(given);
    for (const Input& input : inputs)
      question.inputs.push_back({tensors_[input.place].c_str(),
                                 input.only_shape ? std::nullopt : std::optional(input.dtype),
                                 {input.shape.begin(), input.shape.end()}});
    for (const Output& output : outputs)
      question.out_types.emplace_back(output.tensor ? to_string(output.tensor->dtype) : "");
    return question;
  }

  // "" of None, which is not given.
  std::string word(const char* argument, nb::handle given) const {
    if (given.is_none()) return "";
    std::string text = nb::cast<std::string>(nb::str(given));
    if (text.empty()) throw InvalidInput(named(argument) + " is an empty text; None leaves it open");
    return text;
  }

  Question ask_of_shapes(const nb::tuple& tensors, nb::handle fields, nb::handle variant, nb::handle dtype,
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
      const auto type = parse_dtype(nb::cast<std::string>(pair[1]));
      if (!type) throw InvalidInput(named(tensors_[i]) + " has an element type that no op takes");
      question.inputs.push_back({tensors_[i].c_str(), *type, nb::cast<std::vector<std::int64_t>>(pair[0])});
    }
    return question;
  }

  // Whether it is the value of a field whose name a tensor has, too.
  bool is_field(std::size_t tensor, nb::handle given) const {
    return shared_[tensor] &&
           (nb::isinstance<nb::str>(given) || nb::isinstance<nb::int_>(given) || nb::isinstance<nb::float_>(given));
  }

  // Of the output of that number, the op's `spec`.
  void check_output(const TensorSpec& spec, const std::vector<Output>& outputs, std::size_t number,
                    const Device& device, const std::vector<Input>& inputs,
                    const std::optional<Tensor>& prepared) const {
    const Tensor& tensor = *outputs[number].tensor;
    const Name what{op_->name, spec.name, ": output '"};
    if (!std::ranges::equal(tensor.shape, spec.shape))
      throw InvalidInput(
          fmt::format("{} must be {}, not {}", what.text(), shape_text(spec.shape), shape_text(tensor.shape)));
    if (tensor.device != device)
      throw InvalidInput(
          fmt::format("{} is on {}, the inputs are on {}", what.text(), to_string(tensor.device), to_string(device)));
    for (const Input& input : inputs)
      if (tensor.overlaps(input))
        throw InvalidInput(
            fmt::format("{} shares memory with '{}'; no op works in place", what.text(), tensors_[input.place]));
    if (prepared && tensor.overlaps(*prepared))
      throw InvalidInput(what.text() + " shares memory with the weights that were laid out");
    for (std::size_t i = 0; i < number; ++i)
      if (tensor.overlaps(*outputs[i].tensor))
        throw InvalidInput(fmt::format("{} shares memory with output {}", what.text(), i));
  }

  nb::object run(const Decision& decision, const std::vector<Input>& inputs, std::vector<Output>& outputs,
                 const Queue& queue, const std::optional<Tensor>& prepared, Timed* timed) const {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(decision.specs, [](const TensorSpec& spec) { return spec.role == Role::out; }));
    if (!outputs.empty() && outputs.size() != count)
      throw InvalidInput(fmt::format("{} must be {}, not {}", named("out"),
                                     count == 1 ? "one tensor" : fmt::format("a tuple of {} tensors or None", count),
                                     outputs.size()));
    outputs.resize(count);
    std::vector<void*> pointers = pointers_of(decision, inputs);
    std::size_t number = 0;
    for (std::size_t k = 0; k < decision.specs.size(); ++k) {
      const TensorSpec& spec = decision.specs[k];
      if (spec.role != Role::out) continue;
      auto& [object, tensor] = outputs[number];
      if (tensor) {
        check_output(spec, outputs, number, queue.device, inputs, prepared);
        if (tensor->torch) note_write(object);
      } else {
        object = empty_tensor(queue, spec.shape, spec.dtype);
        tensor = read_tensor(object, {op_->name, spec.name, ": output '"}, true);
        if (tensor->device != queue.device || tensor->dtype != spec.dtype ||
            !std::ranges::equal(tensor->shape, spec.shape))
          throw std::runtime_error(
              fmt::format("{}: the framework made output '{}' of another type, shape or device than asked for",
                          op_->name, spec.name));
      }
      pointers[k] = tensor->data;
      ++number;
    }
    const ScratchMemory workspace(queue, decision.workspace_bytes);
    const ScratchMemory memory(queue, prepared ? 0 : decision.prepared_bytes);
    {
      const WithoutGil released;
      if (!prepared) python::prepare(decision, pointers, memory.data(), queue.device, queue.stream);
      const Scratch scratch{workspace.data(), prepared ? prepared->data : memory.data()};
      if (timed == nullptr)
        launch(decision, pointers, scratch, queue.device, queue.stream);
      else
        timed->seconds =
            python::seconds_of_launch(decision, pointers, scratch, queue.device, queue.stream, timed->count);
    }
    if (count == 1) return outputs.front().object;
    nb::list all;
    for (const Output& output : outputs) all.append(output.object);
    return nb::tuple(all);
  }

  const Op* op_;
  std::vector<std::string> tensors_, fields_;
  std::vector<bool> shared_;                               // whether a field has the tensor's name
  mutable ByCall<std::shared_ptr<const Decision>> calls_;  // the GIL guards it
};

}  // namespace

void define_op(nb::module_& m) {
  nb::class_<BoundOp>(m, "Op")
      .def(nb::init<const std::string&, std::vector<std::string>, std::vector<std::string>>())
      .def("call", &BoundOp::call, nb::arg("tensors"), nb::arg("fields"), nb::arg("out").none(),
           nb::arg("variant").none(), nb::arg("stream").none(), nb::arg("dtype").none(),
           nb::arg("plan").none() = nb::none(), nb::arg("prepared").none() = nb::none())
      .def("function", &BoundOp::function, nb::keep_alive<0, 1>(), nb::arg("names"), nb::arg("as_list"))
      .def("seconds_of_launch", &BoundOp::seconds_of_launch, nb::arg("tensors"), nb::arg("fields"),
           nb::arg("out").none(), nb::arg("variant").none(), nb::arg("stream").none(), nb::arg("dtype").none(),
           nb::arg("plan").none(), nb::arg("prepared").none(), nb::arg("count"))
      .def("prepare", &BoundOp::prepare, nb::arg("tensors"), nb::arg("fields"), nb::arg("variant").none(),
           nb::arg("stream").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("chosen_on", &BoundOp::chosen_on, nb::arg("capability"), nb::arg("tensors"), nb::arg("fields"),
           nb::arg("variant").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("describe", &BoundOp::describe, nb::arg("tensors"), nb::arg("fields"), nb::arg("dtype").none())
      .def_prop_ro("calls_kept", &BoundOp::calls_kept);
}

}  // namespace noisefloor::python
