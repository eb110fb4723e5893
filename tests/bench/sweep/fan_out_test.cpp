// Processes side by side: lines behind names, endings; the folders of several GPUs.
#include "bench/sweep/fan_out.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "reports/run/csv.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

Lane shell(const std::string& name, const std::string& script) {
  return {name, {{"sh", "-c", script}}};
}

struct Ran {
  std::vector<LaneResult> result;
  std::string progress;
};

Ran run(const std::vector<Lane>& lanes) {
  std::FILE* file = std::tmpfile();
  Ran ran{fan_out(lanes, file), {}};
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) ran.progress += static_cast<char>(c);
  std::fclose(file);
  return ran;
}

std::vector<std::string> lines_of(const Ran& ran, const std::string& prefix) {
  std::istringstream text(ran.progress);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with(prefix)) lines.push_back(line.substr(prefix.size()));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(FanOut, KeepsLinesWholeAndOutputsApart) {
  // The second writes its line in two pieces, with the first's lines in between.
  const Ran ran =
      run({shell("a", "for i in 1 2 3; do echo $i >&2; sleep 0.05; done; echo table a"),
           shell("bcd", "printf 'half ' >&2; sleep 0.1; echo whole >&2; printf 'no end' >&2; echo table b")});
  EXPECT_EQ(lines_of(ran, "a   | "), (Lines{"1", "2", "3"}));
  EXPECT_EQ(lines_of(ran, "bcd | "), (Lines{"half whole", "no end"}));
  EXPECT_EQ(lines_of(ran, "").size(), 5u);
  EXPECT_TRUE(ran.progress.ends_with('\n'));
  EXPECT_EQ(ran.result[0].output, "table a\n");
  EXPECT_EQ(ran.result[1].output, "table b\n");
}

TEST(FanOut, RunAtTheSameTime) {
  // Each waits for the other: one after the other they would never end.
  const TemporaryFolder temporary;
  const auto meet = [&](const std::string& mine, const std::string& other) {
    return "cd " + temporary.path().string() + "; touch " + mine + "; while [ ! -e " + other +
           " ]; do sleep 0.01; done";
  };
  for (const LaneResult& one : run({shell("a", meet("a", "b")), shell("b", meet("b", "a"))}).result)
    EXPECT_EQ(one.exit_code, 0);
}

TEST(FanOut, OneThatFailsOrDiesLeavesTheOthers) {
  const Ran ran = run({shell("ok", "sleep 0.2; echo done"),
                       shell("not so", "exit 1"),
                       shell("dead", "kill -SEGV $$"),
                       {"missing", {{"/no/such/program"}}}});
  const auto& lanes = ran.result;
  EXPECT_EQ(lanes[0].exit_code, 0);
  EXPECT_EQ(lanes[0].output, "done\n");
  EXPECT_EQ(lanes[1].exit_code, 1);
  EXPECT_EQ(lanes[2].exit_code, 2);
  EXPECT_EQ(lanes[2].ending, "killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(lanes[3].exit_code, 2);
  EXPECT_EQ(lanes[3].ending, "exit code 127");
}

// Of a signal that ends this process, each lane gets SIGTERM.
TEST(FanOut, EndsWithThisProcess) {
  const TemporaryFolder temporary;
  const std::string trap = "cd " + temporary.path().string() +
                           "; trap 'touch told; exit' TERM; touch ready; for i in $(seq 600); do sleep 0.1; done";
  EXPECT_EXIT(
      (void)fan_out({shell("a", trap), shell("b", "cd " + temporary.path().string() +
                                                      "; while [ ! -e ready ]; do sleep 0.01; done; kill -INT $PPID")},
                    stderr),
      testing::KilledBySignal(SIGINT), "");
  for (int i = 0; i < 600 && !std::filesystem::exists(temporary / "told"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(std::filesystem::exists(temporary / "told"));
}

const std::vector<CudaDevice> kDevices = {{0, "NVIDIA H200", "0000:17:00.0"}, {1, "NVIDIA A100-SXM4", "0000:31:00.0"}};

TEST(AllDevices, EachHasItsOwnFolderAndCommandLine) {
  const auto lanes = device_lanes(
      kDevices, {"noisefloor", "sweep", "--device", "all", "--ops=gemm", "--out=elsewhere", "--fresh"}, "run");
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(device_folder(kDevices[0]), "gpu0-nvidia-h200");
  EXPECT_EQ(lanes[1].command.arguments, (Lines{"noisefloor", "sweep", "--ops=gemm", "--fresh", "--device", "1", "--out",
                                               "run/gpu1-nvidia-a100-sxm4"}));
}

// This program stands for the sweeps.
TEST(AllDevices, AreListedWithTheirEndings) {
  const TemporaryFolder temporary;
  SweepRequest request;
  request.command_line = {"tests", "--gtest_list_tests", "--gtest_filter=AllDevices.*"};
  testing::internal::CaptureStdout();
  const int code = sweep_devices(kDevices, request, temporary.path(), {});
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_NE(said.find("== gpu1: NVIDIA A100-SXM4 (0000:31:00.0)\n"), std::string::npos) << said;
  EXPECT_EQ(read_csv(temporary / "gpus.csv").lines.at(1).fields,
            (Lines{"gpu1-nvidia-a100-sxm4", "1", "NVIDIA A100-SXM4", "0000:31:00.0", "exit code 0", "0"}));
}

TEST(AllDevices, DISABLED_Dies) {
  std::_Exit(2);
}

// Of a process that died, what it had gets its tables all the same.
TEST(AllDevices, HaveTheirTablesWhereAProcessDied) {
  const TemporaryFolder temporary;
  SweepRequest request;
  request.runs = temporary.path().string();
  request.command_line = {"tests", "--gtest_filter=AllDevices.DISABLED_Dies", "--gtest_also_run_disabled_tests"};
  std::filesystem::create_directory(temporary / device_folder(kDevices[1]));
  std::ofstream(temporary / device_folder(kDevices[1]) / "sweep.csv") << sweep_csv_header();
  std::vector<std::filesystem::path> written;
  testing::internal::CaptureStdout();
  const int code = sweep_devices(kDevices, request, temporary.path(), [&](const auto& folder) {
    written.push_back(folder);
    throw std::runtime_error("the sweep has no rows");
  });
  (void)testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 2);
  EXPECT_EQ(written, std::vector{temporary / device_folder(kDevices[1])});
}

TEST(AllDevices, LeaveARunOfOneDeviceAlone) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "sweep.csv") << sweep_csv_header();
  EXPECT_THROW((void)sweep_devices(kDevices, {}, temporary.path(), {}), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(temporary / "gpus.csv"));
}

}  // namespace
}  // namespace noisefloor
