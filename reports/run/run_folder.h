// The folder of a run: sweep.csv and samples.jsonl, to which a sweep adds problem by problem, so that one that is
// killed loses at most the problem in flight, and env.json.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/run/folder_lock.h"
#include "reports/run/run_files.h"

namespace noisefloor {

class RunFolder {
 public:
  // Makes the folder, or opens it to resume: its rows must be of this device and commit, and agree with their samples.
  // What a killed sweep left of a case without a whole row is removed. Locks the folder against a second sweep. `fresh`
  // removes what an earlier sweep wrote there, and what was made of it. Throws std::runtime_error naming the file and
  // what is wrong; files of others are left as they are.
  RunFolder(fs::path folder, const std::string& device, const std::string& commit, bool fresh);
  RunFolder(const RunFolder&) = delete;
  ~RunFolder();

  const fs::path& path() const { return folder_; }
  // Rows already there.
  const std::map<CaseId, SweepRow>& rows() const { return rows_; }
  // How many were there without their samples, because samples.jsonl was cut: they are to be measured again.
  std::size_t lost_rows() const { return lost_rows_; }

  // Rows that are not there, written through to the disk; of those with a time the samples too. Throws
  // std::runtime_error when it is full, or where somebody removed or replaced a file meanwhile: a sweep.csv that is
  // gone is written anew, with all of its rows.
  void append(const std::vector<std::pair<SweepRow, RowSamples>>& rows);
  // A text of env.json; empty where it has none of that name.
  std::string fact(const std::string& name) const;
  // env.json: `facts` of the machine and the build, and every command line that wrote here, the latest last. Fields of
  // others that are there stay.
  void write_environment(const nlohmann::ordered_json& facts, const std::vector<std::string>& command_line);
  // After write_environment(): more of them, or other values.
  void add_facts(const nlohmann::ordered_json& facts);

 private:
  struct Appended {
    fs::path path;
    int descriptor = -1;
  };
  void keep_whole_rows(RunFiles& run);
  void open_to_append(Appended& file);
  void append_text(const Appended& file, const std::string& text);

  fs::path folder_;
  std::map<CaseId, SweepRow> rows_;
  Appended sweep_{folder_ / "sweep.csv"}, samples_{folder_ / kSamplesFile};
  std::vector<std::string> others_;  // columns of the folder's sweep.csv that are not known
  std::size_t lost_rows_ = 0;
  std::optional<FolderLock> lock_;
};

// RUNS/<device>/<UTC time>; made, with -2 and so on where another sweep began in that second.
fs::path default_run_folder(const std::string& device, const fs::path& runs = "runs");

// "NVIDIA H200" -> "nvidia-h200".
std::string device_slug(const std::string& device);

// Run folders that a command was to fill and did not come to the end of: the same command goes on in them.
//
// The newest run below `folder`, where that is one of `command`; none where it was finished, or is of another.
std::optional<fs::path> unfinished_run(const fs::path& folder, const std::string& command);

// FOLDER/.unfinished holds the command. Throws std::runtime_error where it cannot be written.
void note_unfinished(const fs::path& run, const std::string& command);
void note_finished(const fs::path& run);
bool is_unfinished(const fs::path& run);

}  // namespace noisefloor
