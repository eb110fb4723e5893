#include "bench/ceilings/store.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>
#include <system_error>

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

Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log) {
  const DeviceIdentity identity = device == kHostDevice ? host_identity() : gpu_identity(device);
  const fs::path folder = cache_folder();
  const fs::path file = folder / cache_file_name(identity);
  std::error_code ignored;
  if (!refresh && !folder.empty() && fs::exists(file, ignored)) {
    try {
      Ceilings cached{read_ceilings(file)};
      if (cached.device != identity.name || cached.driver != identity.driver)
        throw std::runtime_error(fmt::format("{}: holds '{}', not '{}'", file.string(), cached.device, identity.name));
      cached.memory();  // a cache needs the two ceilings that every roofline does
      cached.compute(Pipe::fma, DType::fp32);
      return cached;
    } catch (const std::exception& error) {
      log(fmt::format("warning: cached ceilings are not usable and are measured again: {}", error.what()));
    }
  }
  log(fmt::format("measuring the ceilings of {} (once; cached after that)", identity.name));
  Ceilings measured = device == kHostDevice ? measure_host_ceilings() : measure_gpu_ceilings(device);
  measured.commit = commit;
  try {
    if (folder.empty()) throw std::runtime_error("neither XDG_CACHE_HOME nor HOME is set");
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error(fmt::format("{}: {}", folder.string(), error.message()));
    write_ceilings(file, measured);
  } catch (const std::exception& error) {
    log(fmt::format("warning: ceilings are not cached: {}", error.what()));
  }
  return measured;
}

}  // namespace noisefloor
