// What a user is told while one case takes long: that it will, and later where it is. Nothing is said while something
// is timed: a thread that woke up beside it would take a core of the host's.
#pragma once

#include <functional>
#include <string>

namespace noisefloor {

std::string duration_text(double seconds);  // "59s", "1m00s"

class CaseProgress {
 public:
  using Say = std::function<void(const std::string&)>;
  using Clock = std::function<double()>;  // seconds that never go back

  // Without `say` nothing is said; without `clock` it is the steady one.
  explicit CaseProgress(Say say, Clock clock = {});

  // A case begins. `launch_seconds` is the least that a launch of it can take, 0 where nobody knows.
  void begin(std::string name, double launch_seconds);
  // What comes next.
  void enter(std::string phase);
  // Where nothing is timed: says how long the case has taken, after ten seconds, every ten up to a minute, then every
  // minute.
  void between();

  bool silent() const { return !say_; }

 private:
  Say say_;
  Clock clock_;
  std::string name_, phase_;
  double begin_ = 0, due_ = 0;  // by the clock
};

}  // namespace noisefloor
