#include "baselines/cudnn_run.h"

#include <algorithm>

namespace noisefloor::cudnn {

TunedGraph::TunedGraph(std::unique_ptr<Graph> graph, double seconds, const Algorithms& earlier, std::size_t word)
    : graph_(std::move(graph)) {
  if (earlier.empty()) {
    graph_->build(seconds);
    return;
  }
  if (earlier.size() < word + 2) throw LibraryRefused("an earlier choice lacks a plan");
  const std::string &cold = earlier[word], &warm = earlier[word + 1];
  graph_->build(seconds, {cold, warm});
  chosen_ = {graph_->plan_named(cold), graph_->plan_named(warm)};
}

Status TunedGraph::tune(std::span<void* const> pointers, void* workspace, Stream stream, Ranker& ranker,
                        const Launch& judged) {
  const auto whole = [&](int plan) {
    chosen_ = {plan, plan};
    return judged();
  };
  const Found found = search(
      ranker, graph_->plans(), [&](int plan) { return graph_->execute(plan, pointers, workspace, stream); },
      judged ? whole : std::function<Status(int)>());
  chosen_ = found.algorithm;
  tally_ = found.tally;
  return found.status;
}

Status TunedGraph::execute(Caches caches, std::span<void* const> pointers, void* workspace, Stream stream) {
  if (chosen_.of(caches) < 0) return failure(StatusCode::invalid_argument, "launch before tune");
  return graph_->execute(chosen_.of(caches), pointers, workspace, stream);
}

ColdWarm<std::string> TunedGraph::names() const {
  return {graph_->plan_name(chosen_.cold), graph_->plan_name(chosen_.warm)};
}

void TunedGraph::append_algorithms(Algorithms& words) const {
  words.push_back(names().cold);
  words.push_back(names().warm);
}

std::string TunedGraph::description() const {
  return "plan " + names_of(names()) + "; " + tally_ + "; " + graph_->tally();
}

std::size_t GraphsRun::workspace_bytes() const {
  std::size_t most = 0;
  for (const Stage& stage : stages_) most = std::max(most, stage.graph.workspace_bytes());
  return own_bytes_ + most;
}

static void* behind(const Scratch& scratch, std::size_t own_bytes) {
  return scratch.workspace == nullptr ? nullptr : static_cast<char*>(scratch.workspace) + own_bytes;
}

Status GraphsRun::tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                       Ranker& ranker) {
  // What stands behind the first graph first: with it the first is judged.
  for (std::size_t i = stages_.size(); i-- > 0;) {
    const auto judged = [&] { return launch(pointers, scratch, context, Caches::cold); };
    const Status status = stages_[i].graph.tune(stages_[i].bind(pointers, scratch), behind(scratch, own_bytes_),
                                                context.stream, ranker, i == 0 ? judged : TunedGraph::Launch());
    if (!status.ok()) return status;
    if (i > 0) stages_[i].graph.use_warm_always();
  }
  return success();
}

Status GraphsRun::launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                         Caches caches) {
  for (Stage& stage : stages_) {
    const Status status =
        stage.graph.execute(caches, stage.bind(pointers, scratch), behind(scratch, own_bytes_), context.stream);
    if (!status.ok()) return status;
  }
  return success();
}

std::string GraphsRun::description() const {
  std::string text;
  for (const Stage& stage : stages_) text += (text.empty() ? "cuDNN " : ", then ") + stage.graph.description();
  return text;
}

Algorithms GraphsRun::algorithms() const {
  Algorithms words;
  for (const Stage& stage : stages_) stage.graph.append_algorithms(words);
  return words;
}

std::unique_ptr<GraphsRun> run_of_graph(std::unique_ptr<Graph> graph, double seconds, const Algorithms& earlier,
                                        GraphsRun::Bind bind) {
  std::vector<GraphsRun::Stage> stages;
  stages.push_back({{std::move(graph), seconds, earlier, 0}, std::move(bind)});
  return std::make_unique<GraphsRun>(std::move(stages), 0);
}

}  // namespace noisefloor::cudnn
