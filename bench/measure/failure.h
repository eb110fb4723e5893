// What went wrong with a case, as its row says it.
#pragma once

#include <stdexcept>
#include <string>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Other programs had the cores for too long.
class Throttled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Failure {
  Outcome outcome = Outcome::cuda_error;
  std::string reason;
  bool lost = false;  // the device is gone for this process
};

// Of the exception that is being handled.
Failure current_failure();

}  // namespace noisefloor
