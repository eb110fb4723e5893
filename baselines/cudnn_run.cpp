#include "baselines/cudnn_run.h"

#include <algorithm>
#include <stdexcept>

#include "baselines/tuning.h"

namespace noisefloor::cudnn {
namespace {
constexpr double kBuildSeconds = 4;  // per problem
}

GraphRun::GraphRun(std::vector<GraphChoice> choices, BindPointers bind) : bind_(std::move(bind)) {
  std::string refusal;
  for (GraphChoice& choice : choices) {
    try {
      choice.graph->build(kBuildSeconds / static_cast<double>(choices.size()));
    } catch (const std::runtime_error& error) {
      refusal += (refusal.empty() ? "" : "; ") + choice.name + ": " + error.what();
      continue;
    }
    for (int plan = 0; plan < choice.graph->plans(); ++plan) candidates_.push_back({choices_.size(), plan});
    workspace_ = std::max(workspace_, choice.graph->workspace_bytes());
    choices_.push_back(std::move(choice));
  }
  if (choices_.empty()) throw std::runtime_error(refusal);
}

Status GraphRun::execute(const Candidate& candidate, std::span<void* const> pointers, void* workspace, Stream stream) {
  return choices_[candidate.choice].graph->execute(candidate.plan, bind_(pointers), workspace, stream);
}

Status GraphRun::tune(std::span<void* const> pointers, void* workspace, const LaunchContext& context) {
  const Tuned tuned = rank_candidates(
      static_cast<int>(candidates_.size()),
      [&](int i) { return execute(candidates_[static_cast<std::size_t>(i)], pointers, workspace, context.stream); },
      context);
  if (!tuned.status.ok()) return tuned.status;
  chosen_ = tuned.ranking.front().index;
  const Candidate& best = candidates_[static_cast<std::size_t>(chosen_)];
  const GraphChoice& choice = choices_[best.choice];
  description_ = "cuDNN plan " + choice.graph->plan_name(best.plan) + " in layout " + choice.name + "; best of " +
                 std::to_string(tuned.ran) + " plans";
  return success();
}

Status GraphRun::launch(std::span<void* const> pointers, void* workspace, const LaunchContext& context) {
  if (chosen_ < 0) return failure(StatusCode::invalid_argument, "launch before tune");
  return execute(candidates_[static_cast<std::size_t>(chosen_)], pointers, workspace, context.stream);
}

}  // namespace noisefloor::cudnn
