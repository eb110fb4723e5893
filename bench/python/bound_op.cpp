// noisefloor._core.Op: a call of an op, from the caller's tensors to the launch.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>

#include "bench/python/call.h"
#include "bench/python/device.h"
#include "bench/python/plan.h"
#include "bench/python/tensor.h"
#include "bench/python/with_python.h"
#include "kernels/catalogue.h"
#include "kernels/core/alignment.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

// A field's value as problem text.
std::string text_of(nb::handle value) {
  const auto text = nb::cast<std::string>(nb::str(value));
  return text == "True" ? "1" : text == "False" ? "0" : text;
}

constexpr char kEmpty[] = "empty", kStream[] = "stream", kUsed[] = "used", kWritten[] = "written",
               kPreparedMemory[] = "prepared_memory";

std::shared_ptr<const Decision> find(const Question& question, const std::optional<Device>& device) {
  if (auto before = decided(question, device)) return before;
  const std::shared_ptr<const Decision> decision = [&] {
    const WithoutGil released;
    return decide(question, device);
  }();
  if (!decision->warning.empty() && PyErr_WarnEx(PyExc_UserWarning, decision->warning.c_str(), 2) != 0)
    nb::raise_python_error();
  return decision;
}

// Host memory for one launch.
struct Free {
  void operator()(void* data) const { std::free(data); }
};
std::unique_ptr<void, Free> host_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = std::aligned_alloc(kAllocationAlignment, aligned(bytes));
  if (data == nullptr) throw std::bad_alloc();
  return std::unique_ptr<void, Free>(data);
}

// One op, called with its tensors in the order of `tensors` and its fields in that of `fields`. A name that is both, as
// a bias and whether there is one, stands among the tensors alone, and takes either.
class BoundOp {
 public:
  BoundOp(const std::string& name, std::vector<std::string> tensors, std::vector<std::string> fields)
      : op_(find_op(name)), tensors_(std::move(tensors)), fields_(std::move(fields)) {
    if (op_ == nullptr) throw InvalidInput("there is no op '" + name + "'");
    for (const FieldInfo& field : op_->fields) known_.push_back(field.name);
  }

  // `plan`: a Plan, the file of one, or None; `prepared`: the weights as `prepare` left them for that variant, or None.
  nb::object call(const nb::tuple& tensors, const nb::tuple& fields, nb::handle out, nb::handle variant,
                  nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared) const {
    return call_or_time(tensors, fields, out, variant, stream, dtype, plan, prepared, nullptr);
  }

  // What one launch of that call costs the host, of `count` in a row.
  double seconds_of_launch(const nb::tuple& tensors, const nb::tuple& fields, nb::handle out, nb::handle variant,
                           nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared, int count) const {
    if (count < 1) throw InvalidInput(named("count") + " must be at least 1");
    Timed timed{count};
    call_or_time(tensors, fields, out, variant, stream, dtype, plan, prepared, &timed);
    return timed.seconds;
  }

  // Lays the weights out for the calls of a variant: (the variant's name, the dtype, what it wrote or None). A shape, a
  // tuple or list of extents, stands for a tensor that each call brings.
  nb::tuple prepare(const nb::tuple& tensors, const nb::tuple& fields, nb::handle variant, nb::handle stream,
                    nb::handle dtype, nb::handle plan) const {
    Question question = ask(fields, variant, dtype, plan);
    nb::object like;
    const std::vector<Tensor> inputs = read_inputs(tensors, true, question, like);
    if (!like) throw nb::type_error((op_->name + ": prepare needs the weights as tensors, not only shapes").c_str());
    Device device;
    for (const Tensor& tensor : inputs)
      if (tensor.data != nullptr) device = tensor.device;
    const std::shared_ptr<const Decision> decision = find(question, device);
    const nb::object queue = queue_of(device, like, stream);
    nb::object owner = nb::none();
    if (decision->prepared_bytes > 0) {
      const std::vector<void*> pointers = pointers_of(*decision, inputs, question);
      for (std::size_t i = 0; i < decision->specs.size(); ++i)
        if (pointers[i] == nullptr && std::ranges::count(kPreparedTensors, decision->specs[i].name) > 0)
          throw InvalidInput(fmt::format("{} must be a tensor, not a shape: variant '{}' lays it out anew",
                                         named(decision->specs[i].name), decision->variant->name));
      const Stream on = stream_of(queue);
      if (device.gpu && captures(device, on))
        throw InvalidInput(op_->name +
                           ": prepare while a CUDA graph captures the stream would do nothing now; prepare before");
      owner = framework<kPreparedMemory>(like, decision->prepared_bytes, queue);
      void* const memory = read_tensor(owner, name("prepared"), true).data;
      const WithoutGil released;
      python::prepare(*decision, pointers, memory, device, on);
      if (device.gpu) wait_for(device, on);  // so that any stream may read it
    }
    return nb::make_tuple(decision->variant->name, to_string(decision->dtype), owner);
  }

  // Of tensors of these (shape, dtype), None where one is not given: the problem, its [(output, shape, dtype)], and how
  // far an output may be off.
  nb::tuple describe(const nb::tuple& tensors, const nb::tuple& fields, nb::handle dtype) const {
    const Question question = ask_of_shapes(tensors, fields, nb::none(), dtype, nb::none());
    const std::shared_ptr<const Decision> decision = find(question, std::nullopt);
    nb::list found;
    for (const TensorSpec& spec : decision->specs)
      if (spec.role == Role::out) found.append(nb::make_tuple(spec.name, tuple_of(spec.shape), to_string(spec.dtype)));
    const Tolerance tolerance = op_->tolerance(decision->problem, decision->dtype);
    return nb::make_tuple(op_->print(decision->problem), found,
                          nb::make_tuple(tolerance.max_error, tolerance.l2_error));
  }

  // The variant that a GPU of that compute capability, which need not be here, would run.
  std::string chosen_on(int capability, const nb::tuple& tensors, const nb::tuple& fields, nb::handle variant,
                        nb::handle dtype, nb::handle plan) const {
    DeviceInfo device;
    device.compute_capability = capability;
    return python::chosen_on(ask_of_shapes(tensors, fields, variant, dtype, plan), device);
  }

 private:
  struct Timed {
    int count;
    double seconds = 0;
  };

  nb::object call_or_time(const nb::tuple& tensors, const nb::tuple& fields, nb::handle out, nb::handle variant,
                          nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared,
                          Timed* timed) const {
    Question question = ask(fields, variant, dtype, plan);
    nb::object like;  // whose framework makes what is not given: the first output that is, else the first input
    const std::vector<Tensor> inputs = read_inputs(tensors, false, question, like);
    const Device device = inputs.front().device;
    std::vector<nb::object> outs = outputs_given(out);
    std::vector<std::optional<Tensor>> written;
    for (const nb::object& one : outs)
      if (!one.is_none()) {
        like = one;
        break;
      }
    for (std::size_t i = 0; i < outs.size(); ++i) {
      written.emplace_back();
      const std::string number = std::to_string(i);
      if (!outs[i].is_none()) written.back() = read_tensor(outs[i], {op_->name, number, ": output ", ""}, true);
      question.out_types.emplace_back(outs[i].is_none() ? "" : to_string(written.back()->dtype));
    }
    const std::shared_ptr<const Decision> decision = find(question, device);
    const nb::object queue = queue_of(device, like, stream);
    std::optional<Tensor> laid_out;
    if (!prepared.is_none()) laid_out = read_prepared(prepared, question, *decision, device, queue);
    return run(*decision, inputs, question, outs, written, device, like, queue, laid_out, timed);
  }

  // With `shapes`, some may be no tensors but a shape; these have no data.
  std::vector<Tensor> read_inputs(const nb::tuple& tensors, bool shapes, Question& question, nb::object& like) const {
    std::vector<Tensor> inputs;
    const Device* device = nullptr;
    const char* first = nullptr;
    inputs.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const nb::handle given = tensors[i];
      if (given.is_none() || take_field(i, given, question)) continue;
      if (shapes && (nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given))) {
        inputs.emplace_back();
        if (!nb::try_cast(given, inputs.back().shape))
          throw nb::type_error((named(tensors_[i]) + " must be a tensor, or a shape of integers").c_str());
        question.inputs.push_back({tensors_[i].c_str(), std::nullopt, inputs.back().shape});
        continue;
      }
      inputs.push_back(read_tensor(given, name(tensors_[i]), false));
      const Tensor& tensor = inputs.back();
      question.inputs.push_back({tensors_[i].c_str(), tensor.dtype, tensor.shape});
      if (!like) {
        like = nb::borrow(given);
        device = &inputs.back().device;
        first = tensors_[i].c_str();
      }
      if (tensor.device != *device)
        throw InvalidInput(fmt::format("{} is on {}, '{}' on {}; all tensors must be on one device", named(tensors_[i]),
                                       to_string(tensor.device), first, to_string(*device)));
    }
    if (inputs.empty()) throw nb::type_error((op_->name + " needs tensors: " + tensors_.front() + ", ...").c_str());
    return inputs;
  }

  nb::object queue_of(const Device& device, const nb::object& like, nb::handle stream) const {
    if (device.gpu) return framework<kStream>(like, device.index, stream);
    if (!stream.is_none()) throw InvalidInput(named("stream") + " is for tensors on a GPU; these are on the CPU");
    return nb::none();
  }

  // The memory of prepared weights, which must be as many bytes as the call's variant prepares there.
  Tensor read_prepared(nb::handle prepared, const Question& question, const Decision& decision, const Device& device,
                       const nb::object& queue) const {
    constexpr std::uintptr_t kAlignment = 64;  // of the widest vectors
    Tensor memory = read_tensor(prepared, name("prepared"), false);
    if (question.variant.empty())
      throw InvalidInput(named("prepared") + " is of one variant: give its name as variant=");
    if (memory.device != device)
      throw InvalidInput(fmt::format("{} is on {}, the tensors are on {}", named("prepared"), to_string(memory.device),
                                     to_string(device)));
    if (memory.dtype != DType::uint8 || memory.bytes() != decision.prepared_bytes)
      throw InvalidInput(fmt::format(
          "{} has {} bytes, and variant '{}' in {} needs {} uint8: it was prepared for other weights, another dtype or "
          "another variant",
          named("prepared"), memory.bytes(), question.variant, to_string(decision.dtype), decision.prepared_bytes));
    if (reinterpret_cast<std::uintptr_t>(memory.data) % kAlignment != 0)
      throw InvalidInput(fmt::format("{} must begin at a multiple of {} bytes", named("prepared"), kAlignment));
    if (device.gpu) framework<kUsed>(prepared, queue);
    return memory;
  }

  // In the order of the specs; null for outputs, and where only a shape was given.
  static std::vector<void*> pointers_of(const Decision& decision, const std::vector<Tensor>& inputs,
                                        const Question& question) {
    std::vector<void*> pointers(decision.specs.size());
    for (std::size_t k = 0; k < pointers.size(); ++k)
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (question.inputs[i].name == std::string_view(decision.specs[k].name)) pointers[k] = inputs[i].data;
    return pointers;
  }

  // NOLINTNEXTLINE(performance-no-int-to-ptr): frameworks give streams as numbers
  static Stream stream_of(const nb::object& queue) {
    return queue.is_none() ? nullptr : reinterpret_cast<Stream>(nb::cast<std::uintptr_t>(queue));
  }

  Name name(std::string_view argument) const { return {op_->name, argument}; }
  std::string named(const std::string& argument) const { return op_->name + ": '" + argument + "'"; }

  Question ask(const nb::tuple& fields, nb::handle variant, nb::handle dtype, nb::handle plan) const {
    Question question;
    question.op = op_;
    for (std::size_t i = 0; i < fields_.size(); ++i)
      if (!fields[i].is_none()) question.fields.push_back({fields_[i], text_of(fields[i])});
    question.variant = word("variant", variant);
    question.dtype = word("dtype", dtype);
    question.plan = plan_of_call(plan);
    return question;
  }

  // "" of None, which is not given.
  std::string word(const char* argument, nb::handle given) const {
    if (given.is_none()) return "";
    std::string text = nb::cast<std::string>(nb::str(given));
    if (text.empty()) throw InvalidInput(named(argument) + " is an empty text; None leaves it open");
    return text;
  }

  Question ask_of_shapes(const nb::tuple& tensors, const nb::tuple& fields, nb::handle variant, nb::handle dtype,
                         nb::handle plan) const {
    Question question = ask(fields, variant, dtype, plan);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const nb::handle given = tensors[i];
      if (given.is_none() || take_field(i, given, question)) continue;
      const auto pair = nb::cast<nb::tuple>(given);
      const auto type = parse_dtype(nb::cast<std::string>(pair[1]));
      if (!type) throw InvalidInput(named(tensors_[i]) + " has an element type that no op takes");
      question.inputs.push_back({tensors_[i].c_str(), *type, nb::cast<std::vector<std::int64_t>>(pair[0])});
    }
    return question;
  }

  // Whether it is the value of a field whose name a tensor has, too.
  bool take_field(std::size_t tensor, nb::handle given, Question& question) const {
    const bool value =
        nb::isinstance<nb::str>(given) || nb::isinstance<nb::int_>(given) || nb::isinstance<nb::float_>(given);
    if (!value || std::ranges::count(known_, tensors_[tensor]) == 0) return false;
    question.fields.push_back({tensors_[tensor], text_of(given)});
    return true;
  }

  std::vector<nb::object> outputs_given(nb::handle out) const {
    std::vector<nb::object> outs;
    if (nb::isinstance<nb::tuple>(out) || nb::isinstance<nb::list>(out))
      for (nb::handle one : out) outs.push_back(nb::borrow(one));
    else if (!out.is_none())
      outs.push_back(nb::borrow(out));
    return outs;
  }

  void check_output(const TensorSpec& spec, const Tensor& tensor, const Device& device,
                    const std::vector<Tensor>& inputs, const Question& question, const std::optional<Tensor>& prepared,
                    const std::vector<std::optional<Tensor>>& written, std::size_t index) const {
    const Name what{op_->name, spec.name, ": output '"};
    if (tensor.shape != spec.shape)
      throw InvalidInput(
          fmt::format("{} must be {}, not {}", what.text(), shape_text(spec.shape), shape_text(tensor.shape)));
    if (tensor.device != device)
      throw InvalidInput(
          fmt::format("{} is on {}, the inputs are on {}", what.text(), to_string(tensor.device), to_string(device)));
    const auto overlaps = [&](const Tensor& other) {
      const auto *a = static_cast<const char*>(tensor.data), *b = static_cast<const char*>(other.data);
      return std::less<>()(a, b + other.bytes()) && std::less<>()(b, a + tensor.bytes());
    };
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (overlaps(inputs[i]))
        throw InvalidInput(
            fmt::format("{} shares memory with '{}'; no op works in place", what.text(), question.inputs[i].name));
    if (prepared && overlaps(*prepared))
      throw InvalidInput(what.text() + " shares memory with the weights that were laid out");
    for (std::size_t i = 0; i < index; ++i)
      if (written[i] && overlaps(*written[i]))
        throw InvalidInput(fmt::format("{} shares memory with output {}", what.text(), i));
  }

  nb::object run(const Decision& decision, const std::vector<Tensor>& inputs, const Question& question,
                 std::vector<nb::object>& outs, std::vector<std::optional<Tensor>>& written, const Device& device,
                 const nb::object& like, const nb::object& queue, const std::optional<Tensor>& prepared,
                 Timed* timed) const {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(decision.specs, [](const TensorSpec& spec) { return spec.role == Role::out; }));
    if (!outs.empty() && outs.size() != count)
      throw InvalidInput(fmt::format("{} must be {}, not {}", named("out"),
                                     count == 1 ? "one tensor" : fmt::format("a tuple of {} tensors or None", count),
                                     outs.size()));
    outs.resize(count, nb::none());
    written.resize(count);
    std::vector<void*> pointers = pointers_of(decision, inputs, question);
    std::size_t output = 0;
    for (std::size_t k = 0; k < decision.specs.size(); ++k) {
      const TensorSpec& spec = decision.specs[k];
      if (spec.role != Role::out) continue;
      if (written[output]) {
        check_output(spec, *written[output], device, inputs, question, prepared, written, output);
        framework<kWritten>(outs[output]);
      } else {
        outs[output] = framework<kEmpty>(like, tuple_of(spec.shape), to_string(spec.dtype), queue);
        written[output] = read_tensor(outs[output], {op_->name, spec.name, ": output '"}, true);
        if (written[output]->device != device)
          throw std::runtime_error(fmt::format("{}: the framework made output '{}' on {}, not on {}", op_->name,
                                               spec.name, to_string(written[output]->device), to_string(device)));
      }
      pointers[k] = written[output++]->data;
    }
    launch_with_scratch(decision, pointers, device, like, queue, prepared ? prepared->data : nullptr, timed);
    if (count == 1) return outs.front();
    nb::list all;
    for (const nb::object& one : outs) all.append(one);
    return nb::tuple(all);
  }

  // On a GPU scratch memory, too, is the framework's: a CUDA graph may capture the call, and the memory is used again
  // only behind the launch, on its stream.
  void launch_with_scratch(const Decision& decision, const std::vector<void*>& pointers, const Device& device,
                           const nb::object& like, const nb::object& queue, void* prepared, Timed* timed) const {
    const Stream stream = stream_of(queue);
    const std::size_t prepared_bytes = prepared == nullptr ? decision.prepared_bytes : 0;
    const auto work = [&](void* workspace, void* memory) {
      if (prepared == nullptr) python::prepare(decision, pointers, memory, device, stream);
      const Scratch scratch{workspace, prepared == nullptr ? memory : prepared};
      if (timed == nullptr)
        launch(decision, pointers, scratch, device, stream);
      else
        timed->seconds = python::seconds_of_launch(decision, pointers, scratch, device, stream, timed->count);
    };
    if (device.gpu) {
      const auto scratch = [&](std::size_t bytes, nb::object& owner) -> void* {
        if (bytes == 0) return nullptr;
        owner = framework<kEmpty>(like, nb::make_tuple(bytes), "uint8", queue);
        return read_tensor(owner, name("scratch"), true).data;
      };
      nb::object workspace_owner, prepared_owner;
      void* const workspace = scratch(decision.workspace_bytes, workspace_owner);
      void* const memory = scratch(prepared_bytes, prepared_owner);
      const WithoutGil released;
      work(workspace, memory);
      return;
    }
    const WithoutGil released;
    const auto workspace = host_memory(decision.workspace_bytes), memory = host_memory(prepared_bytes);
    work(workspace.get(), memory.get());
  }

  const Op* op_;
  std::vector<std::string> tensors_, fields_, known_;
};

}  // namespace

void define_op(nb::module_& m) {
  nb::class_<BoundOp>(m, "Op")
      .def(nb::init<const std::string&, std::vector<std::string>, std::vector<std::string>>())
      .def("call", &BoundOp::call, nb::arg("tensors"), nb::arg("fields"), nb::arg("out").none(),
           nb::arg("variant").none(), nb::arg("stream").none(), nb::arg("dtype").none(),
           nb::arg("plan").none() = nb::none(), nb::arg("prepared").none() = nb::none())
      .def("seconds_of_launch", &BoundOp::seconds_of_launch, nb::arg("tensors"), nb::arg("fields"),
           nb::arg("out").none(), nb::arg("variant").none(), nb::arg("stream").none(), nb::arg("dtype").none(),
           nb::arg("plan").none(), nb::arg("prepared").none(), nb::arg("count"))
      .def("prepare", &BoundOp::prepare, nb::arg("tensors"), nb::arg("fields"), nb::arg("variant").none(),
           nb::arg("stream").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("chosen_on", &BoundOp::chosen_on, nb::arg("capability"), nb::arg("tensors"), nb::arg("fields"),
           nb::arg("variant").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("describe", &BoundOp::describe, nb::arg("tensors"), nb::arg("fields"), nb::arg("dtype").none());
}

}  // namespace noisefloor::python
