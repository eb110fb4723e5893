// What raises the level of ordinary edges between the kernels of a CUDA graph, and what lowers it again? Run by hand;
// no test. usage: edge_levels [PART], PART being a part of the names of the steps to take; all take about 40 s.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a edge_levels.cu -o edge_levels && ./edge_levels
//
// Edges are measured, then one suspect after another is tried: a line a step, with microseconds an edge before, right
// after and 0.5 s after, of a graph captured anew; `kept` is a graph captured at the start, SM MHz a clock that could
// explain both. A level of 0.08 us or more over the one before is RAISED: then cures are tried until the level is back,
// and the step is taken once more, since levels fall by themselves, too. Where no cure works, or a step costs the
// process its device, a fresh process goes on with the next step, so that its figures are not hidden.
// `stack_in_child_lmem_to_max` prints a child's lines, indented, and its own summary. CUDA_VISIBLE_DEVICES picks the
// GPU; steps `second_gpu` want two. Libraries are opened by LD_LIBRARY_PATH or in /usr/local/cuda/lib64.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "edge_levels_libraries.cuh"
#include "edge_levels_measure.cuh"
#include "edge_levels_suspects.cuh"

namespace edge_levels {

// This program again, as a child or in this one's place

struct Options {
  bool lmem_to_max = false;
  std::size_t from = 0;     // step
  double first = 0;         // microseconds an edge, of the first process
  std::string summary;      // so far
  std::string part, child;  // which steps; which child
} options;
Edges* edges = nullptr;

[[noreturn]] void execute(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "edge_levels");
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // the driver's files
  execv("/proc/self/exe", raw.data());
  std::perror("edge_levels: error: exec");
  _exit(127);
}

pid_t spawn(const std::vector<std::string>& arguments, int out = 1) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    if (out != 1) dup2(out, 1);
    execute(arguments);
  }
  if (pid < 0) say("fork failed");
  return pid;
}

void wait_for(pid_t pid) {
  int status = 0;
  if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0)) say("child failed: " + std::to_string(status));
}

[[noreturn]] void go_on_afresh(std::size_t from) {
  std::printf("  a fresh process goes on\n");
  std::fflush(nullptr);
  std::vector<std::string> arguments;
  if (options.lmem_to_max) arguments.push_back("--lmem-to-max");
  arguments.insert(arguments.end(), {"--from", std::to_string(from), std::to_string(options.first), options.summary});
  if (!options.part.empty()) arguments.push_back(options.part);
  execute(arguments);
}

// What a child does: a bit of work, then `brief` says what its edges took and `idle` stays for 2 s.
void be_child() {
  check(cudaSetDevice(options.child == "idle_on_second" ? 1 : 0));
  Edges own;
  void* bytes = nullptr;
  check(cudaMalloc(&bytes, 1 << 30));
  check(cudaMemset(bytes, 1, 1 << 30));
  const Level level = own.measure();
  check(cudaFree(bytes));
  if (options.child == "brief") {
    std::printf("  (a child's own edges: %.3f)\n", level.fresh);
  } else {
    if (write(1, "r", 1) != 1) std::exit(2);
    wait(2);
  }
}

void brief_child() {
  wait_for(spawn({"--child", "brief"}));
}

void beside_idle_child(const char* kind) {
  int ends[2];
  if (pipe(ends) != 0) return say("pipe failed");
  const pid_t pid = spawn({"--child", kind}, ends[1]);
  close(ends[1]);
  char ready = 0;
  const bool began = read(ends[0], &ready, 1) == 1;
  if (began) {
    char words[64];
    std::snprintf(words, sizeof words, "beside it %.3f", edges->measure().fresh);
    say(words);
  }
  wait_for(pid);
  close(ends[0]);
}
void idle_child() {
  beside_idle_child("idle");
}
void idle_child_on_second_gpu() {
  devices < 2 ? say("one GPU: not done") : beside_idle_child("idle_on_second");
}

void stack_in_child() {
  if (options.lmem_to_max) return say("is the child: not done");
  wait_for(spawn({"--lmem-to-max", "stack"}));
}

struct Named {
  const char* name;
  void (*run)();
};

constexpr Named kSteps[] = {
    {"control_1", control},
    {"control_2", control},
    {"stack_512", stack<512>},
    {"stack_16k", stack<16 << 10>},
    {"stack_limit_16k", stack_limit<16 << 10>},
    {"stack_limit_1k", stack_limit<1 << 10>},
    {"stack_in_child_lmem_to_max", stack_in_child},
    {"cooperative", cooperative},
    {"cluster_2", cluster<2>},
    {"cluster_16", cluster<16>},
    {"programmatic_graph", programmatic_graph},
    {"shared_200k", shared_200k},
    {"child_brief", brief_child},
    {"child_idle", idle_child},
    {"default_streams", default_streams},
    {"streams_created_100", more_streams<100, Use::none>},
    {"streams_at_once_1", more_streams<1, Use::at_once>},
    {"streams_at_once_2", more_streams<2, Use::at_once>},
    {"streams_at_once_4", more_streams<4, Use::at_once>},
    {"streams_at_once_8", more_streams<8, Use::at_once>},
    {"streams_at_once_16", more_streams<16, Use::at_once>},
    {"streams_at_once_100", more_streams<100, Use::at_once>},
    {"streams_in_turns_100", more_streams<100, Use::in_turns>},
    {"streams_of_high_priority", streams_of_high_priority},
    {"streams_destroyed", streams_destroyed},
    {"events_1000", events_1000},
    {"graphs_100", graphs_100},
    {"graphs_destroyed", graphs_destroyed},
    {"libraries_50", libraries_50},
    {"libraries_unloaded", libraries_unloaded},
    {"driver_modules_50", driver_modules_50},
    {"memory_10gb", memory_10gb},
    {"memory_pool", memory_pool},
    {"memory_managed", memory_managed},
    {"device_printf", device_printf},
    {"device_malloc", device_malloc},
    {"persisting_l2_set", persisting_l2_set},
    {"persisting_l2_reset", persisting_l2_reset},
    {"failing_launches", failing_launches},
    {"invalidated_capture", invalidated_capture},
    {"nvrtc", nvrtc},
    {"cublaslt", cublaslt},
    {"cudnn_created", cudnn_created},
    {"cudnn_destroyed", cudnn_destroyed},
    {"cudnn_search", cudnn_search},
    {"second_gpu", second_gpu},
    {"second_gpu_peer", second_gpu_peer},
    {"second_gpu_idle_child", idle_child_on_second_gpu},
    {"stack_64k", stack<64 << 10>},
    {"stack_256k", stack<256 << 10>},  // late: local memory for all threads that fit is 66 GiB, and stays
    {"control_3", control},
};

constexpr Named kCures[] = {
    {"0.5 s of waiting", [] { wait(0.5); }},
    {"cudaDeviceSynchronize", [] { EDGE_LEVELS_TRY(cudaDeviceSynchronize()); }},
    {"large grid without a stack",
     [] {
       launch(nothing<1>, 100'000, 256, 0);
       EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
     }},
    {"copy to the device", [] { copies(cudaMemcpyHostToDevice); }},
    {"copy to the host", [] { copies(cudaMemcpyDeviceToHost); }},
    {"memory_10gb", memory_10gb},
    {"graphs_100", graphs_100},
    {"graphs_destroyed", graphs_destroyed},
    {"libraries_50", libraries_50},
    {"libraries_unloaded", libraries_unloaded},
    {"cudaCtxResetPersistingL2Cache", [] { EDGE_LEVELS_TRY(cudaCtxResetPersistingL2Cache()); }},
    {"kernels on this stream, 1000",
     [] {
       for (int i = 0; i < 1000; ++i)
         if (!launch(nothing<1>, 1, 32, 0)) return;
       EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
     }},
    {"default_streams", default_streams},
    {"cooperative", cooperative},
    {"idle child", idle_child},
    {"brief child", brief_child},
    {"streams_destroyed", streams_destroyed},
    {"a stream created and destroyed",
     [] {
       more_streams<1, Use::none>();
       streams_destroyed();
     }},
};

void print(const std::string& name, const Level& before, const Level& after, const Level* later, const char* verdict) {
  const std::string indented = (options.lmem_to_max ? "  " : "") + name;
  std::printf("%-36s| %8.3f | %8.3f | ", indented.c_str(), before.fresh, after.fresh);
  later == nullptr ? std::printf("%8s", "") : std::printf("%8.3f", later->fresh);
  std::printf(" | %8.3f %8.3f | %6.0f | %s%s%s\n", before.kept, after.kept, after.mhz, verdict,
              *verdict != 0 && !note.empty() ? "; " : "", note.c_str());
  note.clear();
}

void remember(const std::string& what, const Level& before, const Level& after) {
  char words[200];
  std::snprintf(words, sizeof words, "  %s: %.3f -> %.3f (kept %.3f -> %.3f)", what.c_str(), before.fresh, after.fresh,
                before.kept, after.kept);
  options.summary += (options.summary.empty() ? "" : "\n") + std::string(words);
}

enum class Outcome { same, raised_and_back, stays };

Outcome take(const Named& step) {
  const Level before = edges->measure();
  step.run();
  EDGE_LEVELS_TRY(cudaDeviceSynchronize());
  const Level after = edges->measure();
  wait(0.5);
  const Level later = edges->measure();
  const bool high = above(later, before), raised = high || above(after, before);
  const bool fell = above(before, after) || above(before, later);
  print(step.name, before, after, &later, raised ? "RAISED" : fell ? "FELL" : "");
  if (raised || fell) remember(step.name, before, high ? later : after);
  if (!raised) return Outcome::same;
  if (!high) {
    options.summary += ", back after 0.5 s";
    return Outcome::raised_and_back;
  }
  Level last = later;
  for (const Named& cure : kCures) {
    cure.run();
    const Level now = edges->measure();
    const bool back = !above(now, before);
    print(std::string("  cure: ") + cure.name, last, now, nullptr, back ? "WORKED" : "did not");
    last = now;
    if (!back) continue;
    options.summary += std::string(", cured by: ") + cure.name;
    return Outcome::raised_and_back;
  }
  options.summary += ", no cure";
  return Outcome::stays;
}

void run() {
  if (options.lmem_to_max) check(cudaSetDeviceFlags(cudaDeviceLmemResizeToMax));
  check(cudaGetDeviceCount(&devices));
  check(cudaSetDevice(0));
  if (!options.child.empty()) return be_child();
  Edges own;
  edges = &own;
  own.measure();
  const Level start = own.measure();
  if (options.first == 0) {
    cudaDeviceProp device{};
    int driver = 0;
    check(cudaGetDeviceProperties(&device, 0));
    check(cudaDriverGetVersion(&driver));
    std::printf("%s, %d GPU(s), CUDA %d of the driver, us an edge\n", device.name, devices, driver);
    std::printf("%-36s| %8s | %8s | %8s | %17s | %6s |\n", "step", "before", "after", "0.5 s on", "kept graph",
                "SM MHz");
    options.first = start.fresh;
  }
  print("(start of a process)", {options.first, start.kept, 0}, start, nullptr,
        above(start, {options.first, options.first, 0}) ? "HIGHER than the first process" : "");
  for (std::size_t i = options.from; i < std::size(kSteps); ++i) {
    if (std::string(kSteps[i].name).find(options.part) == std::string::npos) continue;
    try {
      Outcome outcome = take(kSteps[i]);
      if (outcome == Outcome::raised_and_back) outcome = take(kSteps[i]);  // by itself, or by this step?
      if (outcome == Outcome::stays) go_on_afresh(i + 1);
    } catch (const std::exception& error) {
      std::printf("%s: error: %s; %s\n", kSteps[i].name, error.what(), note.c_str());
      options.summary += (options.summary.empty() ? "  " : "\n  ") + std::string(kSteps[i].name) + ": error";
      go_on_afresh(i + 1);
    }
  }
  std::printf("%ssteps that changed the level%s:\n%s\n", options.lmem_to_max ? "  " : "",
              options.lmem_to_max ? ", with cudaDeviceLmemResizeToMax" : "",
              options.summary.empty() ? "  none" : options.summary.c_str());
}

}  // namespace edge_levels

int main(int argc, char** argv) {
  using edge_levels::options;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--lmem-to-max") {
      options.lmem_to_max = true;
    } else if (argument == "--child" && i + 1 < argc) {
      options.child = argv[++i];
    } else if (argument == "--from" && i + 3 < argc) {
      options.from = std::strtoul(argv[++i], nullptr, 10);
      options.first = std::atof(argv[++i]);
      options.summary = argv[++i];
    } else if (argument[0] == '-' || !options.part.empty()) {
      return std::fprintf(stderr, "usage: edge_levels [PART of the names of steps]\n"), 2;
    } else {
      options.part = argument;
    }
  }
  try {
    edge_levels::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "edge_levels: error: %s\n", error.what());
    return 2;
  }
  std::fflush(nullptr);
  _exit(0);  // libraries that were opened stay out of it
}
