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

class EdgeLatency {
 public:
  using Time = std::function<std::vector<double>(int samples)>;  // of an edge, in microseconds; empty: there are none
  using Turn = std::function<void()>;                   // another process launches a kernel; throws where none can
  using Say = std::function<void(const std::string&)>;  // gets why one could not, once

  // Times edges: whatever is made long is made so later. Without a turn edges stay as they are. A turn that did not
  // help is not asked for again before edges were short by themselves (at a lower clock they are long, too).
  EdgeLatency(Time time, Turn turn, Say say = {});

  // `samples` times of an edge, behind that turn where they had become long.
  std::vector<double> settle(int samples);

 private:
  Time time_;
  Turn turn_;
  Say say_;
  double shortest_us_ = 0;  // 0: none
  bool in_vain_ = false;
  std::string said_;
};

}  // namespace noisefloor
