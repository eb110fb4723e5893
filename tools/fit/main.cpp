// The program of tools/fit/run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "tools/fit/fit.h"

namespace noisefloor::fit {
namespace {

std::string report(const FittedKernel& kernel, const std::string& file, std::uint64_t seed, int rounds) {
  const Timings timings = read_timings(kernel, file);
  const auto unseen = std::ranges::count(timings.problems, true, &TimedProblem::unseen);
  const auto seen = static_cast<std::ptrdiff_t>(timings.problems.size()) - unseen;
  if (seen == 0 || unseen == 0)
    throw std::runtime_error(fmt::format("{}: {} problems of {} {} to fit to and {} to judge by; a fit needs both",
                                         file, seen, kernel.op.name, kernel.variant, unseen));
  const product::Sm90aKernel present = kernel.present();
  product::Sm90aKernel fitted = present;
  fitted.costs = search(kernel, timings, seed, rounds);
  std::string text =
      fmt::format("{} ({} {}): {} problems on {} with {} SMs; seed {}, {} rounds\n\n", kernel.name, kernel.op.name,
                  kernel.variant, timings.problems.size(), timings.device, timings.sm_count, seed, rounds);
  text += fmt::format("{:<40}{:>14}{:>14}\n", "time of the model's choice / best timed", fmt::format("fitted {}", seen),
                      fmt::format("unseen {}", unseen));
  const auto line = [&](const char* name, const product::Sm90aKernel& one) {
    return fmt::format("{:<40}{:>14.4f}{:>14.4f}\n", name, loss(one, timings, false), loss(one, timings, true));
  };
  text += line("present constants", present) + line("fitted constants", fitted);
  text += "\n" + source_text(fitted.costs) + "\n";
  if (loss(fitted, timings, true) >= loss(present, timings, true))
    text += "On what the fit has not seen it is no better: the present constants should stay.\n";
  return text + fmt::format(
                    "No file was changed. The constants stand in {}; the tests of its schedules stand for shapes that "
                    "are not timed.\n",
                    kernel.source);
}

std::string ranges_text() {
  std::string text = "Constants stay within:\n";
  for (const Constant& constant : constants())
    text += fmt::format("  {:<16} {} to {}\n", constant.name, constant.least, constant.most);
  return text;
}

int run(int argc, char** argv) {
  CLI::App app{"Fits the constants of the products' model of schedules to timings", "tools/fit/run"};
  std::string kernel, file;
  std::uint64_t seed = 1;
  int rounds = 20'000;
  app.add_option("kernel", kernel, "gemm, im2col or halo")->required();
  app.add_option("timings", file, "What `noisefloor tune gemm|conv2d --out FILE` wrote")->required();
  app.add_option("--seed", seed, "Of the search")->capture_default_str();
  app.add_option("--rounds", rounds, "Tries of the search")->check(CLI::Range(1, 100'000'000))->capture_default_str();
  app.footer(ranges_text());
  constexpr int kCouldNot = 2;
  try {
    app.parse(argc, argv);
    std::cout << report(require_kernel(kernel), file, seed, rounds) << std::flush;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kCouldNot;
  } catch (const std::exception& error) {
    std::cerr << "fit: " << error.what() << "\n";
    return kCouldNot;
  }
  return std::cout ? 0 : kCouldNot;
}

}  // namespace
}  // namespace noisefloor::fit

int main(int argc, char** argv) {
  return noisefloor::fit::run(argc, argv);
}
