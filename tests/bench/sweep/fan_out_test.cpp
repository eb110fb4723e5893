// Processes side by side: lines behind names, endings, interruption; CPUs shared out; the folders of several GPUs.
#include "bench/sweep/fan_out.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "reports/run/csv.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

Lane shell(const std::string& name, const std::string& script) {
  return {name, {{"sh", "-c", script}}};
}

struct Ran {
  FanOutResult result;
  std::vector<std::string> progress;
};

Ran run(const std::vector<Lane>& lanes) {
  std::FILE* file = std::tmpfile();
  Ran ran{fan_out(lanes, file), {}};
  std::rewind(file);
  std::string line;
  for (int c; (c = std::fgetc(file)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else {
      ran.progress.push_back(line);
      line.clear();
    }
  }
  std::fclose(file);
  EXPECT_EQ(line, "") << "progress ends with a whole line";
  return ran;
}

std::vector<std::string> lines_of(const Ran& ran, const std::string& prefix) {
  std::vector<std::string> lines;
  for (const std::string& line : ran.progress)
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
  EXPECT_EQ(ran.progress.size(), 5u);
  EXPECT_EQ(ran.result.lanes[0].output, "table a\n");
  EXPECT_EQ(ran.result.lanes[1].output, "table b\n");
  EXPECT_EQ(ran.result.worst_exit_code(), 0);
}

TEST(FanOut, RunAtTheSameTime) {
  // Each waits for the other: one after the other they would never end.
  const TemporaryFolder temporary;
  const auto meet = [&](const std::string& mine, const std::string& other) {
    return "cd " + temporary.path().string() + "; touch " + mine + "; while [ ! -e " + other +
           " ]; do sleep 0.01; done";
  };
  EXPECT_EQ(run({shell("a", meet("a", "b")), shell("b", meet("b", "a"))}).result.worst_exit_code(), 0);
}

TEST(FanOut, OneThatFailsOrDiesLeavesTheOthers) {
  const Ran ran = run({shell("ok", "sleep 0.2; echo done"),
                       shell("not so", "exit 1"),
                       shell("dead", "kill -SEGV $$"),
                       {"missing", {{"/no/such/program"}}}});
  const auto& lanes = ran.result.lanes;
  EXPECT_EQ(lanes[0].exit_code, 0);
  EXPECT_EQ(lanes[0].output, "done\n");
  EXPECT_EQ(lanes[1].exit_code, 1);
  EXPECT_EQ(lanes[2].exit_code, 2);
  EXPECT_EQ(lanes[2].ending, "killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(lanes[3].exit_code, 2);
  EXPECT_EQ(lanes[3].ending, "exit code 127");
  EXPECT_EQ(ran.result.worst_exit_code(), 2);
  EXPECT_EQ(ran.result.interrupted_by, 0);
}

// The signal comes while the others may still be starting: none may miss it.
TEST(FanOut, AnInterruptionEndsAll) {
  const auto before = std::signal(SIGINT, SIG_DFL);  // ignored where a shell has started this in the background
  const Ran ran = run({shell("a", "trap 'echo tidied; exit 3' TERM; kill -INT " + std::to_string(getpid()) +
                                      "; while :; do sleep 0.05; done"),
                       shell("b", "exec sleep 1000")});
  (void)std::signal(SIGINT, before);
  EXPECT_EQ(ran.result.interrupted_by, SIGINT);
  EXPECT_EQ(ran.result.lanes[0].output, "tidied\n");
  EXPECT_EQ(ran.result.lanes[1].ending, "killed by signal 15 (Terminated)");
}

// Under nohup a hang-up is neither this process's nor a lane's to hear.
TEST(FanOut, WhatIsIgnoredStaysIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const Ran ran = run({shell("a", "kill -HUP " + std::to_string(getpid()) + "; kill -HUP $$; echo still here")});
  (void)std::signal(SIGHUP, before);
  EXPECT_EQ(ran.result.interrupted_by, 0);
  EXPECT_EQ(ran.result.lanes[0].output, "still here\n");
}

TEST(FanOut, RunsOnTheCpusItIsGiven) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) last = cpu;
  Lane lane = shell("a", "grep Cpus_allowed_list /proc/self/status | cut -f2");
  lane.command.cpus = {last};
  EXPECT_EQ(run({lane}).result.lanes[0].output, std::to_string(last) + "\n");
}

TEST(CpuSets, ReadTheKernelsLists) {
  EXPECT_EQ(parse_cpu_list("0-2,8,10-11"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
  for (const char* text : {"", "x", "3-1", "1-", "1;2", "-1", "99999999999", "1-5000000"})
    EXPECT_TRUE(parse_cpu_list(text).empty()) << text;
}

TEST(CpuSets, AreSharedOutAmongThoseOfOneNode) {
  const std::vector<int> node0 = {0, 4, 1, 5}, node1 = {2, 6, 3, 7};
  EXPECT_EQ(share_cpus({node0, node1, node0, node1}), (std::vector<std::vector<int>>{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(share_cpus({{0, 1}, {0, 1}, {0, 1}}), (std::vector<std::vector<int>>(3))) << "fewer CPUs than processes";
  EXPECT_EQ(share_cpus({node0, {}}), (std::vector<std::vector<int>>(2))) << "a device whose CPUs are unknown";
}

const std::vector<CudaDevice> kDevices = {{0, "NVIDIA H200", "0000:17:00.0"}, {1, "NVIDIA A100-SXM4", "0000:31:00.0"}};

TEST(AllDevices, EachHasItsOwnFolderAndCommandLine) {
  const auto lanes = device_lanes(
      kDevices, {"noisefloor", "sweep", "--device", "all", "--ops=gemm", "--out=elsewhere", "--fresh"}, "run");
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].folder, "gpu0-nvidia-h200");
  EXPECT_EQ(lanes[1].folder, "gpu1-nvidia-a100-sxm4");
  EXPECT_EQ(lanes[1].lane.command.arguments, (Lines{"noisefloor", "sweep", "--ops=gemm", "--fresh", "--device", "1",
                                                    "--out", "run/gpu1-nvidia-a100-sxm4"}));
}

TEST(AllDevices, AreListed) {
  const TemporaryFolder temporary;
  const auto lanes = device_lanes(kDevices, {"noisefloor", "sweep"}, temporary.path());
  write_gpu_listing(temporary.path(), lanes, nullptr);
  EXPECT_EQ(read_csv(temporary / "gpus.csv").lines[1].fields,
            (Lines{"gpu1-nvidia-a100-sxm4", "1", "NVIDIA A100-SXM4", "0000:31:00.0", "", "", "", "", ""}));

  std::filesystem::create_directory(temporary / "gpu0-nvidia-h200");
  std::ofstream sweep(temporary / "gpu0-nvidia-h200" / "sweep.csv");
  sweep << sweep_csv_header();
  SweepRow row;
  row.op = "gemm";
  row.problem = "m=1";
  row.dtype = "bf16";
  row.time_cold_us = 1;
  for (const Outcome status : {Outcome::ok, Outcome::ok, Outcome::incorrect, Outcome::unsupported_arch}) {
    row.status = status;
    row.variant += "x";
    sweep << to_csv(row);
  }
  sweep.close();
  const FanOutResult result{{{1, "exit code 1", ""}, {2, "killed by signal 9 (Killed)", ""}}, 0};
  write_gpu_listing(temporary.path(), lanes, &result);
  const CsvFile listing = read_csv(temporary / "gpus.csv");
  EXPECT_EQ(listing.lines[0].fields,
            (Lines{"gpu0-nvidia-h200", "0", "NVIDIA H200", "0000:17:00.0", "exit code 1", "1", "4", "2", "1"}));
  EXPECT_EQ(listing.lines[1].fields[4], "killed by signal 9 (Killed)");
}

TEST(AllDevices, LeaveARunOfOneDeviceAlone) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "sweep.csv") << sweep_csv_header();
  EXPECT_THROW((void)sweep_all_devices(kDevices, {"noisefloor", "sweep"}, temporary.path(), [] { FAIL() << "begun"; }),
               std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(temporary / "gpus.csv"));
}

}  // namespace
}  // namespace noisefloor
