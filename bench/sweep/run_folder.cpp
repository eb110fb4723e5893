#include "bench/sweep/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/platform/build_info.h"
#include "reports/run/csv.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

constexpr const char* kWritten[] = {"sweep.csv", "samples.jsonl", "env.json", "ceilings.csv", "networks.csv",
                                    "cases.csv", "roofline.csv",  "plan.csv", "report.html",  "shard.json"};

std::runtime_error file_error(const std::filesystem::path& file, const char* what) {
  return std::runtime_error(fmt::format("{}: {}: {}", file.string(), what, std::strerror(errno)));
}

std::runtime_error foreign_file(const std::string& place) {
  return std::runtime_error(place + ": not written by a sweep of this version; give another --out, or --fresh");
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {(std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>()};
}

// Cuts off a last line that a killed sweep left without its end. `beginning` is that of every such file: one that
// begins otherwise is not ours to cut.
void drop_incomplete_line(const std::filesystem::path& file, const std::string& beginning) {
  if (!std::filesystem::is_regular_file(file)) return;
  const std::string text = read_text(file);
  const std::size_t complete = text.rfind('\n') + 1;  // npos + 1 is 0
  if (complete == text.size()) return;
  if (!text.starts_with(beginning) && !beginning.starts_with(text)) throw foreign_file(file.string());
  std::filesystem::resize_file(file, complete);
}

std::string sample_key(const std::string& line) {
  const auto sample = nlohmann::json::parse(line);
  SweepRow row;
  row.op = sample.at("op").get<std::string>();
  row.problem = sample.at("problem").get<std::string>();
  row.dtype = sample.at("dtype").get<std::string>();
  row.variant = sample.at("variant").get<std::string>();
  return row.key();
}

std::vector<double> rounded(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values)
    out.push_back(std::round(value * 1e3) / 1e3);  // events resolve half a microsecond at best
  return out;
}

}  // namespace

RunFolder::RunFolder(std::filesystem::path folder, const PlatformDescription& description, const std::string& commit,
                     bool fresh)
    : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw std::runtime_error(fmt::format("{}: cannot be made: {}", folder_.string(), error.message()));
  lock_.emplace(folder_);
  if (std::filesystem::exists(folder_ / "gpus.csv"))
    throw std::runtime_error(
        fmt::format("{}: holds the run folders of several GPUs (sweep --device all); give one of them, or another "
                    "--out",
                    folder_.string()));
  open_files(fresh);
  for (const auto& [key, row] : rows_) {
    if (row.device != description.name)
      throw std::runtime_error(fmt::format("{}: holds rows of '{}', this is '{}'; give another --out, or --fresh",
                                           folder_.string(), row.device, description.name));
    if (row.commit != commit)
      throw std::runtime_error(fmt::format("{}: holds rows of commit {}, this is {}; give another --out, or --fresh",
                                           folder_.string(), row.commit, commit));
  }
}

void RunFolder::open_files(bool fresh) {
  if (fresh)
    for (const char* name : kWritten) std::filesystem::remove(folder_ / name);
  const auto sweep = folder_ / "sweep.csv";
  drop_incomplete_line(sweep, sweep_csv_header());
  drop_incomplete_line(folder_ / "samples.jsonl", "{\"op\":\"");
  if (std::filesystem::is_regular_file(sweep) && std::filesystem::file_size(sweep) > 0) {
    for (SweepRow& row : read_sweep_csv(sweep)) rows_.emplace(row.case_id(), row);
  } else {
    append_line(sweep, sweep_csv_header());
  }
  drop_samples_without_row();
}

// Samples are written before their row: those of a sweep that was killed in between will be taken again.
void RunFolder::drop_samples_without_row() {
  const auto file = folder_ / "samples.jsonl";
  std::ifstream stream(file);
  std::string kept;
  std::set<std::string> keys;
  for (const auto& [id, row] : rows_) keys.insert(row.key());
  bool dropped = false;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    try {
      if (keys.contains(sample_key(line)))
        kept += line + "\n";
      else
        dropped = true;
    } catch (const nlohmann::json::exception&) {
      throw foreign_file(fmt::format("{}:{}", file.string(), number));
    }
  }
  if (dropped) write_atomically(file, kept);
}

void RunFolder::append_line(const std::filesystem::path& file, const std::string& line) {
  const int descriptor = open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) throw file_error(file, "cannot be written");
  const off_t before = lseek(descriptor, 0, SEEK_END);
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = write(descriptor, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const auto failure = file_error(file, "writing failed, the rows before this one are whole");
      (void)!ftruncate(descriptor, before);  // where it cannot be cut, opening the folder again cuts it
      close(descriptor);
      throw failure;
    }
    done += static_cast<std::size_t>(count);
  }
  // EINVAL: not a file of a disk.
  if (fdatasync(descriptor) != 0 && errno != EINVAL) {
    const auto failure = file_error(file, "writing through failed");
    close(descriptor);
    throw failure;
  }
  if (close(descriptor) != 0) throw file_error(file, "closing failed");
}

void RunFolder::append(const CaseResult& result) {
  const SweepRow& row = result.row;
  if (row.status == Outcome::ok || row.status == Outcome::throttled) {
    nlohmann::ordered_json samples = {{"op", row.op},
                                      {"dtype", row.dtype},
                                      {"problem", row.problem},
                                      {"variant", row.variant},
                                      {"cold_us", rounded(result.cold_us)},
                                      {"warm_us", rounded(result.warm_us)},
                                      {"cold_batches", result.cold_batches}};
    if (!result.cold_mhz.empty()) samples["cold_mhz"] = rounded(result.cold_mhz);  // NaN is written as null
    append_line(folder_ / "samples.jsonl", samples.dump() + "\n");
  }
  append_line(folder_ / "sweep.csv", to_csv(row));
  rows_.insert_or_assign(row.case_id(), row);
}

void RunFolder::write_environment(const PlatformDescription& description, const std::string& driver_version,
                                  const std::vector<std::string>& command_line) {
  const auto file = folder_ / "env.json";
  std::vector<std::vector<std::string>> command_lines;
  if (std::filesystem::exists(file)) {
    try {
      command_lines = read_environment(file).command_lines;
    } catch (const std::runtime_error&) {
      throw foreign_file(file.string());
    }
  }
  if (command_lines.size() >= kMaxCommandLines) command_lines.erase(command_lines.begin());
  command_lines.push_back(command_line);
  const BuildInfo& build = build_info();
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  nlohmann::ordered_json environment = {
      {"schema", kRunSchema},
      {"device", description.name},
      {"memory_bytes", description.memory_bytes},
      {"compute_capability", description.info.compute_capability},
      {"sm_count", description.info.sm_count},
      {"l2_bytes", description.info.l2_bytes},
      {"driver", driver_version.empty() ? description.driver : driver_version},
      {"cuda_driver", description.is_host ? "" : description.driver},
      {"cuda_runtime", description.is_host ? "" : description.runtime},
      {"cuda_toolkit", build.cuda_toolkit},
      {"cuda_architectures", build.cuda_architectures},
      {"compiler", build.compiler},
      {"host_arch", build.host_arch},
      {"build_type", build.build_type},
      {"version", build.version},
      {"commit", build.commit},
      {"host", host},
      {"command_lines", command_lines},
      {"time_utc", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
  };
  write_atomically(file, environment.dump(2) + "\n");
}

std::string device_slug(const std::string& device) {
  std::string slug;
  for (const char c : device) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "device" : slug;
}

std::filesystem::path default_run_folder(const std::string& device) {
  return std::filesystem::path("runs") / device_slug(device) /
         fmt::format("{:%Y-%m-%d_%H-%M-%S}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace noisefloor
