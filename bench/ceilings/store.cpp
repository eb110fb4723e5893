#include "bench/ceilings/ceilings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "bench/platform/child_process.h"
#include "bench/platform/processors.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

std::string letters_and_digits(const std::string& text) {
  std::string kept;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (plain)
      kept += c;
    else if (!kept.empty() && kept.back() != '_')
      kept += '_';
  }
  return kept.empty() ? "none" : kept;
}

// Whether ceilings of now would be worth more than these: a quieter machine's.
bool taken_on_a_busier_host(const Ceilings& cached) {
  double load = 0;
  for (const Ceiling& row : cached.rows) {
    if (!row.load) return true;  // of an older version
    load = std::max(load, *row.load);
  }
  if (load < kLoaded) return false;
  const auto now = load_of_others();
  return now && *now < load - kLoaded;
}

// Caches `measured`, with what `known` has higher.
Ceilings kept(Ceilings measured, const Ceilings* known, const fs::path& file, const std::string& commit,
              const CeilingsLog& log) {
  measured.commit = commit;
  for (Ceiling& row : measured.rows)
    if (const Ceiling* before = known != nullptr ? known->find(row.name) : nullptr)
      row.value = std::max(row.value, before->value);
  try {
    if (file.parent_path().empty()) throw std::runtime_error("neither XDG_CACHE_HOME nor HOME is set");
    fs::create_directories(file.parent_path());
    write_ceilings(file, measured);
  } catch (const std::exception& error) {
    log(fmt::format("warning: ceilings are not cached: {}", error.what()));
  }
  return measured;
}

}  // namespace

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fs::path(cache) / "noisefloor";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "noisefloor";
  return {};
}

std::string cache_file_name(const DeviceIdentity& identity) {
  return fmt::format("ceilings-{}-{}-{}.csv", letters_and_digits(identity.name), letters_and_digits(identity.driver),
                     identity.max_clock_mhz);
}

Ceilings measure_apart(const fs::path& program, int device, const CeilingsLog& log,
                       const std::function<Ceilings()>& here) {
  fs::path file;
  const auto from_child = [&]() -> Ceilings {
    file = fs::temp_directory_path() / fmt::format("noisefloor-ceilings-{}.csv", getpid());
    ChildProcess child(
        {{"noisefloor", "ceilings", "--device", std::to_string(device), "--refresh", "--out", file.string()},
         {},
         {},
         program.string()},
        ChildRole::lane);
    while (child.errors.descriptor >= 0) child.errors.read_some();
    if (const int status = child.wait(); status != 0)
      throw std::runtime_error(fmt::format("noisefloor ceilings: {}: {}", ending_words(status), child.errors.text));
    return {read_ceilings(file)};
  };
  std::optional<Ceilings> measured;
  try {
    measured = from_child();
  } catch (const std::exception& error) {
    log(fmt::format("warning: ceilings are measured in this process, whose launches may be slower for it: {}",
                    error.what()));
  }
  std::error_code ignored;
  fs::remove(file, ignored);
  return measured ? std::move(*measured) : here();
}

Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log,
                         CeilingsProcess process, const MeasureHost& measure_host) {
  const DeviceIdentity identity = device == kHostDevice ? host_identity() : gpu_identity(device);
  const fs::path folder = cache_folder();
  const fs::path file = folder / cache_file_name(identity);
  std::error_code ignored;
  std::optional<Ceilings> known;
  if (!refresh && !folder.empty() && fs::exists(file, ignored)) {
    try {
      Ceilings cached{read_ceilings(file)};
      if (cached.device != identity.name || cached.driver != identity.driver)
        throw std::runtime_error(fmt::format("{}: holds '{}', not '{}'", file.string(), cached.device, identity.name));
      cached.memory();  // a cache needs the ceilings that every row does
      cached.reads();
      cached.compute(Pipe::fma, DType::fp32);
      if (device != kHostDevice || !taken_on_a_busier_host(cached)) return cached;
      log("the cached ceilings are of a busier machine, or do not say, and are measured again");
      known = std::move(cached);
    } catch (const std::exception& error) {
      log(fmt::format("warning: cached ceilings are not usable and are measured again: {}", error.what()));
    }
  }
  if (!known) log(fmt::format("measuring the ceilings of {} (once; cached after that)", identity.name));
  const auto measure_gpu = [&] { return measure_gpu_ceilings(device); };
  Ceilings measured = device == kHostDevice             ? measure_host()
                      : process == CeilingsProcess::own ? measure_apart("/proc/self/exe", device, log, measure_gpu)
                                                        : measure_gpu();
  return kept(std::move(measured), known ? &*known : nullptr, file, commit, log);
}

Ceilings raise_host_ceilings(const Ceilings& known, const std::string& commit, const CeilingsLog& log,
                             const MeasureHost& measure_host) {
  return kept(measure_host(), &known, cache_folder() / cache_file_name(host_identity()), commit, log);
}

}  // namespace noisefloor
