// The folder of a run: sweep.csv and samples.jsonl, written case by case so that a killed sweep loses at most the case
// in flight, and env.json.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/case_runner.h"
#include "bench/platform/platform.h"
#include "reports/run/folder_lock.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

class RunFolder {
 public:
  // Makes the folder, or opens it to go on: its rows must be of this device and commit. What a killed sweep left of a
  // case without a whole row is removed. Locks the folder against a second sweep. `fresh` removes what an earlier sweep
  // wrote there. Throws std::runtime_error naming the file and what is wrong; files of others are left as they are.
  RunFolder(std::filesystem::path folder, const PlatformDescription& description, const std::string& commit,
            bool fresh);
  RunFolder(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  // Rows already there.
  const std::map<CaseId, SweepRow>& rows() const { return rows_; }

  // Writes through to the disk. Throws std::runtime_error when it is full or gone.
  void append(const CaseResult& result);
  // env.json: the machine, the build, and every command line that wrote here, the latest last.
  void write_environment(const PlatformDescription& description, const std::string& driver_version,
                         const std::vector<std::string>& command_line);

 private:
  void open_files(bool fresh);
  void drop_samples_without_row();
  void append_line(const std::filesystem::path& file, const std::string& line);

  std::filesystem::path folder_;
  std::map<CaseId, SweepRow> rows_;
  std::optional<FolderLock> lock_;
};

// runs/<device>/<UTC time>, below the working directory.
std::filesystem::path default_run_folder(const std::string& device);

// "NVIDIA H200" -> "nvidia-h200".
std::string device_slug(const std::string& device);

}  // namespace noisefloor
