// Run folders: resuming, torn lines, locks, foreign rows; problem files; the choice of cases.
#include "bench/sweep/run_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/commands/benchmark_flags.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/selection.h"
#include "kernels/catalogue.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

PlatformDescription description(const std::string& name = "Test GPU") {
  PlatformDescription text;
  text.name = name;
  return text;
}

CaseResult result(const std::string& variant) {
  CaseResult made;
  made.row.op = "gemm";
  made.row.problem = "m=1,n=2,k=3";
  made.row.dtype = "bf16";
  made.row.variant = variant;
  made.row.status = Outcome::ok;
  made.row.device = "Test GPU";
  made.row.commit = "abc";
  made.row.time_cold_us = 2;
  made.cold_us = {1.99951, 2.0004};
  made.warm_us = {1};
  made.cold_batches = {1, 1};
  made.cold_mhz = {1980.1234, 1965};
  return made;
}

std::string slurp(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {(std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>()};
}

TEST(RunFolder, GoesOnWhereItStopped) {
  const TemporaryFolder temporary;
  {
    RunFolder folder(temporary / "run", description(), "abc", false);
    folder.append(result("naive"));
    folder.append(result("tiled"));
  }
  // As a sweep leaves it that was killed while writing.
  std::ofstream(temporary / "run" / "sweep.csv", std::ios::app) << "gemm,ptx,half a li";
  std::ofstream(temporary / "run" / "samples.jsonl", std::ios::app) << "{\"op\":";
  {
    RunFolder folder(temporary / "run", description(), "abc", false);
    EXPECT_EQ(folder.rows().size(), 2u);
    EXPECT_TRUE(folder.rows().contains(result("naive").row.case_id()));
    EXPECT_FALSE(folder.rows().contains(result("ptx").row.case_id()));
    folder.append(result("ptx"));
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
  }
  EXPECT_EQ(lines, 3);
}

TEST(RunFolder, RefusesForeignRowsAndLeavesThem) {
  const TemporaryFolder temporary;
  { RunFolder(temporary / "run", description(), "abc", false).append(result("naive")); }
  const std::string before = slurp(temporary / "run" / "sweep.csv");
  EXPECT_THROW(RunFolder(temporary / "run", description("Another GPU"), "abc", false), std::runtime_error);
  EXPECT_THROW(RunFolder(temporary / "run", description(), "def", false), std::runtime_error);
  EXPECT_EQ(slurp(temporary / "run" / "sweep.csv"), before);
  EXPECT_EQ(RunFolder(temporary / "run", description(), "def", true).rows().size(), 0u) << "--fresh starts again";
}

TEST(RunFolder, IsOneSweepsAtATime) {
  const TemporaryFolder temporary;
  const RunFolder first(temporary / "run", description(), "abc", false);
  const std::string before = slurp(temporary / "run" / "sweep.csv");
  for (const bool fresh : {false, true}) {
    try {
      RunFolder(temporary / "run", description(), "abc", fresh);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("another sweep is writing there (host "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(fmt::format("process {}", getpid())), std::string::npos);
    }
    EXPECT_EQ(slurp(temporary / "run" / "sweep.csv"), before);
  }
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

TEST(FolderLock, AWriterThatWasKilledLeavesNoLock) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / ".lock") << "host elsewhere, process 7\n";  // its name is still there
  const FolderLock lock(temporary.path());
  EXPECT_NE(slurp(temporary / ".lock").find(fmt::format("process {}", getpid())), std::string::npos);
}

TEST(FolderLock, KnowsMountsWhoseLocksStayOnOneMachine) {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
      "30 22 0:50 / /home rw - nfs4 server:/home rw,vers=4.2,local_lock=none\n"
      "31 22 0:51 / /scratch rw - nfs server:/scratch rw,vers=3,nolock,local_lock=all\n"
      "32 22 0:52 / /fast\\040disk rw - lustre mgs:/fast rw,localflock\n";
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/var/run1"));
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/home/me/run"));
  EXPECT_TRUE(locks_stay_on_this_machine(mounts, "/scratch/run"));
  EXPECT_FALSE(locks_stay_on_this_machine(mounts, "/scratchy"));
  EXPECT_TRUE(locks_stay_on_this_machine(mounts, "/fast disk/run"));
}

TEST(RunFolder, SaysWhenItCannotBeMade) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "file") << "in the way";
  EXPECT_THROW(RunFolder(temporary / "file" / "run", description(), "abc", false), std::runtime_error);
}

TEST(RunFolder, WritesItsEnvironment) {
  const TemporaryFolder temporary;
  RunFolder folder(temporary / "run", description(), "abc", false);
  folder.write_environment(description(), "580.1", {"noisefloor", "sweep"});
  const auto environment = nlohmann::json::parse(slurp(temporary / "run" / "env.json"));
  EXPECT_EQ(environment["device"], "Test GPU");
  EXPECT_EQ(environment["driver"], "580.1");
  EXPECT_EQ(environment["command_lines"].size(), 1u);
  folder.write_environment(description(), "580.1", {"noisefloor", "sweep", "--budget", "9"});
  const auto resumed = nlohmann::json::parse(slurp(temporary / "run" / "env.json"));
  EXPECT_EQ(resumed["command_lines"],
            nlohmann::json::parse(R"([["noisefloor", "sweep"], ["noisefloor", "sweep", "--budget", "9"]])"));
}

TEST(RunFolder, DropsSamplesOfARowThatWasNotWritten) {
  const TemporaryFolder temporary;
  const auto samples = temporary / "run" / "samples.jsonl";
  std::string kept;
  {
    RunFolder folder(temporary / "run", description(), "abc", false);
    folder.append(result("naive"));
    kept = slurp(samples);
  }
  // As a sweep leaves it that was killed between the samples and the row.
  std::string orphan = kept;
  orphan.replace(orphan.find("naive"), 5, "tiled");
  std::ofstream(samples, std::ios::app) << orphan;
  RunFolder folder(temporary / "run", description(), "abc", false);
  EXPECT_EQ(slurp(samples), kept);
  folder.append(result("tiled"));
  EXPECT_EQ(slurp(samples), kept + orphan);
}

TEST(RunFolder, LeavesForeignFilesAlone) {
  const std::string header = sweep_csv_header();
  const std::pair<const char*, const char*> foreign[] = {
      {"sweep.csv", "my notes"},      {"sweep.csv", "my notes\nwithout an end"}, {"sweep.csv", "my,own\n1,2\n"},
      {"samples.jsonl", "of my own"}, {"samples.jsonl", "of my own\n"},
  };
  for (const auto& [name, text] : foreign) {
    const TemporaryFolder temporary;
    std::ofstream(temporary / name) << text;
    EXPECT_THROW(RunFolder(temporary.path(), description(), "abc", false), std::runtime_error) << text;
    EXPECT_EQ(slurp(temporary / name), text);
  }
  const TemporaryFolder torn;  // killed while writing the header
  std::ofstream(torn / "sweep.csv") << header.substr(0, 20);
  EXPECT_EQ(RunFolder(torn.path(), description(), "abc", false).rows().size(), 0u);
  EXPECT_EQ(slurp(torn / "sweep.csv"), header);
}

TEST(RunFolder, SlugsNames) {
  EXPECT_EQ(device_slug("NVIDIA H200"), "nvidia-h200");
  EXPECT_EQ(device_slug("AMD EPYC (2 cores)"), "amd-epyc-2-cores");
  EXPECT_EQ(device_slug("()"), "device");
}

TEST(RunFolder, IsGoneOnWithBehindALostDevice) {
  const std::vector<std::string> arguments = {
      "noisefloor", "sweep", "--fresh", "--out", "a", "--benchmark_out=x.json", "--benchmark_out_format=csv",
      "--ops",      "gemm",  "--out=b"};
  EXPECT_EQ(command_line_to_go_on(arguments, "runs/c"),
            (std::vector<std::string>{"noisefloor", "sweep", "--ops", "gemm", "--out", "runs/c"}));
}

TEST(ProblemFiles, ShippedOnesLoadAndKnowTheNetworks) {
  const auto problems = load_problems(default_problem_folder());
  const auto networks = network_names(problems);
  for (const char* name : {"adm64-b1", "adm64-b32", "sd15-b2"})
    EXPECT_NE(std::find(networks.begin(), networks.end(), name), networks.end()) << name;
  for (const Op& op : catalogue())
    EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&](const auto& entry) { return entry.op == &op; }))
        << op.name;
  EXPECT_THROW(in_networks(problems, {"adm64-b2"}), InvalidInput);
  EXPECT_EQ(in_networks(problems, {"all", "adm64-b1"}).size(), problems.size());
  EXPECT_THROW(in_networks(problems, {"all", "adm64-b2"}), InvalidInput);
}

std::string load_message(const std::string& text) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gemm.csv") << text;
  try {
    const auto problems = load_problems(temporary.path());
    return std::to_string(problems.size()) + " problems";
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    return message.substr(message.find("gemm.csv"));
  }
}

TEST(ProblemFiles, NameFileLineFieldAndRange) {
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3,4\nb,1,2,3,1\n"), "1 problems");
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3,4\nb,1,2,x,1\n"),
            "gemm.csv:3: problem: field 'k' is 'x', not a whole number from 1 to 16777216");
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3,none\n"),
            "gemm.csv:2: column 'count' is 'none', not a whole number from 1 to 1000000000");
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3,9223372036854775807\n"),
            "gemm.csv:2: column 'count' is '9223372036854775807', not a whole number from 1 to 1000000000");
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3,1000000000\na,1,2,3,1\n"),
            "gemm.csv:3: column 'count': with the lines above 'a' has this problem more than 1000000000 times");
  EXPECT_EQ(load_message("network,m,n,k,count\na,1,2,3\n"), "gemm.csv:2: 4 columns, the header has 5");
  EXPECT_EQ(load_message("network,m,n,k\na,1,2,3\n"), "gemm.csv:1: needs one column 'count'");
  EXPECT_EQ(load_message("network,m,n,depth,count\na,1,2,3,1\n"), "gemm.csv:2: problem: field 'k' is missing");
  EXPECT_EQ(load_message("network,m,n,k,dtype,count\na,1,2,3,fp32,1\na,1,2,3,,1\n"), "1 problems");
  EXPECT_EQ(load_message("network,m,n,k,dtype,count\na,1,2,3,fp64,1\n"),
            "gemm.csv:2: column 'dtype' is 'fp64', none of gemm's dtypes bf16, fp16, fp32");
  EXPECT_EQ(load_message(""), "gemm.csv: empty, no header line");
}

TEST(ProblemFiles, RefuseFilesOfNoOp) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gem.csv") << "network,count\n";
  try {
    load_problems(temporary.path());
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("there is no op 'gem'; did you mean 'gemm'?"), std::string::npos);
  }
}

TEST(Selection, FollowsNamesAndRefusesUnknownOnes) {
  const auto problems = load_problems(default_problem_folder());
  const Selection adm{{"gemm"}, {"adm64-b1"}, {}, {}, {"bf16"}};
  const auto on_host = select_cases(problems, adm, true);
  ASSERT_FALSE(on_host.empty());
  for (const Case& test_case : on_host) {
    EXPECT_TRUE(test_case.implementation->is(Kind::host));
    EXPECT_EQ(test_case.entry->name(), "gemm");
  }
  for (const Case& test_case : select_cases(problems, adm, false)) EXPECT_FALSE(test_case.implementation->is(Kind::host));
  EXPECT_EQ(on_host[0].id().name(), "gemm/" + on_host[0].text + "/bf16/" + on_host[0].implementation->name);
  EXPECT_THROW(select_cases(problems, {{"gem"}, {"all"}, {}, {}, {"bf16"}}, true), InvalidInput);
  EXPECT_THROW(select_cases(problems, {{}, {"all"}, {"naiv"}, {}, {"bf16"}}, true), InvalidInput);
  EXPECT_THROW(select_cases(problems, {{}, {"all"}, {}, {"fast"}, {"bf16"}}, true), InvalidInput);
  EXPECT_THROW(select_cases(problems, {{}, {"all"}, {}, {}, {"bf17"}}, true), InvalidInput);
}

TEST(Selection, HasProblemsWithADtypeOfTheirOwnInThat) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gemm.csv") << "network,m,n,k,dtype,count\na,1,2,3,,4\na,4,5,6,fp32,2\nb,4,5,6,,1\n";
  const auto problems = load_problems(temporary.path());
  const auto rows = [&](std::vector<std::string> networks, std::vector<std::string> dtypes) {
    std::set<std::string> list;
    for (const Case& one : select_cases(problems, {{}, std::move(networks), {}, {}, std::move(dtypes)}, true))
      list.insert(one.text + " " + to_string(one.dtype) + " " + one.networks);
    return list;
  };
  using Rows = std::set<std::string>;
  EXPECT_EQ(rows({"a"}, {"bf16"}), (Rows{"m=1,n=2,k=3 bf16 a:4", "m=4,n=5,k=6 fp32 a:2"}));
  EXPECT_EQ(rows({"all"}, {"bf16"}), (Rows{"m=1,n=2,k=3 bf16 a:4", "m=4,n=5,k=6 bf16 b:1", "m=4,n=5,k=6 fp32 a:2"}));
  EXPECT_EQ(rows({"all"}, {"fp32"}), (Rows{"m=1,n=2,k=3 fp32 a:4", "m=4,n=5,k=6 fp32 a:2;b:1"}));
}

}  // namespace
}  // namespace noisefloor
