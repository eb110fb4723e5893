// What a row stays true by: as long as its signatures are the same, its numbers are, whatever the commit.
//
// The launch's (column signature) is of what is timed. Of our variants and of whole networks it is of all that one
// launch and the preparing of its weights run (bench/counters/launch_signature.h). Of a library's row it is the
// libraries' versions, the driver and the files that call them; of PyTorch's its versions, mode and files; of a host's
// its sources, compiler and processor. The verification's (column verification) is of the reference's sources and the
// tolerance: where only that differs, a row is verified again and keeps its times. The phases' (column phases) are
// versions of the code that measures, raised by hand, and only where rows of equal code move.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/platform/platform.h"

namespace noisefloor {

class BoundCase;
class CodeWatch;
class Worker;

using PhaseVersions = std::vector<std::pair<std::string, int>>;
// As docs/columns.md names them.
inline const PhaseVersions kPhaseVersions = {{"cold", 1},    {"warm", 1},     {"serial", 1},
                                             {"weights", 1}, {"counters", 1}, {"pair", 1}};
inline constexpr int kVerificationVersion = 1;

// Whether a row (column phases) has a phase as this program measures it, and what says that it has.
bool has_phase(std::string_view phases, const std::string& phase, const PhaseVersions& versions);
void set_phase(std::string& phases, const std::string& phase, const PhaseVersions& versions);

class Signatures {
 public:
  // The platform must outlive it; `watch` too, and may be null: launches then have no signature.
  Signatures(Platform& platform, CodeWatch* watch) : platform_(&platform), watch_(watch) {}

  // Of a case whose signature needs no launch; `worker` is PyTorch's. Nothing for all others, and for plugins' rows,
  // which are measured anew.
  std::optional<std::string> without_launch(const Case& test_case, Worker* worker) const;
  // Of all others, after a launch of it. Throws std::runtime_error saying why there is none.
  std::string of_launch(BoundCase& bound) const;
  std::string of_verification(const Case& test_case) const;  // empty where the op's sources are not known

 private:
  Platform* platform_;
  CodeWatch* watch_;
};

}  // namespace noisefloor
