// usage: fit gemm|im2col|halo TIMINGS.csv [SEED [ROUNDS]]
//        cmake --preset host && cmake --build build/host --target fit; then build/host/bin/fit ...
//
// Fits the constants of the model by which products choose their schedules (the .costs of kernels/gemm/schedule.cpp,
// kernels/convolution/schedule.cpp and halo.cpp): searches at random, on half of the problems in TIMINGS.csv, for those
// whose choices take the least time. Prints what the model's choices take to the best that was timed, by the present
// constants and by the fitted, on that half and on the other, which the fit has not seen; then the fitted constants as
// they stand in the source. It changes no file, and needs no GPU. TIMINGS.csv is what `noisefloor tune gemm` or
// `noisefloor tune conv2d` wrote (--out). Some seeds (default 1) of ROUNDS tries (default 20000) find less than others:
// compare them on the fitted half alone, since choosing by the other would fit to it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tools/fit/fit.h"

namespace {

using namespace noisefloor;

void report(const fit::FittedKernel& kernel, const std::string& file, std::uint64_t seed, int rounds) {
  const fit::Timings timings = fit::read_timings(kernel, file);
  const auto unseen = std::ranges::count(timings.problems, true, &fit::TimedProblem::unseen);
  const auto seen = static_cast<std::ptrdiff_t>(timings.problems.size()) - unseen;
  if (seen == 0 || unseen == 0)
    throw std::runtime_error(fmt::format("{}: {} problems of {} {} to fit to and {} to judge by; a fit needs both",
                                         file, seen, kernel.op.name, kernel.variant, unseen));
  const product::Sm90aKernel present = kernel.present();
  product::Sm90aKernel fitted = present;
  fitted.costs = fit::search(kernel, timings, seed, rounds);
  fmt::print("{} ({} {}): {} problems on {} with {} SMs; seed {}, {} rounds\n\n", kernel.name, kernel.op.name,
             kernel.variant, timings.problems.size(), timings.device, timings.sm_count, seed, rounds);
  fmt::print("{:<40}{:>14}{:>14}\n", "time of the model's choice / best timed", fmt::format("fitted {}", seen),
             fmt::format("unseen {}", unseen));
  for (const auto& [name, one] : {std::pair{"present constants", present}, {"fitted constants", fitted}})
    fmt::print("{:<40}{:>14.4f}{:>14.4f}\n", name, loss(one, timings, false), loss(one, timings, true));
  fmt::print("\n{}\n", fit::source_text(fitted.costs));
  if (loss(fitted, timings, true) >= loss(present, timings, true))
    fmt::print("On what the fit has not seen it is no better: the present constants should stay.\n");
  fmt::print(
      "No file was changed. The constants stand in {}; the tests of its schedules stand for shapes that are not "
      "timed.\n",
      kernel.source);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 5)
    throw std::runtime_error("usage: fit gemm|im2col|halo TIMINGS.csv [SEED [ROUNDS]]; tools/fit/main.cpp says more");
  const auto kernel = std::ranges::find(fit::fitted_kernels(), std::string(argv[1]), &fit::FittedKernel::name);
  if (kernel == fit::fitted_kernels().end()) throw std::runtime_error("the kernels are gemm, im2col and halo");
  report(*kernel, argv[2], argc > 3 ? std::stoull(argv[3]) : 1, argc > 4 ? std::stoi(argv[4]) : 20000);
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  fmt::print(stderr, "fit: {}\n", error.what());
  return 2;
}
