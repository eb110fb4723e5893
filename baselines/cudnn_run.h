// A baseline whose candidates are cuDNN graphs that say the same thing in different layouts, times the plans of each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"

namespace noisefloor::cudnn {

struct GraphChoice {
  std::string name;  // of the layout, for the description
  std::unique_ptr<Graph> graph;
};

// The pointers that Graph::execute takes, from those of Op::tensors.
using BindPointers = std::function<std::vector<void*>(std::span<void* const>)>;

class GraphRun final : public BaselineRun {
 public:
  // Builds the graphs; those that cuDNN refuses are left out. Throws std::runtime_error with its words when it refuses
  // all.
  GraphRun(std::vector<GraphChoice> choices, BindPointers bind);

  std::size_t workspace_bytes() const override { return workspace_; }
  Status tune(std::span<void* const> pointers, void* workspace, const LaunchContext& context) override;
  Status launch(std::span<void* const> pointers, void* workspace, const LaunchContext& context) override;
  std::string description() const override { return description_; }

 private:
  struct Candidate {
    std::size_t choice;
    int plan;
  };
  Status execute(const Candidate& candidate, std::span<void* const> pointers, void* workspace, Stream stream);

  std::vector<GraphChoice> choices_;
  BindPointers bind_;
  std::vector<Candidate> candidates_;
  std::size_t workspace_ = 0;
  int chosen_ = -1;
  std::string description_;
};

}  // namespace noisefloor::cudnn
