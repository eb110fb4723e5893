// A call of an op from Python, without Python: which problem its tensors are, which variant runs it, and where.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/problem_inference.h"
#include "kernels/core/op.h"

namespace noisefloor::python {

struct Device {
  bool gpu = false;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(const Device& device);  // "the CPU", "GPU 0"

// Of the host, or of the GPU of that number, asked once. Throws std::runtime_error where there is no such GPU, and in a
// build without CUDA.
const DeviceInfo& host_info();
const DeviceInfo& gpu_info(int index);
// As env.json of a run has it: "NVIDIA H200", "AMD EPYC 9654 96-Core Processor (96 cores)".
std::string host_name();
std::string gpu_name(int index);

// Makes a GPU the current one for as long as it lives.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

bool is_current(const Device& device);

// Whether a CUDA graph is capturing the stream, which then runs nothing.
bool captures(const Device& device, Stream stream);
void wait_for(const Device& device, Stream stream);

std::string cuda_error_text(int error);

// Which variant each problem runs, as measured on one device.
struct Plan {
  std::string file, device;                     // device "": it is not known
  std::map<std::string, std::string> variants;  // by plan_key
  std::uint64_t number = 0;                     // another for each plan
};
std::string plan_key(const Op& op, DType dtype, const AnyProblem& problem);

// What decides a call: everything but where the tensors lie.
struct Question {
  const Op* op = nullptr;
  KnownShapes shapes;                  // of the inputs
  KnownTypes types;                    // of those that are more than a shape
  std::vector<KeyValue> fields;        // those that were given
  std::vector<std::string> out_types;  // of the outputs that were given, in the op's order; "" for one that was not
  std::string dtype, variant;          // "": not given
  std::shared_ptr<const Plan> plan;    // null: none; asked where no variant is given
};

struct Decision {
  AnyProblem problem;
  DType dtype = DType::fp32;
  std::vector<TensorSpec> specs;
  // Of the device that was asked for:
  const AnyVariant* variant = nullptr;
  const DeviceInfo* info = nullptr;
  std::size_t workspace_bytes = 0, prepared_bytes = 0;
  std::string warning;  // why the plan's variant is not the one; "" where nothing stood against it
};

// The problem; with a device also the variant: the one that was asked for, else the plan's where it names one
// of ours that can run there, else the best that can. Throws InvalidInput with the argument
// and what it had to be, and for a plan of another device. Threads may call it at once.
std::shared_ptr<const Decision> decide(const Question& question, const std::optional<Device>& device);
// The variant that it would be on such a device, which need not be here; the plan's device is not asked.
std::string chosen_on(const Question& question, const DeviceInfo& device);

// Both: pointers in the order of the specs. On the host they return when the work is done. Throw InvalidInput and
// std::runtime_error. What `prepare` writes follows the weights, the dtype and the fields but for the extents of other
// tensors: images of any number and size may share it.
// What variants prepare from that prepare at all.
inline constexpr std::array<std::string_view, 2> kPreparedTensors = {"w", "w_side"};
void prepare(const Decision& decision, const std::vector<void*>& pointers, void* prepared, const Device& device,
             Stream stream);
void launch(const Decision& decision, const std::vector<void*>& pointers, const Scratch& scratch, const Device& device,
            Stream stream);
// For a child of fork, which has neither OpenMP's threads nor the GPU's context, and would wait for them for ever:
// `check_fork` throws std::runtime_error in a child whose parent had launched, or had PyTorch, whose OpenMP is ours.
void after_fork(bool with_torch);
void check_fork(const Op& op);
// Whether launches of ours on sm_90 and newer may overlap with the kernel before (LaunchContext): of the whole process,
// on at first. Returns what it was.
bool set_programmatic_launch(bool on);

}  // namespace noisefloor::python
