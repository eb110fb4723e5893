// noisefloor._core.Op: a call of an op, from the caller's tensors to the launch.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

#include "python/arguments.h"
#include "python/call.h"
#include "python/queue.h"
#include "python/tensor.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kPreparedMemory[] = "prepared_memory";
constexpr std::size_t kMostCalls = 1024;  // calls of an op: shapes that never repeat must not fill the memory

// `decide` with the GIL held: other threads run meanwhile, and Python is warned once where the plan's variant is not
// the one, at the caller's line: `frames` of ours stand above it.
std::shared_ptr<const Decision> decide_in_python(const Question& question, const std::optional<Device>& device,
                                                 int frames = 1) {
  const std::shared_ptr<const Decision> decision = [&] {
    const WithoutGil released;
    return decide(question, device);
  }();
  if (!decision->warning.empty() && PyErr_WarnEx(PyExc_UserWarning, decision->warning.c_str(), 1 + frames) != 0)
    nb::raise_python_error();
  return decision;
}

class BoundOp : Arguments {
 public:
  using Arguments::Arguments;

  // A call as a function of arguments in the order of `names`: tensors, fields, and what else `bind` knows. `plan`: a
  // Plan, the file of one, or None; `prepared`: the weights as `prepare` left them for that variant, or None; `fields`:
  // a text of several ("groups=32,fusion=silu").
  nb::object function(const std::vector<std::string>& names, std::size_t required, std::size_t positional,
                      const std::string& doc) const {
    return bind(names, required, positional, doc, false, false);
  }
  // That for PyTorch: it returns a list of all outputs. `of_module`: as a module calls it, with inputs at any address
  // and with weights that may have changed: each launch lays them out anew in `prepared`, but one that a CUDA graph
  // captures.
  nb::object operation(const std::vector<std::string>& names, bool of_module) const {
    return bind(names, 0, names.size(), "", true, of_module);
  }

  // Lays the weights out for the calls of a variant: (the variant's name, the dtype, what it wrote or None). A shape, a
  // tuple or list of extents, stands for a tensor that each call brings.
  nb::tuple prepare(const nb::tuple& tensors, const nb::tuple& fields, nb::handle variant, nb::handle stream,
                    nb::handle dtype, nb::handle plan) const {
    check_fork(*op_);
    const Items in_order = items(tensors, tensors_), values = items(fields, fields_);
    const Given given{in_order, {values}, variant, dtype, plan_of_call(plan)};
    nb::object like;
    const std::vector<Input> inputs = read_inputs(in_order, Taken::shapes_too, gradients_now(), like);
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
          throw InvalidInput(fmt::format("{} must be a tensor, not a shape: variant '{}' packs it",
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

  // Of tensors of these (shape, dtype), None where one is not given: the problem, its [(output, shape, dtype)], how far
  // an output may be off, its dtype and its FLOPs. `fields` may be a text of those that are given.
  nb::tuple describe(const nb::tuple& tensors, nb::handle fields, nb::handle dtype) const {
    const Question question = ask_of_shapes(tensors, fields, nb::none(), dtype, nb::none());
    const std::shared_ptr<const Decision> decision = decide_in_python(question, std::nullopt);
    nb::list found;
    for (const TensorSpec& spec : decision->specs)
      if (spec.role == Role::out) found.append(nb::make_tuple(spec.name, tuple_of(spec.shape), to_string(spec.dtype)));
    const Tolerance tolerance = op_->tolerance(decision->problem, decision->dtype);
    return nb::make_tuple(op_->print(decision->problem), found, nb::make_tuple(tolerance.max_error, tolerance.l2_error),
                          to_string(decision->dtype), op_->cost(decision->problem, decision->dtype).flops);
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
  nb::object bind(const std::vector<std::string>& names, std::size_t required, std::size_t positional,
                  const std::string& doc, bool as_list, bool of_module) const {
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
    const auto call = [this, places, inputs, rest, as_list, of_module](PyObject* const* given) {
      std::array<PyObject*, kMostArguments> all;
      all.fill(Py_None);
      for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = given[i];
      nb::object outputs = launched({all.data(), inputs}, {{all.data() + inputs, rest - inputs}, all[rest + 6]},
                                    all[rest], all[rest + 1], all[rest + 2], all[rest + 3], all[rest + 4],
                                    all[rest + 5], {of_module, as_list ? 1 : 0});
      if (!as_list) return outputs;
      nb::list listed;
      if (nb::isinstance<nb::tuple>(outputs))
        listed.extend(outputs);
      else if (!outputs.is_none())
        listed.append(outputs);
      return nb::object(listed);
    };
    return make_function({op_->name, "noisefloor.ops", doc, names, required, positional, call});
  }

  struct How {
    bool of_module = false;
    int frames = 0;  // Python's, of ours
  };

  nb::object launched(std::span<PyObject* const> tensors, const Fields& fields, nb::handle out, nb::handle variant,
                      nb::handle stream, nb::handle dtype, nb::handle plan, nb::handle prepared, How how) const {
    check_fork(*op_);
    const Given given{tensors, fields, variant, dtype, plan_of_call(plan)};
    const Gradients gradients = gradients_now();
    nb::object like;  // whose framework makes what is not given: the first output that is, else the first input
    const Taken taken = how.of_module ? Taken::at_any_address : Taken::aligned;
    const std::vector<Input> inputs = read_inputs(tensors, taken, gradients, like);
    const Device device = inputs.front().device;
    std::vector<Output> outputs = read_outputs(out, gradients, like);
    const std::shared_ptr<const Decision> decision = find_again(given, inputs, outputs, device, how.frames);
    const Queue queue(op_->name, device, like, stream);
    std::optional<Tensor> packed;
    if (!prepared.is_none()) packed = read_prepared(prepared, given, *decision, queue);
    for (const Input& input : inputs)
      if (updated_[input.place] && input.torch) note_write(tensors[input.place]);
    return run(*decision, inputs, outputs, queue, packed, how);
  }

  // What the same call had before, without a question.
  std::shared_ptr<const Decision> find_again(const Given& given, const std::vector<Input>& inputs,
                                             const std::vector<Output>& outputs, const Device& device,
                                             int frames) const {
    std::string key = key_of(given, inputs, outputs, device);
    if (const auto found = calls_.find(key); found != calls_.end()) return found->second;
    auto decision = decide_in_python(question_of(given, inputs, outputs), device, frames);
    if (calls_.size() >= kMostCalls) calls_.clear();
    calls_.insert_or_assign(std::move(key), decision);
    return decision;
  }

  nb::object run(const Decision& decision, const std::vector<Input>& inputs, std::vector<Output>& outputs,
                 const Queue& queue, const std::optional<Tensor>& prepared, How how) const {
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
    void* const weights = prepared ? prepared->data : memory.data();
    const bool lays_out = !prepared || (how.of_module && !(queue.device.gpu && captures(queue.device, queue.stream)));
    {
      const WithoutGil released;
      if (lays_out) python::prepare(decision, pointers, weights, queue.device, queue.stream);
      launch(decision, pointers, {workspace.data(), weights}, queue.device, queue.stream);
    }
    if (count == 0) return nb::none();  // what there is to know was updated
    if (count == 1) return outputs.front().object;
    nb::list all;
    for (const Output& output : outputs) all.append(output.object);
    return nb::tuple(all);
  }

  mutable std::unordered_map<std::string, std::shared_ptr<const Decision>> calls_;  // by key; the GIL guards it
};

}  // namespace

void define_op(nb::module_& m) {
  nb::class_<BoundOp>(m, "Op")
      .def(nb::init<const std::string&, std::vector<std::string>, std::vector<std::string>>())
      .def("function", &BoundOp::function, nb::keep_alive<0, 1>(), nb::arg("names"), nb::arg("required"),
           nb::arg("positional"), nb::arg("doc"))
      .def("operation", &BoundOp::operation, nb::keep_alive<0, 1>(), nb::arg("names"), nb::arg("of_module"))
      .def("prepare", &BoundOp::prepare, nb::arg("tensors"), nb::arg("fields"), nb::arg("variant").none(),
           nb::arg("stream").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("chosen_on", &BoundOp::chosen_on, nb::arg("capability"), nb::arg("tensors"), nb::arg("fields"),
           nb::arg("variant").none(), nb::arg("dtype").none(), nb::arg("plan").none())
      .def("describe", &BoundOp::describe, nb::arg("tensors"), nb::arg("fields"), nb::arg("dtype").none())
      .def_prop_ro("calls_kept", &BoundOp::calls_kept);
}

}  // namespace noisefloor::python
