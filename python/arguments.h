// The arguments of a call from Python: which are tensors, which fields, and what they must be.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "python/call.h"
#include "python/queue.h"
#include "python/tensor.h"

namespace noisefloor::python {

// The op of that name; InvalidInput where there is none.
const Op& required(const std::string& op);
// fp32 of float32 and torch.float32, as frameworks call it; other texts as they are.
std::string short_dtype(std::string text);
// The plan of a call: that of plan=, a noisefloor.Plan or the file of one; of None that of `use_plan`, or null.
std::shared_ptr<const Plan> plan_of_call(nanobind::handle plan);  // plan.cpp

// Of one op, with its tensors in the order of `tensors_` and its fields in that of `fields_`. A name that is both, as a
// bias and whether there is one, stands among the tensors alone, and takes either. Every function throws InvalidInput
// or nb::type_error with the op's name and the argument's.
class Arguments {
 public:
  Arguments(const std::string& op, std::vector<std::string> tensors, std::vector<std::string> fields);

 protected:
  using Items = std::vector<PyObject*>;
  // Fields' values in the order of `fields_`, none of those in `text`.
  struct Fields {
    std::span<PyObject* const> values;
    nanobind::handle text = Py_None;
  };
  // What was given beside outputs and streams.
  struct Given {
    std::span<PyObject* const> tensors;
    Fields fields;
    nanobind::handle variant, dtype;
    std::shared_ptr<const Plan> plan;
  };
  struct Input : Tensor {
    std::size_t place = 0;    // in tensors_
    bool only_shape = false;  // which has no data, and no type
  };
  struct Output {
    nanobind::object object = nanobind::none();
    std::optional<Tensor> tensor;  // none: not given
  };

  Items items(const nanobind::tuple& tuple, const std::vector<std::string>& names) const;
  enum class Taken { aligned, shapes_too, at_any_address };  // the last of PyTorch, by copies where it must
  std::vector<Input> read_inputs(std::span<PyObject* const> tensors, Taken taken, const Gradients& gradients,
                                 nanobind::object& like) const;
  // `like` becomes the first that is given.
  std::vector<Output> read_outputs(nanobind::handle out, const Gradients& gradients, nanobind::object& like) const;
  // The memory of prepared weights, which must be as many bytes as the call's variant prepares there.
  Tensor read_prepared(nanobind::handle prepared, const Given& given, const Decision& decision,
                       const Queue& queue) const;
  // In the order of the specs; null for outputs, and where only a shape was given.
  std::vector<void*> pointers_of(const Decision& decision, const std::vector<Input>& inputs) const;
  std::vector<KeyValue> split_fields(const std::string& text) const;
  // Without its inputs and outputs.
  Question ask(const Given& given) const;
  Question question_of(const Given& given, const std::vector<Input>& inputs, const std::vector<Output>& outputs) const;
  // What decides a call, as bytes: equal bytes are calls of one problem, variant and device.
  std::string key_of(const Given& given, const std::vector<Input>& inputs, const std::vector<Output>& outputs,
                     const Device& device) const;
  // "" of None, which is not given.
  std::string word(const char* argument, nanobind::handle given) const;
  Question ask_of_shapes(const nanobind::tuple& tensors, nanobind::handle fields, nanobind::handle variant,
                         nanobind::handle dtype, nanobind::handle plan) const;
  // Whether it is the value of a field whose name a tensor has, too.
  bool is_field(std::size_t tensor, nanobind::handle given) const;
  // Of the output of that number, the op's `spec`.
  void check_output(const TensorSpec& spec, const std::vector<Output>& outputs, std::size_t number,
                    const Device& device, const std::vector<Input>& inputs,
                    const std::optional<Tensor>& prepared) const;

  Name name(std::string_view argument) const { return {op_->name, argument}; }
  std::string named(const std::string& argument) const { return op_->name + ": '" + argument + "'"; }

  const Op* op_;
  std::vector<std::string> tensors_, fields_;
  std::vector<bool> updated_;  // whether a call writes into the tensor of that number

 private:
  std::vector<bool> shared_;  // whether a field has the tensor's name
};

}  // namespace noisefloor::python
