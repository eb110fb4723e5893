// Ordinary edges between kernels have two levels, a fifth apart. They become long once kernels of this process have run
// on eight streams or so, as in cuDNN's search, and short again when another process has used the GPU
// (docs/experiments/measuring). So that all rows are timed at one level, another process is asked for a launch where
// they are long.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace noisefloor {

inline constexpr int kEdgeSamples = 4;  // of a look, which takes half a millisecond

class ShortEdges {
 public:
  using Time = std::function<std::vector<double>(int samples)>;  // of an edge, in microseconds; empty: there are none
  using Turn = std::function<void()>;  // another process launches a kernel; throws where none can

  // Times edges: whatever is made long is made so later. Without a turn edges stay as they are. A turn that did not
  // help is not asked for again before edges were short by themselves (at a lower clock they are long, too).
  ShortEdges(Time time, Turn turn);

  // `samples` times of an edge, behind that turn where they had become long.
  std::vector<double> settle(int samples);

  // Why the last turn could not be had, once; else empty.
  std::string take_message();

 private:
  Time time_;
  Turn turn_;
  double shortest_us_ = 0;  // 0: none
  bool in_vain_ = false;
  std::string message_;
};

}  // namespace noisefloor
