// A gemm on the host with the variants of a GPU: every one is the host's variant under another name, its launches are
// counted, and a test may spoil what they leave. And platforms that say they are a GPU.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {

// What `Base` does on the host, said to be a GPU's.
template <class Base = WrappedHost>
class HostAsGpu : public Base {
 public:
  template <class... Arguments>
  explicit HostAsGpu(int compute_capability, Arguments... arguments) : Base(arguments...) {
    this->description_.is_host = false;
    this->description_.info.compute_capability = compute_capability;
  }
};

class CountedVariants {
 public:
  explicit CountedVariants(const std::vector<VariantInfo>& infos) : op_(*find_op("gemm")) {
    op_.variants.clear();
    for (const VariantInfo& info : infos) {
      AnyVariant& variant = op_.variants.emplace_back(host_gemm());
      variant.name = info.name;
      variant.kind = info.kind;
      variant.arch = info.arch;
      variant = launched_by(variant, [this, name = variant.name](const auto& own, auto pointers, const auto&) {
        ++launches[name];
        if (const Status status = own(pointers); !status.ok()) return status;
        const auto last = then.find(name);
        return last == then.end() ? success() : last->second(pointers.back());
      });
      variant.can_run = [this, name = variant.name](const AnyProblem&, DType) {
        return unable.contains(name) ? unsupported("as the test has it") : supported();
      };
    }
    for (const AnyVariant& variant : op_.variants) variants_.push_back(implementation_of(variant));
    suite_ = Suite({{&op_, variants_, oracle_of(op_)}});
  }
  CountedVariants(const CountedVariants&) = delete;  // the variants point into it

  Op& op() { return op_; }
  const Op& op() const { return op_; }
  const Suite& suite() const { return suite_; }
  const SuiteEntry& entry() const { return suite_.entries().front(); }
  const Implementation& named(std::string_view name) const { return *entry().find(name); }

  // By variant.
  std::map<std::string, int> launches;
  std::map<std::string, std::function<Status(void* output)>> then;  // what a launch does at last
  std::set<std::string> unable;                                     // to run the problem

 private:
  Op op_;
  std::vector<ImplementationPtr> variants_;
  Suite suite_{{}};
};

// The host's variant twice, as `first` and `second`, so that there is something to choose on any machine.
inline const Suite& two_ways() {
  const AnyVariant& host = host_gemm();
  static const CountedVariants all({{"first", host.kind, host.arch}, {"second", host.kind, host.arch}});
  return all.suite();
}

}  // namespace noisefloor
