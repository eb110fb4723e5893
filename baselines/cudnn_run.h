// cuDNN graphs with the plans that a search chose, and a baseline that is one such graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"
#include "baselines/search.h"

namespace noisefloor::cudnn {

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

// The pointers that Graph::execute takes, from those of Op::tensors.
using BindPointers = std::function<std::vector<void*>(std::span<void* const>)>;

class GraphRun final : public BaselineRun {
 public:
  GraphRun(std::unique_ptr<Graph> graph, const Algorithms& earlier, BindPointers bind);  // throws LibraryRefused

  std::size_t workspace_bytes() const override { return graph_.workspace_bytes(); }
  Status tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) override;
  Status launch(std::span<void* const>, const Scratch&, const LaunchContext&, Caches) override;
  std::string description() const override { return "cuDNN " + graph_.description(); }
  Algorithms algorithms() const override;

 private:
  TunedGraph graph_;
  BindPointers bind_;
};

}  // namespace noisefloor::cudnn
