// ncu's raw page as CSV, and the verdict on a row beside it.
#include "reports/gate/crosscheck.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// As ncu 2025.3 writes it, cut down to a few columns.
const std::string kHeader =
    R"("ID","Process ID","thread Domain:Push/Pop_Range:PL_Type:Msg","Kernel Name","Block Size","dram__bytes_read.sum",)"
    R"("dram__bytes_write.sum","gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active")"
    "\n";
const std::string kUnits = R"("","","","","","byte","byte","ns","%")"
                           "\n";
std::string launch(const std::string& kernel, const std::string& read, const std::string& written,
                   const std::string& time, const std::string& occupancy) {
  return R"x("0","904","904  ""<default domain>:gemm/m=8,n=8,k=8/bf16/ptx:none:none"" ",")x" + kernel +
         R"x(","(128, 1, 1)",")x" + read + "\",\"" + written + "\",\"" + time + "\",\"" + occupancy + "\"\n";
}
const std::string kLaunch = launch("void f<T>(A, B)", "402,678,528", "118,378,752", "125,600", "40.81");

std::string refusal(const std::string& text) {
  try {
    parse_ncu_csv(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

SweepRow row(double time_us, std::optional<double> read, std::optional<double> written,
             std::optional<double> occupancy) {
  SweepRow row;
  row.op = "gemm";
  row.problem = "m=8,n=8,k=8";
  row.dtype = "bf16";
  row.variant = "ptx";
  row.status = Outcome::ok;
  row.time_cold_us = time_us;
  row.dram_read_bytes = read;
  row.dram_write_bytes = written;
  row.occupancy_pct = occupancy;
  row.counter_status = "no_permission";
  return row;
}

// A capture with sections has a column for each of their metrics.
TEST(NcuCsv, ReadsHundredsOfColumns) {
  const auto widened = [](std::string line, const std::string& field) {
    line.pop_back();
    for (int i = 0; i < 900; ++i) line += "," + field;
    return line + "\n";
  };
  const auto launches = parse_ncu_csv(widened(kHeader, "metric") + widened(kUnits, "") + widened(kLaunch, "1"));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_DOUBLE_EQ(launches[0].time_us, 125.6);
  EXPECT_NE(refusal(kHeader + kUnits + std::string(5000, ',')).find("over 2048 columns"), std::string::npos);
}

TEST(NcuCsv, ReadsLaunches) {
  const auto launches = parse_ncu_csv("==PROF== Connected\n" + kHeader + kUnits + kLaunch);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "void f<T>(A, B)");
  EXPECT_NE(launches[0].range.find(":gemm/m=8,n=8,k=8/bf16/ptx:"), std::string::npos);
  EXPECT_DOUBLE_EQ(launches[0].time_us, 125.6);
  EXPECT_EQ(launches[0].dram_read_bytes, 402678528);
  EXPECT_EQ(launches[0].dram_write_bytes, 118378752);
  EXPECT_EQ(launches[0].occupancy_pct, 40.81);
}

TEST(NcuCsv, TakesEveryUnit) {
  const std::string units = R"("","","","","","Mbyte","Kbyte","usecond","%")"
                            "\n";
  const auto launches = parse_ncu_csv(kHeader + units + launch("f", "1.5", "2", "3.25", "1e1"));
  EXPECT_DOUBLE_EQ(launches[0].dram_read_bytes, 1.5e6);
  EXPECT_DOUBLE_EQ(launches[0].dram_write_bytes, 2e3);
  EXPECT_DOUBLE_EQ(launches[0].time_us, 3.25);
  EXPECT_DOUBLE_EQ(launches[0].occupancy_pct, 10);
}

// The header, units and kernels of a capture that has the clock too: kLaunch's with a field more each.
std::string clocked(const std::string& unit, const std::vector<std::string>& launches,
                    const std::vector<std::string>& clocks) {
  const auto widened = [](const std::string& line, const std::string& field) {
    return line.substr(0, line.size() - 1) + ",\"" + field + "\"\n";
  };
  std::string text = widened(kHeader, "gpc__cycles_elapsed.avg.per_second") + widened(kUnits, unit);
  for (std::size_t i = 0; i < launches.size(); ++i) text += widened(launches[i], clocks[i]);
  return text;
}

TEST(NcuCsv, ReadsTheClockWhereThereIsOne) {
  EXPECT_EQ(parse_ncu_csv(kHeader + kUnits + kLaunch)[0].sm_clock_mhz, 0);
  const std::pair<const char*, const char*> readings[] = {
      {"hz", "1,617,250,000.50"}, {"Mhz", "1617.2500005"}, {"Ghz", "1.6172500005"}, {"cycle/nsecond", "1.6172500005"}};
  for (const auto& [unit, value] : readings)
    EXPECT_NEAR(parse_ncu_csv(clocked(unit, {kLaunch}, {value}))[0].sm_clock_mhz, 1617.25, 1e-5) << unit;
  EXPECT_NE(refusal(clocked("rpm", {kLaunch}, {"1"})).find("2: column 'gpc__cycles_elapsed.avg.per_second': unknown"),
            std::string::npos);
  EXPECT_NE(refusal(clocked("hz", {kLaunch}, {"n/a"})).find("3: column 'gpc__cycles_elapsed.avg.per_second': 'n/a'"),
            std::string::npos);
}

TEST(NcuCsv, RefusesEverythingElse) {
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"", "0: no header line"},
      {"==WARNING== No kernels were profiled.\n", "1: no header line"},
      {"a,b\n", "1: no column 'ID'"},
      {kHeader, "1: the report has no launch"},
      {kHeader + kUnits, "2: the report has no launch"},
      {with(kHeader, "gpu__time_duration.sum", "gpu__time.sum"), "1: no column 'gpu__time_duration.sum'"},
      {with(kHeader, "Block Size", "Kernel Name"), "1: two columns 'Kernel Name'"},
      {kHeader + kLaunch, "2: the second line should give the columns' units"},
      {kHeader + with(kUnits, "ns", "fortnights"), "2: column 'gpu__time_duration.sum': unknown unit 'fortnights'"},
      {kHeader + with(kUnits, "\"%\"", "\"%\",\"\""), "2: 10 columns, the header has 9"},
      {kHeader + kUnits + launch("f", "n/a", "1", "1", "1"), "3: column 'dram__bytes_read.sum': 'n/a' is not a number"},
      {kHeader + kUnits + launch("f", "1", "-1", "1", "1"), "'-1' is not a number from 0"},
      {kHeader + kUnits + launch("f", "1", "1", "nan", "1"), "'nan' is not a number"},
      {kHeader + kUnits + launch("f", "1", "1", "1e999", "1"), "'1e999' is not a number"},
      {kHeader + kUnits + launch("f", "1,23", "1", "1", "1"), "'1,23' is not a number"},
      {kHeader + kUnits + launch("f", ",123", "1", "1", "1"), "',123' is not a number"},
      {kHeader + kUnits + launch("f", "1234,567", "1", "1", "1"), "'1234,567' is not a number"},
      {kHeader + kUnits + launch("f", "", "1", "1", "1"), "'' is not a number"},
      {kHeader + kUnits + "\"0\",\"unclosed\n", "3: a quote is not closed"},
  };
  for (const auto& test : cases)
    EXPECT_NE(refusal(test.text).find(test.says), std::string::npos) << refusal(test.text) << "\n" << test.says;
  const TemporaryFolder folder;
  EXPECT_THROW(read_ncu_csv(folder / "missing"), std::runtime_error);
  EXPECT_THROW(read_ncu_csv(folder.path()), std::runtime_error);
  std::ofstream(folder / "bad.csv") << "a,b\n";
  try {
    read_ncu_csv(folder / "bad.csv");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("bad.csv:1: no column 'ID'"), std::string::npos) << error.what();
  }
}

TEST(NcuCsv, MutatedTextIsReadOrRefused) {
  const std::string good = clocked("hz", {kLaunch, kLaunch}, {"1,980,000,000", "1,617,000,000"});
  std::mt19937 random(3);
  int read = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int change = 0; change < 3; ++change) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = "\",\n09.-e"[random() % 8];
      else
        text.erase(at, random() % 20);
    }
    (refusal(text).empty() ? read : refused) += 1;
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

using Verdict = CrosscheckLine::Verdict;
std::vector<Verdict> verdicts(const SweepRow& ours, const std::string& text) {
  std::vector<Verdict> all;
  for (const CrosscheckLine& line : crosscheck(ours, parse_ncu_csv(text))) all.push_back(line.verdict);
  return all;
}

TEST(Crosscheck, JudgesAgainstTheLimits) {
  const auto yes = Verdict::agrees, no = Verdict::differs, open = Verdict::not_judged;
  const std::string text =
      kHeader + kUnits + launch("f", "400,000,000", "100,000,000", "100,000", "40");  // 100 us, 500 MB
  using All = std::vector<Verdict>;
  EXPECT_EQ(verdicts(row(102.9, 419e6, 81e6, 42.9), text), (All{yes, open, yes, open, yes, yes}));
  EXPECT_EQ(verdicts(row(97.1, 381e6, 119e6, 37.1), text), (All{yes, open, yes, open, yes, yes}));
  EXPECT_EQ(verdicts(row(103.1, 421e6, 105e6, 43.1), text), (All{no, open, no, open, no, no}));
  EXPECT_EQ(verdicts(row(96.9, 379e6, 95e6, 36.9), text), (All{no, open, no, open, no, no}));
  EXPECT_EQ(verdicts(row(100, std::nullopt, std::nullopt, std::nullopt), text),
            (All{yes, open, open, open, open, open}));
  const std::string small = kHeader + kUnits + launch("f", "2,000", "0", "49,000", "40");
  EXPECT_EQ(verdicts(row(90, 1e6, 0, 40), small), (All{open, open, yes, open, yes, yes}));  // 1 MB is no difference
}

TEST(Crosscheck, SumsTheKernelsOfALaunch) {
  const std::string text = kHeader + kUnits + launch("f", "100,000,000", "0", "75,000", "20") +
                           launch("g", "100,000,000", "50,000,000", "25,000", "60");
  const auto lines = crosscheck(row(100, 200e6, 50e6, 30), parse_ncu_csv(text));
  int compared = 0;
  for (const CrosscheckLine& line : lines)
    if (line.name != "SM clock") {
      EXPECT_DOUBLE_EQ(*line.ours, *line.theirs) << line.name;
      ++compared;
    }
  EXPECT_EQ(compared, 5);
  const std::string table = crosscheck_table(lines);
  EXPECT_NE(table.find("+0.0 %"), std::string::npos) << table;
  EXPECT_EQ(table.find("DIFFERS"), std::string::npos);
}

// 100 us at 1800 MHz by ncu.
const std::string kClocked =
    clocked("hz", {launch("f", "400,000,000", "100,000,000", "100,000", "40")}, {"1,800,000,000"});

CrosscheckLine time_of(double time_us, const std::string& bound, std::optional<double> launch_mhz,
                       const std::string& text = kClocked) {
  SweepRow ours = row(time_us, 400e6, 100e6, 40);
  ours.bound = Bound::parse(bound);
  ours.sm_clock_mhz = 1980;  // read between launches: has no part in it
  return crosscheck(ours, parse_ncu_csv(text), launch_mhz).front();
}

TEST(Crosscheck, ComparesLaunchesThatComputeAtEqualClocks) {
  const std::string bound = "compute:tensor_bf16";
  const auto slow = time_of(105, bound, 1710);  // as 99.75 us at 1800 MHz
  EXPECT_EQ(slow.verdict, Verdict::agrees);
  EXPECT_EQ(slow.ours, 105);
  EXPECT_EQ(slow.theirs, 100);
  EXPECT_EQ(slow.difference, "-0.2 %");
  EXPECT_NE(slow.limit.find("3 % at equal clocks: 105.00 x 1710 / 1800 MHz = 99.75 us (raw +5.0 %)"), std::string::npos)
      << slow.limit;
  EXPECT_EQ(time_of(100, bound, 1700).verdict, Verdict::differs);  // equal times at other clocks are a difference
  EXPECT_EQ(time_of(102.9, bound, 1890).verdict, Verdict::differs);
  EXPECT_EQ(time_of(98, bound, 1890).verdict, Verdict::agrees);  // 102.9 us
}

TEST(Crosscheck, SaysWhyTimesAreComparedRaw) {
  const std::string compute = "compute:tensor_bf16";
  const std::string unclocked = kHeader + kUnits + launch("f", "400,000,000", "100,000,000", "100,000", "40");
  const struct {
    CrosscheckLine line;
    const char* says;
  } cases[] = {
      {time_of(105, "memory:fma_fp32", 1710), "raw: not bound by compute"},
      {time_of(105, "", 1710), "raw: what bounds the row is not known"},
      {time_of(105, compute, std::nullopt), "raw: no SM clock during the row's launches"},
      {time_of(105, compute, 1710, unclocked), "raw: the report has no SM clock"},
      {time_of(105, compute, 1783), "raw: the clocks are equal"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(test.line.verdict, Verdict::differs) << test.says;
    EXPECT_EQ(test.line.difference, "+5.0 %") << test.says;
    EXPECT_NE(test.line.limit.find(test.says), std::string::npos) << test.line.limit;
  }
  EXPECT_NE(time_of(105, compute, 1781).limit.find("at equal clocks"), std::string::npos);
}

TEST(Crosscheck, ShowsTheClocksWithoutJudgingThem) {
  SweepRow ours = row(100, 200e6, 50e6, 30);
  ours.sm_clock_mhz = 1980;
  const auto kernels = std::vector{launch("f", "100,000,000", "0", "75,000", "20"),
                                   launch("g", "100,000,000", "50,000,000", "25,000", "60")};
  const auto line = crosscheck(ours, parse_ncu_csv(clocked("Mhz", kernels, {"1600", "2000"})), 1870)[1];
  EXPECT_EQ(line.name, "SM clock");
  EXPECT_EQ(line.ours, 1870);
  EXPECT_EQ(line.theirs, 1700);  // by time
  EXPECT_EQ(line.difference, "+10.0 %");
  EXPECT_EQ(line.verdict, Verdict::not_judged);
  EXPECT_NE(line.limit.find("between them the row has 1980"), std::string::npos) << line.limit;
  const auto half = crosscheck(ours, parse_ncu_csv(clocked("Mhz", kernels, {"1600", "0"})))[1];
  EXPECT_FALSE(half.ours || half.theirs);  // a kernel without a clock leaves the launch without one
}

TEST(Crosscheck, DoesNotJudgeABaselinesOccupancy) {
  SweepRow ours = row(100, 400e6, 100e6, 20);
  EXPECT_EQ(crosscheck(ours, parse_ncu_csv(kClocked)).back().verdict, Verdict::differs);
  ours.kind = "baseline";
  const auto lines = crosscheck(ours, parse_ncu_csv(kClocked));
  EXPECT_EQ(lines.back().name, "occupancy");
  EXPECT_EQ(lines.back().verdict, Verdict::not_judged);
  EXPECT_EQ(lines.back().difference, "-20.0 points");
  EXPECT_NE(lines.back().limit.find("anew in each process"), std::string::npos);
  EXPECT_EQ(lines.front().verdict, Verdict::agrees);
  ours.time_cold_us = 104;  // the rest is judged as ever
  ours.dram_read_bytes = 500e6;
  const auto off = crosscheck(ours, parse_ncu_csv(kClocked));
  EXPECT_EQ(off[0].verdict, Verdict::differs);
  EXPECT_EQ(off[2].verdict, Verdict::differs);
}

TEST(Crosscheck, RefusesAnotherCaseAndARowWithoutTime) {
  const auto launches = parse_ncu_csv(kHeader + kUnits + kLaunch);
  SweepRow other = row(100, 1, 1, 1);
  other.problem = "m=8,n=8,k=88";
  EXPECT_THROW(crosscheck(other, launches), std::runtime_error);
  SweepRow failed = row(100, 1, 1, 1);
  failed.status = Outcome::not_built;
  EXPECT_THROW(crosscheck(failed, launches), std::runtime_error);
  const auto timeless = parse_ncu_csv(kHeader + kUnits + launch("f", "1", "1", "0", "1"));
  EXPECT_THROW(crosscheck(row(100, 1, 1, 1), timeless), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
