// Ceilings: their file, their cache, their look-ups and datasheet values. Nothing here needs a GPU.
#include "bench/ceilings/ceilings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/files.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

Ceilings h200() {
  return {"NVIDIA H200",
          "580.95.05",
          "0123abc",
          {{"dram_copy", 4250, "GB/s", 4800, 1980},
           {"fma_fp32", 60000, "GFLOP/s", 67000, 1975.5},
           {"tensor_bf16", 800000, "GFLOP/s", 989500, 1700},
           {"tensor_tf32", 400000, "GFLOP/s", 0, 0}}};
}

class CeilingsStore : public testing::Test {
 protected:
  CeilingsStore() { setenv("XDG_CACHE_HOME", folder_.c_str(), 1); }
  ~CeilingsStore() override {
    if (saved_)
      setenv("XDG_CACHE_HOME", saved_->c_str(), 1);
    else
      unsetenv("XDG_CACHE_HOME");
  }
  fs::path file(const std::string& text) const {
    const fs::path path = folder_ / "ceilings.csv";
    std::ofstream(path) << text;
    return path;
  }
  void expect_refused(const std::string& text, const std::string& words) const {
    expect_parts(refusal_of<std::runtime_error>([&] { return read_ceilings(file(text)); }), {words, "ceilings.csv"});
  }

  // The host's, with its folder.
  static fs::path host_cache() {
    fs::create_directories(cache_folder());
    return cache_folder() / cache_file_name(host_identity());
  }
  static Ceilings of_host(const char* commit, double copy, double fma, std::optional<double> load) {
    const DeviceIdentity identity = host_identity();
    return {identity.name,
            identity.driver,
            commit,
            {{"dram_copy", copy, "GB/s", 0, 0, load},
             {"dram_read", copy, "GB/s", 0, 0, load},
             {"fma_fp32", fma, "GFLOP/s", 0, 0, load}}};
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const std::optional<std::string> saved_ = [] {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    return cache != nullptr ? std::optional<std::string>(cache) : std::nullopt;
  }();
};

constexpr const char* kHeader = "name,value,unit,datasheet,device,driver,sm_clock_mhz,commit\n";

TEST_F(CeilingsStore, RoundTrip) {
  Ceilings written = h200();
  written.device = "A \"GPU\", rev 2";
  const fs::path path = folder_ / "out.csv";
  write_ceilings(path, written);
  const CeilingTable read = read_ceilings(path);
  EXPECT_EQ(read.device, written.device);
  EXPECT_EQ(read.driver, written.driver);
  EXPECT_EQ(read.commit, written.commit);
  ASSERT_EQ(read.rows.size(), written.rows.size());
  for (std::size_t i = 0; i < read.rows.size(); ++i) {
    EXPECT_EQ(read.rows[i].name, written.rows[i].name);
    EXPECT_EQ(read.rows[i].unit, written.rows[i].unit);
    EXPECT_NEAR(read.rows[i].value, written.rows[i].value, 1e-5 * written.rows[i].value);
    EXPECT_NEAR(read.rows[i].datasheet, written.rows[i].datasheet, 1e-5 * written.rows[i].datasheet);
    EXPECT_NEAR(read.rows[i].sm_clock_mhz, written.rows[i].sm_clock_mhz, 1e-5 * written.rows[i].sm_clock_mhz);
  }
  EXPECT_FALSE(fs::exists(partial_of(path)));
}

TEST_F(CeilingsStore, BadFilesAreRefusedWithPlaceAndReason) {
  const std::string good = "dram_copy,4250,GB/s,4800,NVIDIA H200,580,1980,abc\n", header = kHeader;
  const auto row = [&](const char* begin) { return header + begin + ",NVIDIA H200,580,,abc\n"; };
  expect_refused("", "ceilings.csv");
  expect_refused(header, "holds no ceilings");
  expect_refused("name,value\ndram_copy,1\n", "unit");
  expect_refused(row("dram_copy,fast,GB/s,"), ":2: column 'value'");
  for (const char* value : {"", "nan", "-1", "1e3x"})
    expect_refused(row(("dram_copy," + std::string(value) + ",GB/s,").c_str()), "column 'value'");
  expect_refused(row("dram_copy,1,GiB,"), "column 'unit'");
  expect_refused(row("dram_copy,1,GB/s,x"), "column 'datasheet'");
  expect_refused(header + good + good, "twice");
  expect_refused(header + good + "fma_fp32,1,GFLOP/s,,NVIDIA H100,580,,abc\n", ":3: another device");
  expect_refused(header + "dram_copy,4250\n", "ceilings.csv");
}

TEST_F(CeilingsStore, WhereTheyCannotBeWrittenIsNamed) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "no" / "such" / "ceilings.csv", pipe})
    expect_parts(refusal_of<std::runtime_error>([&] { return write_ceilings(path, h200()), 0; }), {path.string()});
  EXPECT_TRUE(fs::is_fifo(pipe)) << "a device is not replaced";
}

TEST_F(CeilingsStore, AreMeasuredByAProgramOrWhereItFailsHere) {
  std::vector<std::string> told;
  const auto by = [&](const std::string& script) {
    const fs::path program = folder_ / "program";
    std::ofstream(program) << "#!/bin/sh\n" << script;
    fs::permissions(program, fs::perms::owner_all);
    return measure_apart(
        program, 3, [&](const std::string& text) { told.push_back(text); }, h200);
  };
  const std::string row = "dram_copy,1,GB/s,,of $*,580,,abc";
  const Ceilings apart = by("printf '%s' '" + std::string(kHeader) + "' > \"$6\"; echo \"" + row + "\" >> \"$6\"\n");
  EXPECT_TRUE(apart.device.starts_with("of ceilings --device 3 --refresh --out ")) << apart.device;
  EXPECT_FALSE(fs::exists(apart.device.substr(apart.device.find("--out ") + 6)));
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(by("echo all GPUs are busy >&2; exit 3\n").device, h200().device);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("exit code 3: all GPUs are busy"), std::string::npos) << told[0];
  EXPECT_EQ(by("true\n").device, h200().device);  // it wrote nothing
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(CeilingsStore, CacheFollowsXdg) {
  EXPECT_EQ(cache_folder(), folder_ / "noisefloor");
  EXPECT_EQ(cache_file_name({"NVIDIA H200 (x/../y)", "580.95.05", 1980}),
            "ceilings-NVIDIA_H200_x_.._y_-580.95.05-1980.csv");
}

// A good cache is used as it stands; a bad one is named, measured again and replaced.
TEST_F(CeilingsStore, HostCacheIsUsedAndABadOneIsReplaced) {
  const fs::path cache = host_cache();
  write_ceilings(cache, of_host("old", 1.5, 2.5, 0.0));
  std::string log;
  const auto append = [&log](const std::string& line) { log += line + '\n'; };
  const Ceilings cached = load_or_measure(kHostDevice, false, "new", append);
  EXPECT_EQ(cached.memory().value, 1.5);
  EXPECT_EQ(cached.commit, "old");
  EXPECT_EQ(log, "");

  std::ofstream(cache) << "garbage\n";
  const Ceilings measured =
      load_or_measure(kHostDevice, false, "new", append, CeilingsProcess::own, [] { return of_host("", 3, 4, 1.0); });
  EXPECT_NE(log.find("warning"), std::string::npos) << log;
  EXPECT_NE(log.find(cache.string()), std::string::npos) << log;
  EXPECT_EQ(measured.commit, "new");
  EXPECT_EQ(measured.memory().value, 3);
  EXPECT_EQ(read_ceilings(cache).commit, "new");
  for (const Ceiling& row : read_ceilings(cache).rows) EXPECT_EQ(row.load, 1) << row.name;
}

// What other programs slowed is not kept longer than it must be, and never lowers what was measured before.
TEST_F(CeilingsStore, CeilingsOfABusierHostAreTakenAgain) {
  const fs::path cache = host_cache();
  constexpr double kNobodyHas = 1e9, kLoad = 1e6;
  const auto plant = [&](std::optional<double> load) { write_ceilings(cache, of_host("old", kNobodyHas, 2.5, load)); };
  const auto measure = [] { return of_host("", 3, 4, 1.0); };
  for (const auto& load : {std::optional(kLoad), std::optional<double>()}) {
    plant(load);
    std::string log;
    const Ceilings again = load_or_measure(
        kHostDevice, false, "new", [&](const std::string& line) { log += line; }, CeilingsProcess::own, measure);
    EXPECT_NE(log.find("measured again"), std::string::npos) << log;
    EXPECT_EQ(again.commit, "new");
    EXPECT_EQ(again.memory().value, kNobodyHas) << "the higher one stays";
    EXPECT_EQ(again.compute(Pipe::fma, DType::fp32).value, 4);
    for (const Ceiling& row : read_ceilings(cache).rows) EXPECT_EQ(row.load, 1);
  }
  plant(0);
  const Ceilings raised = raise_host_ceilings(
      Ceilings{read_ceilings(cache)}, "newer", [](const std::string&) {}, measure);
  EXPECT_EQ(raised.memory().value, kNobodyHas);
  EXPECT_EQ(raised.compute(Pipe::fma, DType::fp32).value, 4);
  EXPECT_EQ(read_ceilings(cache).commit, "newer");
}

TEST(Ceilings, LookUpsNameTheUnitThatRuns) {
  const Ceilings ceilings = h200();
  EXPECT_EQ(ceilings.memory().name, "dram_copy");
  EXPECT_EQ(ceilings.compute(Pipe::tensor, DType::bf16).name, "tensor_bf16");
  EXPECT_EQ(ceilings.compute(Pipe::tensor, DType::fp32).name, "tensor_tf32");
  EXPECT_EQ(ceilings.compute(Pipe::fma, DType::fp32).name, "fma_fp32");
  EXPECT_EQ(ceilings.compute(Pipe::fma, DType::bf16).name, "fma_fp32");
  EXPECT_EQ(ceilings.compute(Pipe::tensor, DType::fp16).name, "fma_fp32");  // not measured: the device has no such pipe
  EXPECT_EQ(ceilings.find("l2"), nullptr);
  EXPECT_THROW(Ceilings{}.memory(), std::out_of_range);
  EXPECT_THROW(Ceilings{}.compute(Pipe::tensor, DType::bf16), std::out_of_range);
}

TEST(Ceilings, DatasheetIsOfExactlyThatProduct) {
  EXPECT_EQ(datasheet_rate("NVIDIA H200", "dram_copy"), 4800);
  EXPECT_EQ(datasheet_rate("NVIDIA H200", "tensor_bf16"), 989500);
  EXPECT_EQ(datasheet_rate("NVIDIA H200", "l2"), std::nullopt);
  EXPECT_EQ(datasheet_rate("NVIDIA H200 NVL", "dram_copy"), std::nullopt);
  EXPECT_EQ(datasheet_rate("Tesla T4", "tensor_bf16"), std::nullopt);
  EXPECT_EQ(datasheet_rate("Tesla T4", "tensor_fp16"), 65000);
  EXPECT_EQ(datasheet_rate("Some other GPU", "dram_copy"), std::nullopt);
}

}  // namespace
}  // namespace noisefloor
