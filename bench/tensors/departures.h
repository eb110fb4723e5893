// Which fields with a default may have to depart from it, for a problem to have given tensors.
#pragma once

#include <string>
#include <vector>

#include "bench/tensors/shape_fit.h"

namespace noisefloor {

struct Departure {
  const FieldInfo* field;
  std::string value;
};
FieldValues with(FieldValues values, const Departure& departure);

struct Departures {
  FieldValues base;  // from which they depart: integers near the tensors'
  // Those that change the inputs, or make a problem of what is none, alone or beside one more choice. All others keep
  // their default whatever the tensors are, so that few are left to be combined.
  std::vector<Departure> useful;
};
Departures departures_from(const FieldValues& values, const Workload& op, const FieldValues& given, ShapeFit& fit);

}  // namespace noisefloor
