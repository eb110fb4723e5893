// A baseline that is one cuDNN graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"

namespace noisefloor::cudnn {

// The pointers that Graph::execute takes, from those of Op::tensors.
using BindPointers = std::function<std::vector<void*>(std::span<void* const>)>;

class GraphRun final : public BaselineRun {
 public:
  GraphRun(std::unique_ptr<Graph> graph, BindPointers bind);  // builds the graph; throws LibraryRefused

  std::size_t workspace_bytes() const override { return graph_->workspace_bytes(); }
  Status tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) override;
  Status launch(std::span<void* const>, const Scratch&, const LaunchContext&) override;
  std::string description() const override { return description_; }

 private:
  std::unique_ptr<Graph> graph_;
  BindPointers bind_;
  int chosen_ = -1;  // plan; -1 before tune
  std::string description_;
};

}  // namespace noisefloor::cudnn
