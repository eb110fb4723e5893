// A call of an op from Python, without Python: which problem its tensors are, and which variant runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor::python {

struct Device {
  bool gpu = false;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(const Device& device);  // "the CPU", "GPU 0"

// What decides a call: everything but where the tensors lie.
struct Question {
  struct Tensor {
    const char* name;
    std::optional<DType> dtype;  // none: only its shape is known
    std::vector<std::int64_t> shape;
  };
  const Op* op = nullptr;
  std::vector<Tensor> inputs;
  std::vector<KeyValue> fields;        // those that were given
  std::vector<std::string> out_types;  // of the outputs that were given, in the op's order; "" for one that was not
  std::string dtype, variant;          // "": not given

  std::string key() const;  // equal keys are equal questions
};

struct Decision {
  AnyProblem problem;
  DType dtype = DType::fp32;
  std::vector<TensorSpec> specs;
  // Of the device that was asked for:
  const AnyVariant* variant = nullptr;
  const DeviceInfo* info = nullptr;
  std::size_t workspace_bytes = 0, prepared_bytes = 0;
};

// The problem; with a device also the variant: the one that was asked for, or the best of the ladder that can run it
// there. What was asked before is remembered. Throws InvalidInput with the argument and what it had to be. Threads may
// call it at once.
std::shared_ptr<const Decision> decide(const Question& question, const std::optional<Device>& device);

// Both: pointers in the order of the specs. On the host they return when the work is done. Throw InvalidInput and
// std::runtime_error. What `prepare` writes follows the weights, the dtype and the fields but for the extents of other
// tensors: images of any number and size may share it.
inline constexpr char kPreparedTensor[] = "w";  // what every variant prepares from that prepares at all
void prepare(const Decision& decision, const std::vector<void*>& pointers, void* prepared, const Device& device,
             Stream stream);
void launch(const Decision& decision, const std::vector<void*>& pointers, const Scratch& scratch, const Device& device,
            Stream stream);

// Small problems of an op, at most `count`, drawn at random and the same for a seed: those whose fields have their
// defaults first. They show which tensors the op has, and which fields their shapes follow.
struct Sample {
  std::vector<KeyValue> values;  // of every field
  std::vector<TensorSpec> specs;
  std::vector<bool> row_dtype;  // whether a tensor's type is that of the row
};
std::vector<Sample> samples(const Op& op, std::uint64_t seed, std::size_t count);
// Whether names, shapes or number of the inputs follow a field, in any of the samples.
bool moves_inputs(const Op& op, const FieldInfo& field, const std::vector<Sample>& samples);

}  // namespace noisefloor::python
