#include "python/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ranges>

#include "bench/platform/build_info.h"
#include "bench/platform/processors.h"
#include "bench/platform/refusal.h"
#include "kernels/core/device.h"
#include "kernels/core/parallel.h"

namespace noisefloor::python {
namespace {

constexpr Wording kWording = {
    .give = "give the arguments", .given = "with the arguments given", .give_dtype = "give dtype=", .random = false};

std::string_view dtype_name(DType dtype) {
  return to_string(dtype);
}

void find_problem(const Question& question, Decision& decision) {
  const Op& op = *question.op;
  for (const auto& [name, shape] : question.shapes)
    if (std::ranges::count(*shape, 0) > 0)
      throw refusal("{}: '{}' is empty; every extent must be at least 1", op.name, name);
  decision.problem = infer_problem(op, question.fields, question.shapes, kWording);
  KnownTypes types = question.types;
  std::size_t output = 0;
  for (const TensorSpec& spec : op.tensors(decision.problem, op.dtypes.front())) {
    if (spec.role != Role::out || output == question.out_types.size()) continue;
    if (!question.out_types[output].empty()) types[spec.name] = question.out_types[output];
    ++output;
  }
  std::optional<DType> dtype;
  if (!question.dtype.empty()) {
    dtype = parse_dtype(question.dtype);
    if (!dtype || std::ranges::count(op.dtypes, *dtype) == 0)
      throw refusal("{}: dtype '{}' is not one of its element types: {}, or what PyTorch and NumPy call these", op.name,
                    question.dtype, fmt::join(op.dtypes | std::views::transform(dtype_name), ", "));
  }
  decision.dtype = infer_dtype(op, decision.problem, dtype, types, dtype_name, kWording);
  decision.specs = op.tensors(decision.problem, decision.dtype);
}

// Why a variant cannot run a problem there; "" where it can.
std::string obstacle(const AnyVariant& variant, const Decision& decision, const std::string& place) {
  if (variant.not_written) return "is " + why_not_written(variant);
  if (!variant.built) return fmt::format("is not in this build; it needs {}", to_string(variant.arch));
  if (!runs_on(variant.arch, decision.info->compute_capability))
    return fmt::format("needs {}, and the tensors are on {}", to_string(variant.arch), place);
#ifdef NOISEFLOOR_CUDA_ARCHITECTURES
  if (variant.arch != Arch::host && !serves_gpu(NOISEFLOOR_CUDA_ARCHITECTURES, decision.info->compute_capability))
    return fmt::format("was built for sm_{}, and the tensors are on {}, an sm_{}", NOISEFLOOR_CUDA_ARCHITECTURES, place,
                       decision.info->compute_capability);
#endif
  if (const Support support = variant.can_run(decision.problem, decision.dtype); !support) return support.reason;
  return "";
}

// The one that the plan names, where it is ours (plans know libraries, too) and can run there; else null.
const AnyVariant* planned(const Question& question, Decision& decision, const std::string& place) {
  if (!question.plan || !question.variant.empty()) return nullptr;
  const auto named = question.plan->variants.find(plan_key(*question.op, decision.dtype, decision.problem));
  if (named == question.plan->variants.end()) return nullptr;
  for (const AnyVariant& variant : question.op->variants) {
    if (variant.name != named->second) continue;
    const std::string why = obstacle(variant, decision, place);
    if (why.empty()) return &variant;
    decision.warning =
        fmt::format("plan {}: {} runs its best variant '{}' {}", question.plan->file, named->first, variant.name, why);
  }
  return nullptr;
}

// `decision` has its problem and its device; `place` is that device in words.
const AnyVariant* choose_variant(const Question& question, Decision& decision, const std::string& place) {
  const Op& op = *question.op;
  if (const AnyVariant* variant = planned(question, decision, place)) return variant;
  std::vector<std::string> names, obstacles;
  for (auto variant = op.variants.rbegin(); variant != op.variants.rend(); ++variant) {
    names.push_back(variant->name);
    if (!question.variant.empty() && question.variant != variant->name) continue;
    const std::string why = obstacle(*variant, decision, place);
    if (why.empty()) return &*variant;
    obstacles.push_back(fmt::format("variant '{}' {}", variant->name, why));
  }
  if (obstacles.empty())
    throw refusal("{} has no variant '{}'{}", op.name, question.variant, did_you_mean(question.variant, names));
  std::string text;
  for (const std::string& why : obstacles) text += (text.empty() ? "" : "; ") + why;
  throw refusal("{} cannot run {} {}: {}", op.name, to_string(decision.dtype), op.print(decision.problem), text);
}

void check_plan(const Plan& plan, const Device& device) {
  const std::string here = device.gpu ? gpu_name(device.index) : host_name();
  if (!plan.device.empty() && plan.device != here)
    throw refusal("{} is a plan for {}, and the tensors are on {}, {}", plan.file, plan.device, to_string(device),
                  here);
}

std::atomic<bool> programmatic_launch = true, launched = false, orphaned = false;

template <class Work>
void run_on(const Device& device, Stream stream, const Decision& decision, const Work& work) {
  launched.store(true, std::memory_order_relaxed);
  std::optional<CurrentGpu> current;
  if (device.gpu) current.emplace(device.index);
  const bool programmatic = programmatic_launch && decision.info->compute_capability >= kFirstProgrammatic;
  const Status status = work(LaunchContext{stream, decision.info, programmatic});
  if (status.ok()) return;
  std::string what = fmt::format("variant '{}': {}", decision.variant->name, status.what);
  if (status.code == StatusCode::cuda_error) what += ": " + cuda_error_text(status.cuda_error);
  if (status.code == StatusCode::unsupported_problem) throw InvalidInput(what);
  throw std::runtime_error(what);
}

}  // namespace

const DeviceInfo& host_info() {
  static const DeviceInfo info = [] {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    DeviceInfo host;
    host.sm_count = host_threads();
    host.l2_bytes = static_cast<std::size_t>(std::max(last_level, 0L));
    return host;
  }();
  return info;
}

std::string host_name() {
  const int cores = host_info().sm_count;
  return fmt::format("{} ({} {})", cpu_name(), cores, cores == 1 ? "core" : "cores");
}

std::string to_string(const Device& device) {
  return device.gpu ? fmt::format("GPU {}", device.index) : "the CPU";
}

std::string plan_key(const Op& op, DType dtype, const AnyProblem& problem) {
  return fmt::format("{} {} {}", op.name, to_string(dtype), op.print(problem));
}

std::string chosen_on(const Question& question, const DeviceInfo& device) {
  Decision decision = *decide(question, std::nullopt);
  decision.info = &device;
  return choose_variant(question, decision, fmt::format("a GPU of compute capability {}", device.compute_capability))
      ->name;
}

std::shared_ptr<const Decision> decide(const Question& question, const std::optional<Device>& device) {
  auto decision = std::make_shared<Decision>();
  try {
    find_problem(question, *decision);
  } catch (const InvalidInput& error) {
    const std::string what = error.what();
    throw InvalidInput(what.starts_with(question.op->name) ? what : question.op->name + ": " + what);
  }
  if (device) {
    if (question.plan) check_plan(*question.plan, *device);
    decision->info = device->gpu ? &gpu_info(device->index) : &host_info();
    decision->variant = choose_variant(question, *decision, to_string(*device));
    decision->workspace_bytes = decision->variant->workspace_bytes(decision->problem, decision->dtype, *decision->info);
    decision->prepared_bytes = decision->variant->prepared_bytes(decision->problem, decision->dtype);
  }
  return decision;
}

void prepare(const Decision& decision, const std::vector<void*>& pointers, void* prepared, const Device& device,
             Stream stream) {
  if (decision.prepared_bytes == 0) return;
  const AnyVariant& variant = *decision.variant;
  run_on(device, stream, decision, [&](const LaunchContext& context) {
    return variant.prepare(decision.problem, decision.dtype, pointers, prepared, context);
  });
}

void launch(const Decision& decision, const std::vector<void*>& pointers, const Scratch& scratch, const Device& device,
            Stream stream) {
  const AnyVariant& variant = *decision.variant;
  run_on(device, stream, decision, [&](const LaunchContext& context) {
    return variant.launch(decision.problem, decision.dtype, pointers, scratch, context);
  });
}

void after_fork(bool with_torch) {
  if (launched || with_torch) orphaned = true;
}

void check_fork(const Op& op) {
  if (orphaned.load(std::memory_order_relaxed))
    throw std::runtime_error(
        op.name +
        ": this process was forked from one that had called an op, or had imported PyTorch: it lacks its threads and "
        "its GPU. Start it by another method (multiprocessing.get_context('spawn')), or fork before");
}

bool set_programmatic_launch(bool on) {
  return programmatic_launch.exchange(on);
}

}  // namespace noisefloor::python
