#include "bench/measure/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "baselines/baseline.h"
#include "bench/counters/launch_signature.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/worker.h"
#include "bench/platform/build_info.h"
#include "bench/platform/fingerprint.h"
#include "bench/platform/processors.h"

namespace noisefloor {
namespace {

// ";cold=1;warm=1" holds ";cold=" and behind it the version.
std::string entry_of(const std::string& phase) {
  return ";" + phase + "=";
}

int version_of(const std::string& phase, const PhaseVersions& versions) {
  return std::ranges::find(versions, phase, &PhaseVersions::value_type::first)->second;
}

// A network is put together from all ops.
std::string sources_of(const Case& test_case) {
  return test_case.entry->whole_networks ? build_info().digests : build_info().digest_of(test_case.entry->name());
}

}  // namespace

bool has_phase(std::string_view phases, const std::string& phase, const PhaseVersions& versions) {
  const std::string all = fmt::format(";{};", phases);
  return all.find(fmt::format("{}{};", entry_of(phase), version_of(phase, versions))) != std::string::npos;
}

void set_phase(std::string& phases, const std::string& phase, const PhaseVersions& versions) {
  std::string all = phases.empty() ? "" : ";" + phases;
  if (const std::size_t at = all.find(entry_of(phase)); at != std::string::npos)
    all.erase(at, all.find(';', at + 1) - at);  // to the next, or the end
  phases = fmt::format("{}{}{}", all, entry_of(phase), version_of(phase, versions)).substr(1);
}

std::optional<std::string> Signatures::without_launch(const Case& test_case, Worker* worker) const {
  const Implementation& implementation = *test_case.implementation;
  Fingerprint found;
  found.add(implementation.name);
  if (implementation.worker || !implementation.plugin.empty()) return std::nullopt;
  if (implementation.in_worker) {
    const auto told = worker != nullptr ? ask_signature(*worker, test_case) : std::nullopt;
    return told ? std::optional(found.add(*told).text()) : std::nullopt;
  }
  const PlatformDescription& description = platform_->description();
  if (implementation.is(Kind::baseline) && !test_case.entry->whole_networks) {
    for (const auto& [name, version] : library_versions()) found.add(name).add(version);
    return found.add(description.driver).add(build_info().digest_of("baselines")).text();
  }
  if (!description.is_host || sources_of(test_case).empty()) return std::nullopt;
  static const std::string processor = describe_processors().model;
  for (const std::string& text :
       {sources_of(test_case), build_info().compiler, build_info().host_arch, build_info().build_type, processor})
    found.add(text).add('\n');
  return found.text();
}

std::string Signatures::of_launch(BoundCase& bound) const {
  if (watch_ == nullptr) throw std::runtime_error("nobody takes down the kernels' code");
  const Stream stream = platform_->context().stream;
  Fingerprint found;
  found.add(watch_->signature(stream, bound.launch(/*overlapping=*/true)));
  if (bound.prepares()) found.add(watch_->signature(stream, bound.preparing()));
  return found.text();
}

std::string Signatures::of_verification(const Case& test_case) const {
  if (sources_of(test_case).empty()) return {};
  const Tolerance tolerance = test_case.entry->workload->tolerance(test_case.problem, test_case.dtype);
  return Fingerprint()
      .add(kVerificationVersion)
      .add(sources_of(test_case))
      .add(tolerance.max_error)
      .add(tolerance.l2_error)
      .text();
}

}  // namespace noisefloor
