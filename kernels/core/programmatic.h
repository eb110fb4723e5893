// Programmatic dependent launch.
#pragma once

namespace noisefloor {

inline constexpr int kFirstProgrammatic = 90;  // the first compute capability that has it

}  // namespace noisefloor
