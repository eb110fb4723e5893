#include "baselines/cudnn_run.h"

namespace noisefloor::cudnn {
namespace {
constexpr double kBuildSeconds = 4;
}

GraphRun::GraphRun(std::unique_ptr<Graph> graph, BindPointers bind) : graph_(std::move(graph)), bind_(std::move(bind)) {
  graph_->build(kBuildSeconds);
}

Status GraphRun::tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                      Ranker& ranker) {
  const auto bound = bind_(pointers);
  const Ranking ranking = ranker.rank(
      graph_->plans(), [&](int plan) { return graph_->execute(plan, bound, scratch.workspace, context.stream); });
  if (!ranking.status.ok()) return ranking.status;
  chosen_ = ranking.fastest.front().index;
  description_ =
      "cuDNN plan " + graph_->plan_name(chosen_) + "; best of " + std::to_string(ranking.ran) + graph_->cut_from();
  return success();
}

Status GraphRun::launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) {
  if (chosen_ < 0) return failure(StatusCode::invalid_argument, "launch before tune");
  return graph_->execute(chosen_, bind_(pointers), scratch.workspace, context.stream);
}

}  // namespace noisefloor::cudnn
