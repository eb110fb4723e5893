// Which Python becomes PyTorch's worker; by stubs.
#include "bench/sweep/workers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "kernels/core/dynamic_library.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

class StartPyTorch : public testing::Test {
 protected:
  TemporaryFolder folder;

  // NOISEFLOOR_PYTHON: a script that writes its folder and arguments, and answers as the stub worker does.
  StartPyTorch() {
    const auto script = folder / "python";
    const auto here = std::filesystem::current_path().string();
    std::ofstream(script) << "#!/bin/sh\necho \"$PWD $*\" >" << (folder / "called").string()
                          << "\nSTUB_LOG=" << (folder / "log").string() << " exec python3 " << here
                          << "/tests/bench/measure/stub_worker.py\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    setenv("NOISEFLOOR_PYTHON", script.c_str(), 1);
  }
  ~StartPyTorch() override { unsetenv("NOISEFLOOR_PYTHON"); }
  std::string called() const {
    std::string line;
    std::getline(std::ifstream(folder / "called") >> std::ws, line);
    return line;
  }
};

TEST_F(StartPyTorch, ItRunsTheWorkerOfThisProgram) {
  const auto worker = start_pytorch(3, true);
  EXPECT_EQ(worker->facts(), (Worker::Facts{{"stub", "1.0"}}));
  const std::string root = std::filesystem::canonical(".").string();
  EXPECT_EQ(called(), root + " -m baselines.pytorch.worker --device 3 --max-autotune");
  EXPECT_GT(worker->options().ready_seconds, WorkerOptions{}.ready_seconds);
}

TEST_F(StartPyTorch, WithoutOneItSaysWhy) {
  setenv("NOISEFLOOR_PYTHON", "/nowhere/python", 1);
  EXPECT_EQ(refusal_of<LibraryMissing>([] { return start_pytorch(0, false); }),
            "/nowhere/python: PyTorch's worker cannot be started: ended with exit code 127: the program cannot be run");
}

TEST(PyTorch, EveryOpHasItsRowsAndTheyAreNobodysKernels) {
  for (const Op& op : catalogue()) {
    const auto rows = pytorch_implementations(op.name);
    EXPECT_GE(rows.size(), 3u);
    for (const char* compiled : {"torch_compile", kMaxAutotune})
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row->name == compiled; }));
    for (const ImplementationPtr& row : rows) {
      EXPECT_TRUE(row->in_worker && row->is(Kind::baseline) && !row->own() && !row->on_host) << row->name;
      EXPECT_TRUE(row->name.starts_with("torch_") || row->name.starts_with(kPeer)) << "reports tell their rows by it";
    }
  }
}

TEST(Peers, AreFilesAndThoseThatAreNotInstalledAreLeftOutUnlessTheyWereNamed) {
  const SuiteEntry& attention = *suite().find("attention");
  std::vector<Case> all;
  for (const char* name : {"torch_flash", "peer_flash_attn4", "peer_sage", "peer_flashinfer"})
    all.push_back({&attention, attention.find(name), {}, DType::bf16, "text"});
  ASSERT_TRUE(std::ranges::all_of(all, [](const Case& one) { return one.implementation != nullptr; }));
  const TemporaryFolder folder;
  Worker worker("the stub", {{"python3", "tests/bench/measure/stub_worker.py", "peers",
                              R"({"lacking": {"peer_sage": {"wrong": false, "reason": "not there"},
                                              "peer_flashinfer": {"wrong": true, "reason": "is 9.9"}}})"},
                             {{"STUB_LOG", (folder / "log").string()}}});
  const auto left = [&](const std::vector<std::string>& named) {
    std::vector<Case> cases = all;
    leave_out_peers(cases, named, worker);
    std::string names;
    for (const Case& one : cases) names += one.implementation->name + " ";
    return names;
  };
  EXPECT_EQ(left({}), "torch_flash peer_flash_attn4 ");
  EXPECT_EQ(left({"peer_sage"}), "torch_flash peer_flash_attn4 peer_sage ") << "its row says what is missing";
  expect_parts(refusal_of([&] { return left({"peer_flashinfer"}); }), {"is 9.9"});
}

}  // namespace
}  // namespace noisefloor
