#include "baselines/cudnn_run.h"

namespace noisefloor::cudnn {
namespace {
constexpr double kBuildSeconds = 4;
}

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

GraphRun::GraphRun(std::unique_ptr<Graph> graph, const Algorithms& earlier, BindPointers bind)
    : graph_(std::move(graph), kBuildSeconds, earlier, 0), bind_(std::move(bind)) {}

Status GraphRun::tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                      Ranker& ranker) {
  return graph_.tune(bind_(pointers), scratch.workspace, context.stream, ranker,
                     [&] { return launch(pointers, scratch, context, Caches::cold); });
}

Status GraphRun::launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                        Caches caches) {
  return graph_.execute(caches, bind_(pointers), scratch.workspace, context.stream);
}

Algorithms GraphRun::algorithms() const {
  Algorithms words;
  graph_.append_algorithms(words);
  return words;
}

}  // namespace noisefloor::cudnn
