#include "bench/sweep/suite.h"

#include "bench/pipeline/executor.h"
#include "bench/sweep/workers.h"
#include "kernels/catalogue.h"

namespace noisefloor {
namespace {

void add_pytorch(SuiteEntry& entry) {
  for (ImplementationPtr& row : pytorch_implementations(entry.name())) entry.implementations.push_back(std::move(row));
}

std::vector<SuiteEntry> ops() {
  std::vector<SuiteEntry> entries;
  for (const Op& op : catalogue()) {
    SuiteEntry entry{&op, {}, oracle_of(op)};
    for (const AnyVariant& variant : op.variants) entry.implementations.push_back(implementation_of(variant));
    for (const Baseline& baseline : baselines())
      if (op.name == baseline.op) entry.implementations.push_back(implementation_of(baseline, op, kept_searches()));
    add_pytorch(entry);
    entries.push_back(std::move(entry));
  }
  return entries;
}

Suite& all_entries() {
  static const Suite nodes(ops());
  static Suite all = [] {
    std::vector<SuiteEntry> entries = nodes.entries();
    entries.push_back(pipeline::network_entry(nodes));
    add_pytorch(entries.back());
    return Suite(std::move(entries));
  }();
  return all;
}

}  // namespace

const std::shared_ptr<SearchCache>& kept_searches() {
  static const std::shared_ptr<SearchCache> cache = SearchCache::of_user();
  return cache;
}

const Suite& suite() {
  return all_entries();
}

void add_to_suite(const std::string& op, ImplementationPtr row) {
  all_entries().add(op, std::move(row));
}

}  // namespace noisefloor
