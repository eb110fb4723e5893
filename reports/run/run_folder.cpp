#include "reports/run/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/json_file.h"
#include "reports/run/resumed_rows.h"
#include "reports/run/samples_file.h"
#include "reports/run/samples_line.h"

namespace noisefloor {
namespace {

std::runtime_error file_error(const std::filesystem::path& file, const char* what) {
  return std::runtime_error(fmt::format("{}: {}: {}", file.string(), what, std::strerror(errno)));
}

}  // namespace

RunFolder::RunFolder(std::filesystem::path folder, const std::string& device, const std::string& commit, bool fresh)
    : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(follow_links(folder_), error);
  if (error) throw std::runtime_error(fmt::format("{}: cannot be made: {}", folder_.string(), error.message()));
  lock_.emplace(folder_);
  if (std::filesystem::exists(folder_ / "gpus.csv"))
    throw std::runtime_error(
        fmt::format("{}: holds the run folders of several GPUs (sweep --device all); give one of them, or another "
                    "--out",
                    folder_.string()));
  if (!fresh && std::filesystem::exists(folder_ / kPackedSamplesFile))
    throw std::runtime_error(
        fmt::format("{}: its samples are packed ({}): it was recorded, and is not added to; give "
                    "another --out, or --fresh",
                    folder_.string(), kPackedSamplesFile));
  open_files(fresh);
  require_ours(device, commit);
  const auto lost = rows_without_samples(folder_, rows_);
  for (const CaseId& one : lost) rows_.erase(one);
  lost_rows_ = lost.size();
  take_columns();
  remember(folder_ / "sweep.csv");
  remember(folder_ / kSamplesFile);
}

void RunFolder::require_ours(const std::string& device, const std::string& commit) const {
  for (const auto& [id, row] : rows_) {
    if (row.device != device)
      throw std::runtime_error(fmt::format("{}: holds rows of '{}', this is '{}'; give another --out, or --fresh",
                                           folder_.string(), row.device, device));
    if (!same_code(row.commit, commit))
      throw std::runtime_error(fmt::format("{}: holds rows of commit {}, this is {}; give another --out, or --fresh",
                                           folder_.string(), row.commit, commit));
  }
}

void RunFolder::open_files(bool fresh) {
  if (fresh) remove_run_files(folder_);
  for (const char* name : kRunFiles) require_regular_or_absent(folder_ / name);
  rows_ = resumed_rows(folder_);
  const auto sweep = folder_ / "sweep.csv";
  if (!std::filesystem::is_regular_file(sweep) || std::filesystem::file_size(sweep) == 0)
    append_text(sweep, sweep_csv_header());
}

// Rows are appended: a file of other columns, or another order, gets all of ours, and what is not known behind them.
// Rows that are lost are left out.
void RunFolder::take_columns() {
  const auto file = folder_ / "sweep.csv";
  const auto rows = read_sweep_csv(file);
  others_ = other_columns(file);
  std::string text = sweep_csv_header(others_);
  if (lost_rows_ == 0 && read_whole_file(file).starts_with(text)) return;
  for (const SweepRow& row : rows)
    if (rows_.contains(row)) text += to_csv(row, others_);
  write_atomically(file, text);
}

void RunFolder::remember(const std::filesystem::path& file) {
  struct stat status {};
  if (lstat(file.c_str(), &status) == 0) known_[file] = {status.st_dev, status.st_ino};
}

// A row appended to another file, or to a new one without a header, would be lost, and those before it too.
void RunFolder::require_still_there(const std::filesystem::path& file, int descriptor) const {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw file_error(file, "cannot be written");
  if (!S_ISREG(status.st_mode)) throw std::runtime_error(fmt::format("{}: is not a regular file", file.string()));
  const auto known = known_.find(file);
  if (known != known_.end() && known->second != std::pair(status.st_dev, status.st_ino))
    throw std::runtime_error(fmt::format(
        "{}: another file was put in its place during the sweep; nothing was written to it", file.string()));
}

// The rows outlive their file here; the samples of a samples.jsonl do not. A row whose case is being appended has no
// samples yet, and its case is measured again.
void RunFolder::require_sweep_still_there() const {
  const auto file = folder_ / "sweep.csv";
  struct stat status {};
  if (lstat(file.c_str(), &status) == 0 || errno != ENOENT) return;
  std::string text = sweep_csv_header(others_);
  for (const auto& [id, row] : rows_) text += to_csv(row, others_);
  std::string outcome = fmt::format("its {} rows are written again, and the same command resumes", rows_.size());
  if (!std::filesystem::exists(folder_ / kSamplesFile)) outcome += "; samples.jsonl is gone";
  try {
    write_atomically(file, text);
  } catch (const std::runtime_error& error) {
    outcome = fmt::format("its {} rows could not be written again ({})", rows_.size(), error.what());
  }
  throw std::runtime_error(fmt::format("{}: was removed during the sweep; {}", file.string(), outcome));
}

void RunFolder::append_text(const std::filesystem::path& file, const std::string& text) {
  const int make = known_.contains(file) ? 0 : O_CREAT;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int descriptor = open(file.c_str(), make | kFlags, 0644);
  const bool gone = descriptor < 0 && errno == ENOENT && make == 0;
  if (gone) require_sweep_still_there();
  if (gone) throw std::runtime_error(fmt::format("{}: was removed during the sweep", file.string()));
  if (descriptor < 0) throw file_error(file, "cannot be written");
  try {
    require_still_there(file, descriptor);
  } catch (...) {
    close(descriptor);
    throw;
  }
  const off_t before = lseek(descriptor, 0, SEEK_END);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
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
  remember(file);
}

void RunFolder::append(const std::vector<std::pair<SweepRow, RowSamples>>& rows) {
  if (rows.empty()) return;
  require_sweep_still_there();
  std::string lines, text;
  for (const auto& [row, samples] : rows) {
    if (row.status == Outcome::ok || row.status == Outcome::throttled) lines += samples_line(row, samples) + "\n";
    text += to_csv(row, others_);
  }
  if (!lines.empty()) append_text(folder_ / kSamplesFile, lines);
  append_text(folder_ / "sweep.csv", text);
  for (const auto& [row, samples] : rows) rows_.insert_or_assign(row, row);
}

std::string RunFolder::fact(const std::string& name) const {
  const auto file = folder_ / "env.json";
  if (!std::filesystem::exists(file)) return {};
  const auto json = nlohmann::json::parse(read_whole_file(file), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(name) || !json[name].is_string()) return {};
  return json[name];
}

namespace {

void write_environment_file(const std::filesystem::path& file, const nlohmann::ordered_json& environment) {
  // A file's name may be any bytes, and JSON is UTF-8.
  write_atomically(file, environment.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

void RunFolder::write_environment(const nlohmann::ordered_json& facts, const std::vector<std::string>& command_line) {
  const auto file = folder_ / "env.json";
  std::vector<std::vector<std::string>> command_lines;
  nlohmann::ordered_json before = nlohmann::ordered_json::object();
  if (std::filesystem::exists(file)) {
    try {
      command_lines = read_environment(file).command_lines;
    } catch (const std::runtime_error&) {
      throw foreign_file(file.string());
    }
    before = read_json_object(file);
    for (const char* gone : {"merged_from", "missing", "hosts", "of_parts", "load_at_end"})
      before.erase(gone);  // it is more than a merge now, and has not ended
  }
  if (command_lines.size() >= kMaxCommandLines) command_lines.erase(command_lines.begin());
  command_lines.push_back(command_line);
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  nlohmann::ordered_json environment = {{"schema", kRunSchema}};
  environment.update(facts);
  environment.update({{"host", host},
                      {"command_lines", command_lines},
                      {"time_utc", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}});
  for (const auto& [name, value] : before.items())
    if (!environment.contains(name)) environment[name] = value;
  write_environment_file(file, environment);
}

void RunFolder::add_facts(const nlohmann::ordered_json& facts) {
  const auto file = folder_ / "env.json";
  nlohmann::ordered_json environment = read_json_object(file);
  environment.update(facts);
  write_environment_file(file, environment);
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

std::filesystem::path default_run_folder(const std::string& device, const std::filesystem::path& runs) {
  const auto folder = runs / device_slug(device);
  const std::string name = fmt::format("{:%Y-%m-%d_%H-%M-%S}", fmt::gmtime(std::time(nullptr)));
  std::filesystem::create_directories(folder);
  auto made = folder / name;
  for (int number = 2; !std::filesystem::create_directory(made); ++number)
    made = folder / fmt::format("{}-{}", name, number);
  return made;
}

}  // namespace noisefloor
