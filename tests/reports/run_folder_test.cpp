// Writing a run folder: resuming, torn lines, locks, foreign rows and columns.
#include "reports/run/run_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/run/run_files.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

constexpr const char* kDevice = "Test GPU";

SweepRow row(const std::string& variant) {
  SweepRow made = ok_row({{"gemm", "m=1,n=2,k=3", "bf16"}, variant}, "", 2, 1);
  made.time_warm_serial_us = 1.5;
  return made;
}

const RowSamples kSamples = [] {
  RowSamples samples;
  samples.cold_us = {1.99951, 2.0004}, samples.cold_batches = {1, 1}, samples.cold_mhz = {1980.1234, 1965};
  samples.warm_us = {1}, samples.warm_serial_us = {1.5, 1.25, 2}, samples.warm_serial_batches = {2, 1};
  samples.warm_serial_mhz = {std::nan(""), 1800};
  samples.warm_edge_us = {1.25, 1.5}, samples.warm_serial_edge_us = {1.375};
  samples.kernels = {"gemm::tile<64>", "reduce"}, samples.kernel_counts = {1, 2};
  samples.launches = {"gemm/m=1/bf16/ptx", "conv2d/n=1/bf16/tiled"}, samples.launch_counts = {7, 1};
  return samples;
}();

std::string slurp(const std::filesystem::path& file) {
  return std::filesystem::exists(file) ? read_whole_file(file) : "";
}

TEST(RunFolder, GoesOnWhereItStopped) {
  const TemporaryFolder temporary;
  {
    RunFolder folder(temporary / "run", kDevice, "abc", false);
    folder.append({{row("naive"), kSamples}, {row("tiled"), kSamples}});
  }
  // As a sweep leaves it that was killed while writing.
  std::ofstream(temporary / "run" / "sweep.csv", std::ios::app) << "gemm,ptx,half a li";
  std::ofstream(temporary / "run" / "samples.jsonl", std::ios::app) << "{\"op\":";
  {
    RunFolder folder(temporary / "run", kDevice, "abc", false);
    EXPECT_EQ(folder.rows().size(), 2u);
    EXPECT_TRUE(folder.rows().contains(row("naive")));
    EXPECT_FALSE(folder.rows().contains(row("ptx")));
    folder.append({{row("ptx"), kSamples}});
  }
  EXPECT_EQ(read_sweep_csv(temporary / "run" / "sweep.csv").size(), 3u);
  std::ifstream samples(temporary / "run" / "samples.jsonl");
  int lines = 0;
  for (std::string line; std::getline(samples, line); ++lines) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object["cold_us"].size(), 2u);
    EXPECT_DOUBLE_EQ(object["cold_us"][0].get<double>(), 2.0);
    EXPECT_EQ(object["cold_batches"], (std::vector<int>{1, 1}));
    EXPECT_DOUBLE_EQ(object["cold_mhz"][0].get<double>(), 1980.123);
    EXPECT_FALSE(object.contains("warm_mhz")) << "not known";
    const RowSamples read = parse_samples_line(line).samples;
    EXPECT_EQ(read.warm_serial_us, kSamples.warm_serial_us);
    EXPECT_EQ(read.warm_serial_batches, kSamples.warm_serial_batches);
    EXPECT_TRUE(std::isnan(read.warm_serial_mhz.at(0)));
    EXPECT_EQ(read.warm_edge_us, kSamples.warm_edge_us);
    EXPECT_EQ(read.warm_serial_edge_us, kSamples.warm_serial_edge_us);
    EXPECT_EQ(read.kernels, kSamples.kernels);
    EXPECT_EQ(read.kernel_counts, kSamples.kernel_counts);
    EXPECT_EQ(read.launches, kSamples.launches);
    EXPECT_EQ(read.launch_counts, kSamples.launch_counts);
  }
  EXPECT_EQ(lines, 3);
}

std::string append_message(RunFolder& folder, const std::string& variant) {
  return error_of([&] { return folder.append({{row(variant), kSamples}}), 0; });
}

TEST(RunFolder, RowsOutliveAFileThatWasRemoved) {
  const TemporaryFolder temporary;
  const auto sweep = temporary / "run" / "sweep.csv";
  {
    RunFolder folder(temporary / "run", kDevice, "abc", false);
    folder.append({{row("naive"), kSamples}, {row("tiled"), kSamples}});
    std::filesystem::remove(sweep);
    EXPECT_NE(append_message(folder, "ptx").find("its 2 rows are written again"), std::string::npos);
  }
  EXPECT_EQ(read_sweep_csv(sweep).size(), 2u);
  RunFolder folder(temporary / "run", kDevice, "abc", false);
  EXPECT_EQ(folder.rows().size(), 2u);
  std::filesystem::remove_all(temporary / "run");
  EXPECT_NE(append_message(folder, "ptx").find("sweep.csv"), std::string::npos);
}

TEST(RunFolder, WritesIntoNoFileThatTookAPlace) {
  const TemporaryFolder temporary;
  for (const char* name : {"sweep.csv", "samples.jsonl"}) {
    RunFolder folder(temporary / "run", kDevice, "abc", true);
    folder.append({{row("naive"), kSamples}});
    const auto file = temporary / "run" / name;
    std::filesystem::copy_file(file, temporary / "copy", std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(temporary / "copy", file);
    const std::string before = slurp(file);
    expect_parts(append_message(folder, "tiled"), {std::string(name) + ": another file was put in its place"});
    EXPECT_EQ(slurp(file), before);
  }
}

TEST(RunFolder, FollowsNoLinks) {
  const TemporaryFolder temporary;
  for (const char* name : {"sweep.csv", "samples.jsonl", "env.json", "cases.csv"}) {
    std::filesystem::create_directory(temporary / "run");
    std::ofstream(temporary / "precious") << "{\"op\":\"half a line";
    std::filesystem::create_symlink(temporary / "precious", temporary / "run" / name);
    EXPECT_THROW(RunFolder(temporary / "run", kDevice, "abc", false), std::runtime_error) << name;
    EXPECT_EQ(slurp(temporary / "precious"), "{\"op\":\"half a line");
    std::filesystem::remove_all(temporary / "run");
  }
}

TEST(RunFolder, RefusesForeignRowsAndLeavesThem) {
  const TemporaryFolder temporary;
  { RunFolder(temporary / "run", kDevice, "abc", false).append({{row("naive"), kSamples}}); }
  const std::string before = slurp(temporary / "run" / "sweep.csv");
  EXPECT_THROW(RunFolder(temporary / "run", "Another GPU", "abc", false), std::runtime_error);
  EXPECT_THROW(RunFolder(temporary / "run", kDevice, "def", false), std::runtime_error);
  std::ofstream(temporary / "run" / "env.json") << R"({"schema": 2, "device": "Test GPU", "commit": "abc"})";
  expect_parts(error_of([&] { return RunFolder(temporary / "run", kDevice, "abc", false), 0; }),
               {"holds a run of schema 2", "--fresh"});
  EXPECT_EQ(slurp(temporary / "run" / "sweep.csv"), before);
  EXPECT_EQ(RunFolder(temporary / "run", kDevice, "def", true).rows().size(), 0u) << "--fresh starts again";
}

TEST(FolderLock, ReadersShareItAndAWriterIsAlone) {
  const TemporaryFolder temporary;
  { const FolderLock unlocked(temporary.path(), FolderLock::Mode::reading); }  // a folder that nobody ever locked
  EXPECT_FALSE(std::filesystem::exists(temporary / ".lock"));
  {
    const FolderLock writer(temporary.path());
    EXPECT_THROW(FolderLock(temporary.path(), FolderLock::Mode::reading), std::runtime_error);
  }
  EXPECT_EQ(slurp(temporary / ".lock"), "");
  const FolderLock one(temporary.path(), FolderLock::Mode::reading), two(temporary.path(), FolderLock::Mode::reading);
  EXPECT_THROW(FolderLock{temporary.path()}, std::runtime_error);
}

TEST(FolderLock, KnowsMountsWhoseLocksStayOnOneMachine) {
  const TemporaryFolder temporary;
  const auto mounts = temporary / "mounts";
  std::ofstream(mounts) << "/dev/sda1 / ext4 rw,relatime 0 0\n"
                           "server:/home /home nfs4 rw,vers=4.2,local_lock=none 0 0\n"
                           "server:/scratch /scratch nfs rw,vers=3,local_lock=all 0 0\n"
                           "mgs:/fast /fast\\040disk lustre rw,localflock 0 0\n";
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/var/run1"));
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/home/me/run"));
  EXPECT_TRUE(locks_stay_on_this_machine(mounts, "/scratch/run"));
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/scratchy"));
  EXPECT_TRUE(locks_stay_on_this_machine(mounts, "/fast disk/run"));
}

TEST(RunFolder, WritesItsEnvironment) {
  const TemporaryFolder temporary;
  RunFolder folder(temporary / "run", kDevice, "abc", false);
  folder.write_environment({{"device", kDevice}, {"commit", "abc"}, {"driver", "580.1"}}, {"noisefloor", "sweep"});
  const auto environment = nlohmann::json::parse(slurp(temporary / "run" / "env.json"));
  EXPECT_EQ(environment["device"], "Test GPU");
  EXPECT_EQ(environment["driver"], "580.1");
  EXPECT_EQ(environment["command_lines"].size(), 1u);
  auto changed = environment;
  changed["of_another_version"] = {1, 2};
  changed["merged_from"] = changed["hosts"] = {"one", "another"};
  changed["of_parts"] = {{"gpu_uuid", {"GPU-1", "GPU-2"}}};
  std::ofstream(temporary / "run" / "env.json") << changed;
  folder.write_environment({{"device", kDevice}, {"commit", "abc"}, {"driver", "580.1"}},
                           {"noisefloor", "sweep", "--budget", "9"});
  const auto resumed = nlohmann::json::parse(slurp(temporary / "run" / "env.json"));
  EXPECT_EQ(resumed["command_lines"],
            nlohmann::json::parse(R"([["noisefloor", "sweep"], ["noisefloor", "sweep", "--budget", "9"]])"));
  EXPECT_EQ(resumed["of_another_version"], (std::vector<int>{1, 2})) << "fields of others stay";
  EXPECT_FALSE(resumed.contains("merged_from") || resumed.contains("hosts") || resumed.contains("of_parts"))
      << "it is more than a merge";
  folder.add_facts({{"driver", "580.2"}, {"load_at_end", 2.25}});
  EXPECT_EQ(folder.fact("driver"), "580.2");
  EXPECT_EQ(folder.fact("load_at_end"), "") << "no text";
  EXPECT_EQ(folder.fact("triton"), "");
  EXPECT_EQ(read_environment(temporary / "run" / "env.json").command_lines.size(), 2u);
}

// Columns in another order, one that is missing, and one that nobody here knows.
TEST(RunFolder, GoesOnWithColumnsOfAnotherVersion) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "sweep.csv")
      << "variant,op,blank_there,of_later,kind,dtype,problem,status,device,time_cold_us,commit,flops\n"
      << "naive,gemm,,\"7, or so\",naive,bf16,\"m=1,n=2,k=3\",ok,Test GPU,2,abc,12\n";
  {
    RunFolder folder(temporary.path(), kDevice, "abc", false);
    EXPECT_TRUE(folder.rows().contains(row("naive")));
    folder.append({{row("tiled"), kSamples}});
  }
  const auto rows = read_sweep_csv(temporary / "sweep.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].others.at("of_later"), "7, or so");
  EXPECT_EQ(rows[0].flops, 12);
  EXPECT_EQ(rows[0].bytes, std::nullopt) << "what was missing is not made 0";
  EXPECT_TRUE(rows[1].others.empty());
  EXPECT_TRUE(slurp(temporary / "sweep.csv").starts_with(sweep_csv_header({"blank_there", "of_later"})));
}

TEST(RunFolder, DropsSamplesOfARowThatWasNotWritten) {
  const TemporaryFolder temporary;
  const auto samples = temporary / "run" / "samples.jsonl";
  std::string kept;
  {
    RunFolder folder(temporary / "run", kDevice, "abc", false);
    folder.append({{row("naive"), kSamples}});
    kept = slurp(samples);
  }
  // As a sweep leaves it that was killed between the samples and the row.
  std::string orphan = kept;
  orphan.replace(orphan.find("naive"), 5, "tiled");
  std::ofstream(samples, std::ios::app) << orphan;
  RunFolder folder(temporary / "run", kDevice, "abc", false);
  EXPECT_EQ(slurp(samples), kept);
  folder.append({{row("tiled"), kSamples}});
  EXPECT_EQ(slurp(samples), kept + orphan);
}

TEST(RunFolder, MeasuresAgainWhatHasLostItsSamples) {
  const TemporaryFolder temporary;
  const auto run = temporary / "run", samples = run / "samples.jsonl";
  {
    RunFolder folder(run, kDevice, "abc", false);
    for (const char* variant : {"naive", "tiled"}) folder.append({{row(variant), kSamples}});
    SweepRow none = row("ptx");
    none.status = Outcome::not_built;
    folder.append({{none, {}}});
  }
  std::filesystem::resize_file(samples, std::filesystem::file_size(samples) - 5);
  {
    RunFolder folder(run, kDevice, "abc", false);
    EXPECT_EQ(folder.lost_rows(), 1u);
    EXPECT_FALSE(folder.rows().contains(row("tiled")));
    EXPECT_EQ(read_sweep_csv(run / "sweep.csv").size(), 2u) << "naive, and what has no samples";
    folder.append({{row("tiled"), kSamples}});
  }
  EXPECT_EQ(RunFolder(run, kDevice, "abc", false).lost_rows(), 0u);
}

// What is damaged is refused as read_run() refuses it, and stays for whoever wants to see it.
TEST(RunFolder, LeavesForeignAndDamagedFilesAlone) {
  const std::string header = sweep_csv_header(), line = samples_line(row("naive"), kSamples) + "\n";
  SweepRow wrong = row("naive");
  wrong.time_cold_us = 1e308;
  const std::pair<std::string, std::string> folders[] = {
      // sweep.csv, samples.jsonl
      {"my notes", ""},
      {"my notes\nwithout an end", ""},
      {"my,own\n1,2\n", ""},
      {"", "of my own"},
      {"", "of my own\n"},
      {header, "of my own\n"},
      {header + to_csv(row("naive")), line + line},
      {header + to_csv(wrong), line},
      {header + to_csv(row("naive")), "of my own"},
      {header + to_csv(row("naive")), line + "of my own"},
  };
  for (const auto& [sweep, samples] : folders) {
    const TemporaryFolder temporary;
    if (!sweep.empty()) std::ofstream(temporary / "sweep.csv") << sweep;
    if (!samples.empty()) std::ofstream(temporary / "samples.jsonl") << samples;
    const std::string said = error_of([&] { return RunFolder(temporary.path(), kDevice, "abc", false).lost_rows(); });
    EXPECT_TRUE(said.ends_with("--fresh")) << sweep << samples << said;
    EXPECT_EQ(slurp(temporary / "sweep.csv"), sweep);
    EXPECT_EQ(slurp(temporary / "samples.jsonl"), samples);
  }
}

TEST(RunFolder, GoesOnWithoutRowsOfASweepThatWasKilledEarly) {
  for (const bool empty : {false, true}) {
    const TemporaryFolder temporary;
    if (empty) std::ofstream(temporary / "sweep.csv") << "";
    std::ofstream(temporary / "samples.jsonl") << samples_line(row("naive"), kSamples) << "\n{\"o";
    EXPECT_EQ(RunFolder(temporary.path(), kDevice, "abc", false).rows().size(), 0u);
    EXPECT_EQ(slurp(temporary / "sweep.csv"), sweep_csv_header());
    EXPECT_EQ(slurp(temporary / "samples.jsonl"), "");
  }
}

TEST(RunFolder, SlugsNames) {
  EXPECT_EQ(device_slug("NVIDIA H200"), "nvidia-h200");
  EXPECT_EQ(device_slug("AMD EPYC (2 cores)"), "amd-epyc-2-cores");
  EXPECT_EQ(device_slug("()"), "device");
  const TemporaryFolder temporary;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(temporary.path());
  std::set<std::filesystem::path> folders;  // of sweeps that begin in one second, or two
  for (int i = 0; i < 20; ++i) folders.insert(default_run_folder("NVIDIA H200"));
  std::filesystem::current_path(before);
  EXPECT_EQ(folders.size(), 20u);
  for (const auto& folder : folders) EXPECT_TRUE((temporary / "runs/nvidia-h200" / folder.filename()).is_absolute());
}

}  // namespace
}  // namespace noisefloor
