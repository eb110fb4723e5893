#include "reports/run/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <set>
#include <sstream>
#include <stdexcept>

#include "reports/run/files.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

std::runtime_error file_error(const fs::path& file, const char* what) {
  return failure("{}: {}: {}", file.string(), what, std::strerror(errno));
}

bool needs_samples(const SweepRow& row) {
  return row.status == Outcome::ok || row.status == Outcome::throttled;
}

// A last line without its end is cut off: it must be one that a sweep was writing.
void require_our_last_line(const fs::path& samples) {
  if (!fs::exists(samples)) return;
  constexpr std::string_view kBeginning = "{\"op\":\"";
  const std::string text = read_whole_file(samples);
  const auto last = std::string_view(text).substr(text.rfind('\n') + 1);  // npos + 1 is 0
  if (!last.starts_with(kBeginning) && !kBeginning.starts_with(last))
    throw failure("{}: its last line is no sweep's", samples.string());
}

}  // namespace

RunFolder::RunFolder(fs::path folder, const std::string& device, const std::string& commit, bool fresh)
    : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(follow_links(folder_), error);
  if (error) throw failure("{}: cannot be made: {}", folder_.string(), error.message());
  lock_.emplace(folder_);
  const auto refuse = [&](const std::string& what) { throw failure("{}; give another --out, or --fresh", what); };
  if (fs::exists(folder_ / "gpus.csv"))
    throw failure("{}: holds the run folders of several GPUs (sweep --device all); give one of them, or another --out",
                  folder_.string());
  if (fresh) remove_run_files(folder_);
  for (const char* name : kRunFiles) require_regular_or_absent(folder_ / name);
  if (fs::exists(folder_ / kPackedSamplesFile))
    refuse(fmt::format("{}: its samples are packed ({}): it was recorded, and is not added to", folder_.string(),
                       kPackedSamplesFile));
  // Of a sweep that was killed early: samples of rows that were not written are dropped.
  const bool begins = !fs::exists(sweep_.path) || fs::file_size(sweep_.path) == 0;
  RunFiles run;
  try {
    if (!begins)
      run = read_run(folder_, RunEnd::may_lack);
    else if (fs::exists(samples_.path))
      (void)read_samples(samples_.path, RunEnd::may_lack);
    require_our_last_line(samples_.path);
  } catch (const std::runtime_error& wrong) {
    refuse(wrong.what());
  }
  const bool reuses = !fact(kReusedFrom).empty();  // then rows are of several commits, and the folder is of one
  if (const std::string before = fact("commit"); reuses && !same_code(before, commit))
    refuse(fmt::format("{}: is of commit {}, this is {}", folder_.string(), before, commit));
  if (const int schema = run.environment.schema; !run.environment.device.empty() && schema != kRunSchema)
    refuse(fmt::format("{}: holds a run of schema {}, this program writes {}", folder_.string(), schema, kRunSchema));
  for (const SweepRow& row : run.rows) {
    if (row.device != device)
      refuse(fmt::format("{}: holds rows of '{}', this is '{}'", folder_.string(), row.device, device));
    if (!reuses && !same_code(row.commit, commit))
      refuse(fmt::format("{}: holds rows of commit {}, this is {}", folder_.string(), row.commit, commit));
  }
  if (begins) write_atomically(sweep_.path, sweep_csv_header());
  keep_whole_rows(run);
  open_to_append(sweep_);
  if (fs::exists(samples_.path)) open_to_append(samples_);
}

RunFolder::~RunFolder() {
  for (const Appended* file : {&sweep_, &samples_})
    if (file->descriptor >= 0) close(file->descriptor);
}

// Rows are appended: a file of other columns, or another order, gets all of ours, and what is not known behind them.
// Half a last line goes, as do samples without a row, and rows that lost their samples.
void RunFolder::keep_whole_rows(RunFiles& run) {
  others_ = other_columns(run.rows);
  std::string text = sweep_csv_header(others_), lines;
  std::set<std::size_t> kept;
  const bool has_samples = fs::exists(samples_.path);
  for (SweepRow& row : run.rows) {
    const auto samples = run.samples.find(row);
    if (samples != run.samples.end()) kept.insert(samples->second.line);
    if (has_samples && samples == run.samples.end() && needs_samples(row)) {
      ++lost_rows_;
      continue;
    }
    text += to_csv(row, others_);
    rows_.emplace(row, std::move(row));
  }
  if (read_whole_file(sweep_.path) != text) write_atomically(sweep_.path, text);
  if (!has_samples) return;
  const std::string before = read_whole_file(samples_.path);
  std::istringstream stream(before);
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);)
    if (kept.contains(++number)) lines += line + "\n";
  if (before != lines) write_atomically(samples_.path, lines);
}

// A row appended to another file, or to a new one without a header, would be lost, and those before it too. Of a
// sweep.csv that is gone all rows are written again.
void RunFolder::open_to_append(Appended& file) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  if (file.descriptor < 0) file.descriptor = open(file.path.c_str(), kFlags, 0644);
  if (file.descriptor < 0) throw file_error(file.path, "cannot be written");
  if (is_still(file.path, file.descriptor)) return;
  if (is_there(file.path))
    throw failure("{}: another file was put in its place during the sweep; nothing was written to it",
                  file.path.string());
  std::string outcome = "was removed during the sweep";
  if (&file == &sweep_) {
    std::string text = sweep_csv_header(others_);
    for (const auto& [id, row] : rows_) text += to_csv(row, others_);
    outcome += fmt::format("; its {} rows are written again, and the same command resumes", rows_.size());
    write_atomically(file.path, text);
  }
  throw failure("{}: {}", file.path.string(), outcome);
}

void RunFolder::append_text(const Appended& file, const std::string& text) {
  const off_t before = lseek(file.descriptor, 0, SEEK_END);
  if (const int why = write_all(file.descriptor, text); why != 0) {
    (void)!ftruncate(file.descriptor, before);  // where it cannot be cut, opening the folder again cuts it
    errno = why;
    throw file_error(file.path, "writing failed, the rows before this one are whole");
  }
  // EINVAL: not a file of a disk.
  if (fdatasync(file.descriptor) != 0 && errno != EINVAL) throw file_error(file.path, "writing through failed");
}

void RunFolder::append(const std::vector<std::pair<SweepRow, RowSamples>>& rows) {
  if (rows.empty()) return;
  std::string lines, text;
  for (const auto& [row, samples] : rows) {
    if (needs_samples(row)) lines += samples_line(row, samples) + "\n";
    text += to_csv(row, others_);
  }
  open_to_append(sweep_);
  if (!lines.empty()) open_to_append(samples_);
  if (!lines.empty()) append_text(samples_, lines);
  append_text(sweep_, text);
  for (const auto& [row, samples] : rows) rows_.insert_or_assign(row, row);
}

std::string RunFolder::fact(const std::string& name) const {
  const auto file = folder_ / "env.json";
  if (!fs::exists(file)) return {};
  const auto json = read_json_object(file);
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

namespace {

void write_environment_file(const fs::path& file, const nlohmann::ordered_json& environment) {
  // A file's name may be any bytes, and JSON is UTF-8.
  write_atomically(file, environment.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

void RunFolder::write_environment(const nlohmann::ordered_json& facts, const std::vector<std::string>& command_line) {
  const auto file = folder_ / "env.json";
  std::vector<std::vector<std::string>> command_lines;
  nlohmann::ordered_json before = nlohmann::ordered_json::object();
  if (fs::exists(file)) {
    command_lines = read_environment(file).command_lines;
    before = read_json_object(file);
    for (const char* gone : {"merged_from", "missing", kShards, "hosts", "of_parts", "load_at_end"})
      before.erase(gone);  // it is more than a merge now, and has not ended
  }
  if (command_lines.size() >= kMaxCommandLines) command_lines.erase(command_lines.begin());
  command_lines.push_back(command_line);
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  nlohmann::ordered_json environment = {{"schema", kRunSchema}};
  environment.update(facts);
  environment.update({{"host", host}, {"command_lines", command_lines}, {"time_utc", utc_now()}});
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

fs::path default_run_folder(const std::string& device, const fs::path& runs) {
  const auto folder = runs / device_slug(device);
  const std::string name = fmt::format("{:%Y-%m-%d_%H-%M-%S}", fmt::gmtime(std::time(nullptr)));
  fs::create_directories(folder);
  auto made = folder / name;
  for (int number = 2; !fs::create_directory(made); ++number) made = folder / fmt::format("{}-{}", name, number);
  return made;
}

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 22;  // Linux takes no longer command lines

fs::path note_of(const fs::path& run) {
  return run / ".unfinished";
}

}  // namespace

std::optional<fs::path> unfinished_run(const fs::path& folder, const std::string& command) {
  std::error_code error;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && !is_leftover(entry.path().filename().string())) runs.push_back(entry.path());
  if (runs.empty()) return std::nullopt;
  const fs::path newest = *std::ranges::max_element(runs);  // names are times
  try {
    if (read_whole_file(note_of(newest), kMostBytes) == command) return newest;
  } catch (const std::runtime_error&) {  // there is none, or it is none of ours
  }
  return std::nullopt;
}

void note_unfinished(const fs::path& run, const std::string& command) {
  write_atomically(note_of(run), command);
}

void note_finished(const fs::path& run) {
  std::error_code error;
  fs::remove(note_of(run), error);
}

bool is_unfinished(const fs::path& run) {
  std::error_code error;
  return fs::exists(note_of(run), error);
}

}  // namespace noisefloor
