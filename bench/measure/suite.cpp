#include "bench/measure/suite.h"

namespace noisefloor {

ImplementationPtr SuiteEntry::find(std::string_view implementation) const {
  for (const ImplementationPtr& one : implementations)
    if (one->name == implementation) return one;
  return nullptr;
}

const SuiteEntry* Suite::find(std::string_view workload) const {
  for (const SuiteEntry& entry : entries_)
    if (entry.name() == workload) return &entry;
  return nullptr;
}

void Suite::add(std::string_view workload, ImplementationPtr row) {
  const_cast<SuiteEntry*>(find(workload))->implementations.push_back(std::move(row));
}

}  // namespace noisefloor
