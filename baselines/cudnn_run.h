// cuDNN graphs with the plans that a search chose, and a baseline of such graphs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"
#include "baselines/search.h"

namespace noisefloor::cudnn {

// Seconds for the plans of a graph; of convolutions, whose engines compile in up to a second each.
inline constexpr double kBuildSeconds = 4, kBuildConvolutionSeconds = 12;

class TunedGraph {
 public:
  // Builds the plans that `seconds` allow, or those of an earlier choice: two of its words, from `word` on. Throws
  // LibraryRefused.
  TunedGraph(std::unique_ptr<Graph> graph, double seconds, const Algorithms& earlier, std::size_t word);

  std::size_t workspace_bytes() const { return graph_->workspace_bytes(); }
  using Launch = std::function<Status()>;
  // `pointers` and `workspace` as of execute. `judged` enqueues, with the plan that is tried here, all that it takes to
  // make the outputs; empty: it is judged elsewhere.
  Status tune(std::span<void* const> pointers, void* workspace, Stream stream, Ranker& ranker, const Launch& judged);
  // After tune, of a graph whose input is always what a launch just before left in cache.
  void use_warm_always() { chosen_.cold = chosen_.warm; }
  Status execute(Caches caches, std::span<void* const> pointers, void* workspace, Stream stream);

  void append_algorithms(Algorithms& words) const;
  std::string description() const;

 private:
  ColdWarm<std::string> names() const;

  std::unique_ptr<Graph> graph_;
  ColdWarm<int> chosen_{-1, -1};  // plans; -1 before tune
  std::string tally_;
};

// Graphs that run one after the other; the first one's engines are judged with all of them.
class GraphsRun : public BaselineRun {
 public:
  // The pointers that Graph::execute takes, from those of Op::tensors.
  using Bind = std::function<std::vector<void*>(std::span<void* const>, const Scratch&)>;
  struct Stage {
    TunedGraph graph;
    Bind bind;
  };

  // The first `own_bytes` of the workspace are memory that stages share.
  GraphsRun(std::vector<Stage> stages, std::size_t own_bytes) : stages_(std::move(stages)), own_bytes_(own_bytes) {}

  std::size_t workspace_bytes() const override;
  Status tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) override;
  Status launch(std::span<void* const>, const Scratch&, const LaunchContext&, Caches) override;
  std::string description() const override;
  Algorithms algorithms() const override;

 private:
  std::vector<Stage> stages_;
  std::size_t own_bytes_;
};

// Of one graph, whose plans are built in `seconds`. Throws LibraryRefused.
std::unique_ptr<GraphsRun> run_of_graph(std::unique_ptr<Graph> graph, double seconds, const Algorithms& earlier,
                                        GraphsRun::Bind bind);

}  // namespace noisefloor::cudnn
