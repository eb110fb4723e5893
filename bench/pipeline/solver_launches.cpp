#include "bench/pipeline/solver_launches.h"

namespace noisefloor::pipeline {

void SolverLaunches::choose(const Op& op, const std::string& name, const AnyProblem& problem) {
  const std::string text = op.print(problem);
  const CountedProblem counted{&op, text, DType::fp32, 1};
  const Plan plan(*platform_, executor_->nodes(), {counted}, {});
  choices_.emplace(name, Choice{plan.choice(problem_id(counted)), plan.warm_us(problem_id(counted))});
}

void SolverLaunches::launch(const Op& op, const std::string& name, const AnyProblem& problem,
                            std::span<void* const> pointers) {
  const ProblemId id{op.name, op.print(problem), to_string(DType::fp32)};
  const auto& [implementation, warm_us] = choices_.at(name);
  auto& runner = runners_[id];
  KnownTimes nothing;
  if (!runner) runner = implementation->make(*platform_, problem, DType::fp32, nothing);
  LaunchListener* listener = executor_->listener();
  if (listener != nullptr) listener->before({{id, implementation->name}, "sampler." + name, warm_us});
  LaunchContext context = platform_->context();
  context.programmatic_launch = executor_->programmatic();
  throw_if_failed(runner->launch(pointers, {}, context));
  if (listener != nullptr) listener->after();
}

}  // namespace noisefloor::pipeline
