// Command lines that are given on; problem files; the choice of cases; what env.json says of a machine.
#include "bench/sweep/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "bench/sweep/google_benchmark.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/session.h"
#include "bench/sweep/workers.h"
#include "kernels/catalogue.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

TEST(CommandLine, IsGivenOnWithoutSomeOptions) {
  EXPECT_EQ(without_options(
                {"noisefloor", "sweep", "--fresh", "--out", "a", "--benchmark_out=x.json", "--ops", "gemm", "--out=b"},
                {"--out"}, {"--fresh"}),
            (std::vector<std::string>{"noisefloor", "sweep", "--benchmark_out=x.json", "--ops", "gemm"}));
}

TEST(Sweep, TheLibraryWritesNoFileItselfAndFiltersNothing) {
  const std::vector<std::string> arguments = {"--benchmark_out=x.json", "--benchmark_out_format=csv",
                                              "--benchmark_filter=m=\\d,", "--benchmark_color=no"};
  EXPECT_EQ(flags_of_library(arguments, parse_benchmark_flags(arguments)),
            (std::vector<std::string>{"--benchmark_color=no", "--benchmark_out=/dev/null"}));
}

// What they mean: tests/cli/test_sweep.py.
TEST(Sweep, FlagsOfTheLibraryAreNotEmpty) {
  for (const char* flag : {"--benchmark_filter=", "--benchmark_out=", "--benchmark_format="})
    EXPECT_THROW(parse_benchmark_flags({flag}), InvalidInput) << flag;
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
  EXPECT_EQ(in_networks(problems, {"all", "adm64-b1"}).size(), in_networks(problems, {"all"}).size());
  EXPECT_THROW(in_networks(problems, {"all", "adm64-b2"}), InvalidInput);
}

std::string load_message(const std::string& text, const std::string& name = "gemm.csv") {
  const TemporaryFolder temporary;
  std::ofstream(temporary / name) << text;
  std::size_t problems = 0;
  const std::string message = refusal_of([&] { return problems = load_problems(temporary.path()).size(); });
  return message.empty() ? std::to_string(problems) + " problems" : message.substr(message.find(name));
}

// What a file says, and the words that name what is wrong with it.
TEST(ProblemFiles, NameFileLineFieldAndRange) {
  const std::string header = "network,m,n,k,count\n";
  EXPECT_EQ(load_message(header + "a,1,2,3,4\nb,1,2,3,1\n"), "1 problems");
  EXPECT_EQ(load_message("network,m,n,k,dtype,count\na,1,2,3,fp32,1\na,1,2,3,,1\n"), "1 problems");
  for (const auto& [text, place, what] :
       {std::tuple{header + "a,1,2,3,4\nb,1,2,x,1\n", ":3: ", "'k' is 'x'"},
        {header + "a,1,2,3,none\n", ":2: ", "'count' is 'none'"},
        {header + "a,1,2,3,9223372036854775807\n", ":2: ", "1 to 1000000000"},
        {header + "a,1,2,3,1000000000\na,1,2,3,1\n", ":3: ", "lines above 'a'"},
        {header + "a,1,2,3\n", ":2: ", "4 columns"},
        {std::string("network,m,n,k\na,1,2,3\n"), ":1: ", "'count'"},
        {std::string("network,m,n,depth,count\na,1,2,3,1\n"), ":2: ", "'k' is missing"},
        {std::string("network,m,n,k,dtype,count\na,1,2,3,fp64,1\n"), ":2: ", "'fp64'"},
        {std::string(), ": ", "no header"}}) {
    const std::string message = load_message(text);
    EXPECT_TRUE(message.starts_with(std::string("gemm.csv") + place)) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
}

TEST(ProblemFiles, PassOverWhatEditorsAndFileSystemsLeave) {
  const TemporaryFolder temporary;
  for (const char* name :
       {"._gemm.csv", "#gemm.csv#", "gemm.csv~", ".gemm.csv.swp", ".DS_Store", "._sets.csv", ".gitignore"})
    std::ofstream(temporary / name) << "not a table";
  std::ofstream(temporary / "gemm.csv") << "network,m,n,k,count\na,1,2,3,4\n";
  EXPECT_EQ(load_problems(temporary.path()).size(), 1u);
}

TEST(ProblemFiles, AreReadWhateverTheCaseOfTheirEnding) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gemm.CSV") << "network,m,n,k,count\na,1,2,3,4\n";
  std::ofstream(temporary / "sets.Csv") << "network,what\na,a set\n";
  const auto problems = load_problems(temporary.path());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].uses[0].set);
  std::ofstream(temporary / "gemm.csv") << "network,m,n,k,count\na,4,5,6,4\n";
  // Which of the two is meant is not known.
  expect_parts(refusal_of([&] { return load_problems(temporary.path()); }), {"gemm.CSV", "gemm.csv"});
}

TEST(ProblemFiles, HaveSetsThatAreNotOfAll) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gemm.csv") << "network,m,n,k,count\na,1,2,3,4\nbig,1,2,3,5\nbig,4,5,6,1\nsmall,4,4,4,1\n";
  std::ofstream(temporary / "sets.csv") << "network,what,by_name\nbig,a set,yes\nsmall,a set,\n";
  const auto problems = load_problems(temporary.path());
  const auto networks = [&](const std::vector<std::string>& asked) {
    std::string list;
    for (const ProblemEntry& one : in_networks(problems, asked)) list += one.networks() + " ";
    return list;
  };
  EXPECT_EQ(networks({"all"}), "a:4 small:1 ");
  EXPECT_EQ(networks({"all", "big"}), "a:4;big:5 big:1 small:1 ");
  EXPECT_EQ(networks({"big"}), "big:5 big:1 ");
  for (const Case& one : select_cases(problems, {{}, {"a", "big"}, {}, {}, {"bf16"}}, false))
    EXPECT_EQ(one.brief, one.text == "m=4,n=5,k=6" || one.implementation->is(Kind::naive))
        << one.text << ": others may be asked for a, too";
  for (const Case& one : select_cases(problems, {{}, {"big"}, {"naive"}, {}, {"bf16"}}, false))
    EXPECT_FALSE(one.brief) << "it is named";
}

TEST(ProblemFiles, HaveWhatIsNotWritten) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "not_written.csv") << "network,op,problem,why,count\nbig,rope,shape=2,no op,3\n";
  EXPECT_TRUE(load_problems(temporary.path()).empty());
  const auto one = load_not_written(temporary.path()).at(0);
  EXPECT_EQ(fmt::format("{} {} {} {} {}", one.network, one.op, one.problem, one.why, one.count),
            "big rope shape=2 no op 3");
  std::ofstream(temporary / "not_written.csv", std::ios::app) << "big,rope,shape=2,no op,none\n";
  expect_parts(refusal_of([&] { return load_not_written(temporary.path()); }), {"not_written.csv:3", "'none'"});
}

TEST(ProblemFiles, RefuseFilesOfNoOp) {
  for (const char* name : {"gem.csv", "gemm (copy).csv", "Copy of gemm.csv", "gemm-old.csv", "GEMM.csv"}) {
    const std::string message = load_message("network,m,n,k,count\na,1,2,3,4\n", name);
    EXPECT_TRUE(message.starts_with(name) && message.find("rename") != std::string::npos) << message;
  }
  EXPECT_NE(load_message("", "gem.csv").find("did you mean 'gemm'?"), std::string::npos);
}

// Of unknown ops, variants and dtypes tests/cli/test_cli.py shows it.
TEST(Selection, FollowsNamesAndRefusesUnknownOnes) {
  const auto problems = load_problems(default_problem_folder());
  const Selection adm{{"gemm"}, {"adm64-b1"}, {}, {}, {"bf16"}};
  const auto on_host = select_cases(problems, adm, true);
  ASSERT_FALSE(on_host.empty());
  for (const Case& test_case : on_host) {
    EXPECT_TRUE(test_case.implementation->is(Kind::host));
    EXPECT_EQ(test_case.entry->name(), "gemm");
  }
  for (const Case& test_case : select_cases(problems, adm, false))
    EXPECT_FALSE(test_case.implementation->is(Kind::host));
  EXPECT_EQ(on_host[0].id().name(), "gemm/" + on_host[0].text + "/bf16/" + on_host[0].implementation->name);
  EXPECT_THROW(select_cases(problems, {{}, {"all"}, {}, {"fast"}, {"bf16"}}, true), InvalidInput);
}

TEST(Selection, LeavesOutTheProblemsOfNetworks) {
  const auto problems = load_problems(default_problem_folder());
  const auto names = [&](const Selection& selection) {
    std::set<std::string> list;
    for (const Case& one : select_cases(problems, selection, false)) list.insert(one.id().name());
    return list;
  };
  Selection rest{{}, {"all"}, {}, {}, {"bf16"}};
  const auto all = names(rest);
  rest.without = {"adm64-b1", "stream"};
  auto both = names(rest);
  const auto left_out = names({{}, rest.without, {}, {}, {"bf16"}});
  EXPECT_EQ(both.size() + left_out.size(), all.size());
  both.insert(left_out.begin(), left_out.end());
  EXPECT_EQ(both, all);
  rest.without = {"adm64-b2"};
  EXPECT_THROW(names(rest), InvalidInput);
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

// As its graph has them; of no other problem, and not on hosts.
TEST(Selection, KnowsTheWeightsOfNetworksAsBuilt) {
  const auto problems = load_problems(default_problem_folder());
  std::map<std::string, std::set<int>> counts;  // of weights, by network and op; -1: not known
  for (const bool host : {false, true})
    for (const char* name : {"digits-b100", "digits-folded-b100", "stream"})
      for (const Case& one : select_cases(problems, {{}, {name}, {}, {}, {"bf16"}}, host))
        counts[fmt::format("{}{} {}", host ? "host " : "", name, one.entry->name())].insert(
            one.weights ? std::popcount(*one.weights) : -1);
  EXPECT_EQ(counts["digits-b100 groupnorm"], std::set{2}) << "gamma and beta";
  EXPECT_EQ(counts["digits-folded-b100 groupnorm"], std::set{2});
  EXPECT_EQ(counts["digits-b100 attention"], std::set{0});
  for (const char* name : {"digits-b100 network", "stream groupnorm", "host digits-b100 groupnorm"})
    EXPECT_EQ(counts[name], std::set{-1}) << name;
}

// By count times cost, of each network and not of sets; a problem of two networks may be among the costliest of one.
TEST(Selection, HasMaxAutotuneOfTheCostliestProblemsOfEachNetwork) {
  const TemporaryFolder temporary;
  std::ofstream(temporary / "gemm.csv") << "network,m,n,k,count\n"
                                           "a,64,64,64,100\na,512,512,512,1\na,256,256,256,1\na,8,8,8,1\n"
                                           "b,8,8,8,9\nb,4,4,4,1\ns,1024,1024,1024,1\n";
  std::ofstream(temporary / "sets.csv") << "network,what\ns,a set\n";
  const auto problems = load_problems(temporary.path());
  const auto searched = [&](Selection selection) {
    std::set<std::string> list;
    for (const Case& one : select_cases(problems, selection, false))
      if (one.implementation->name == kMaxAutotune) list.insert(one.text);
    return list;
  };
  using Problems = std::set<std::string>;
  Selection all{{}, {"all"}, {}, {}, {"bf16"}};
  EXPECT_EQ(searched(all), Problems{}) << "only where it is asked for";
  all.max_autotune = 1;
  EXPECT_EQ(searched(all), (Problems{"m=64,n=64,k=64", "m=8,n=8,k=8"}));
  all.max_autotune = 2;
  EXPECT_EQ(searched(all), (Problems{"m=64,n=64,k=64", "m=512,n=512,k=512", "m=8,n=8,k=8", "m=4,n=4,k=4"}));
  all.max_autotune = 0;
  all.variants = {kMaxAutotune};
  EXPECT_EQ(searched(all).size(), 6u) << "by its name, of all";
}

// What `noisefloor tune` adds to an op's own problems.
TEST(HandedTo, ProductsOfEveryNetworksLayersAndNothingElse) {
  const auto& entries = suite().entries();
  const auto named = [&](const char* name) {
    return std::ranges::find_if(entries, [&](const SuiteEntry& one) { return one.name() == name; });
  };
  const auto gemm = named("gemm"), conv2d = named("conv2d");
  ASSERT_TRUE(gemm != entries.end() && conv2d != entries.end());
  int products = 0;
  for (const ProblemEntry& one : load_problems(default_problem_folder())) {
    EXPECT_FALSE(handed_to(*conv2d, one, DType::bf16)) << one.text;
    const auto text = handed_to(*gemm, one, DType::bf16);
    if (!text) continue;
    ++products;
    EXPECT_EQ(one.entry, &*conv2d) << one.text;
    const AnyProblem product = gemm->workload->parse(*text);  // of the flops of the layer
    EXPECT_EQ(gemm->workload->cost(product, DType::bf16).flops, one.op->cost(one.problem, DType::bf16).flops) << *text;
  }
  EXPECT_GT(products, 40);
}

// ---- what env.json says of a machine

TEST(Environment, OfAGpuHasWhatItReportsAndNothingElse) {
  EXPECT_EQ(gpu_facts({}).dump(), "{}");
  GpuDescription gpu;
  gpu.power_limit_w = 650;
  gpu.power_limit_default_w = 700;
  gpu.memory_clock_max_mhz = 3201;
  gpu.ecc = true;
  gpu.mig = false;
  gpu.pcie_generation = 5;
  gpu.pcie_lanes = 16;
  EXPECT_EQ(gpu_facts(gpu).dump(),
            R"({"power_limit_w":650.0,"power_limit_default_w":700.0,"memory_clock_max_mhz":3201.0,"ecc":"on",)"
            R"("mig":"off","pcie":"generation 5, 16 lanes"})");
}

TEST(Environment, OfAHostNamesItsProcessorsAndNoGpu) {
  const auto host = make_host_platform();
  const auto facts = environment_facts(host->description(), GpuMonitor(""));
  EXPECT_EQ(facts.at("gpu_uuid"), "");
  EXPECT_GE(facts.at("cpu_cores").get<int>(), 1);
  EXPECT_TRUE(facts.at("device").get<std::string>().starts_with(facts.at("cpu").get<std::string>()));
  EXPECT_GE(facts.at("load_average").get<double>(), 0);
  for (const char* name : {"power_limit_w", "ecc", "cublaslt", "cudnn", "cupti"}) EXPECT_FALSE(facts.contains(name));
}

}  // namespace
}  // namespace noisefloor
