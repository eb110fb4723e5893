// Plugins of gemm in fp32, on the host: a right one and every kind of wrong. test_plugins.py compiles this; what
// PLUGIN_TEST names is wrong with the whole library, or with a field of its first row (kind=fast).
#include <unistd.h>

#include <noisefloor/plugin.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string asked() {
  const char* const text = std::getenv("PLUGIN_TEST");
  return text == nullptr ? "" : text;
}

float* data(const noisefloor_launch* call, const char* name) {
  return static_cast<float*>(noisefloor_find_data(call->problem, name));
}

std::int64_t field(const noisefloor_problem* problem, const char* name) {
  return noisefloor_find_field(problem, name)->integer;
}

struct Size {
  std::int64_t m, n, k;
};
Size size_of(const noisefloor_problem* problem) {
  return {field(problem, "m"), field(problem, "n"), field(problem, "k")};
}

int multiply(const noisefloor_launch* call, const float* b) {
  const Size size = size_of(call->problem);
  const float* const a = data(call, "a");
  const float* const bias = data(call, "bias");
  float* const d = data(call, "d");
  for (std::int64_t i = 0; i < size.m; ++i)
    for (std::int64_t j = 0; j < size.n; ++j) {
      double sum = bias[j];
      for (std::int64_t l = 0; l < size.k; ++l) sum += static_cast<double>(a[i * size.k + l]) * b[j * size.k + l];
      d[i * size.n + j] = static_cast<float>(sum);
    }
  return 0;
}

int right(void*, const noisefloor_launch* call) {
  std::printf("a line on standard output, which belongs to the answers\n");
  return multiply(call, data(call, "b"));
}

// What it computed first, whatever it is given.
int stale(void* state, const noisefloor_launch* call) {
  auto& kept = *static_cast<std::vector<float>*>(state);
  const Size size = size_of(call->problem);
  const std::size_t count = static_cast<std::size_t>(size.m * size.n);
  if (kept.empty()) {
    multiply(call, data(call, "b"));
    kept.assign(data(call, "d"), data(call, "d") + count);
  }
  std::memcpy(data(call, "d"), kept.data(), count * sizeof(float));
  return 0;
}

int new_vector(const noisefloor_problem*, void** state) {
  *state = new std::vector<float>;
  return 0;
}
void delete_vector(void* state) {
  delete static_cast<std::vector<float>*>(state);
}

// Right for so many launches, then wrong in one element.
template <int launches>
int later_wrong(void* state, const noisefloor_launch* call) {
  auto& calls = *static_cast<std::vector<float>*>(state);
  multiply(call, data(call, "b"));
  calls.push_back(0);
  if (calls.size() > launches) data(call, "d")[0] += 1;
  return 0;
}

enum class Touch { past_the_end, before_the_start, an_input };
template <Touch touched>
int touches(void*, const noisefloor_launch* call) {
  multiply(call, data(call, "b"));
  const Size size = size_of(call->problem);
  if (touched == Touch::past_the_end) data(call, "d")[size.m * size.n] = 1;
  if (touched == Touch::before_the_start) data(call, "d")[-1] = 1;
  if (touched == Touch::an_input) data(call, "a")[0] += 1;
  return 0;
}
int leaves_one_out(void*, const noisefloor_launch* call) {
  float* const d = data(call, "d");
  const float before = d[1];
  multiply(call, data(call, "b"));
  d[1] = before;
  return 0;
}

// The work is another thread's, and done when the next launch waits for it.
int elsewhere(void*, const noisefloor_launch* call) {
  static std::thread* worker = nullptr;
  static volatile bool go = false;
  if (worker != nullptr) {
    go = true;
    worker->join();
    delete worker;
  }
  go = false;
  const noisefloor_launch copy = *call;
  worker = new std::thread([copy] {
    while (!go) usleep(100);
    multiply(&copy, data(&copy, "b"));
  });
  return 0;
}

// From the third launch on another thread's work, which it does when somebody changed what the launch left.
int behind(void*, const noisefloor_launch* call) {
  static int calls = 0;
  if (++calls < 3) return multiply(call, data(call, "b"));
  constexpr float mark = 42;
  const noisefloor_launch copy = *call;
  float* const d = data(call, "d");
  d[0] = mark;
  std::thread([copy, d] {
    while (*static_cast<volatile float*>(d) == mark) std::this_thread::yield();
    multiply(&copy, data(&copy, "b"));
  }).detach();
  return 0;
}

std::size_t little(void*, const noisefloor_problem*) {
  return 64;
}
int past_the_workspace(void*, const noisefloor_launch* call) {
  static_cast<char*>(call->workspace)[64] = 1;
  return multiply(call, data(call, "b"));
}

std::size_t size_of_b(void*, const noisefloor_problem* problem) {
  const Size size = size_of(problem);
  return static_cast<std::size_t>(size.n * size.k) * sizeof(float);
}
int copy_b(void*, const noisefloor_launch* call, void* prepared) {
  std::memcpy(prepared, data(call, "b"), size_of_b(nullptr, call->problem));
  return 0;
}
int of_prepared(void*, const noisefloor_launch* call) {
  return multiply(call, static_cast<const float*>(call->prepared));
}

// As without a sanitizer's handler.
void crash() {
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}
int crashes(void*, const noisefloor_launch*) {
  crash();
  return 0;
}
int leaves(void*, const noisefloor_launch*) {
  std::fprintf(stderr, "good-bye\n");
  std::exit(0);
}
int throws(void*, const noisefloor_launch*) {
  throw std::runtime_error("no luck today");
}
int throws_seven(void*, const noisefloor_launch*) {
  throw 7;
}
int fails(void*, const noisefloor_launch*) {
  return 7;
}
const char* words(void*, int error) {
  return error == 7 ? "seven is too many" : "another error";
}
int hangs(void*, const noisefloor_launch*) {
  while (true) sleep(1);
}
const char* never(const noisefloor_problem* problem) {
  return field(problem, "k") == 64 ? nullptr : "needs k = 64";
}

noisefloor_plugin row(const char* name, int (*launch)(void*, const noisefloor_launch*)) {
  noisefloor_plugin row{};
  row.abi = NOISEFLOOR_PLUGIN_ABI;
  row.size = sizeof row;
  row.op = "gemm";
  row.name = name;
  row.kind = row.arch = "host";
  row.launch = launch;
  return row;
}

std::vector<noisefloor_plugin> rows() {
  std::vector<noisefloor_plugin> all;
  for (const auto& [name, launch] :
       {std::pair{"right", right}, std::pair{"past_the_end", touches<Touch::past_the_end>},
        std::pair{"before_the_start", touches<Touch::before_the_start>},
        std::pair{"changes_an_input", touches<Touch::an_input>}, std::pair{"leaves_one_out", leaves_one_out},
        std::pair{"elsewhere", elsewhere}, std::pair{"behind", behind}, std::pair{"crashes", crashes},
        std::pair{"leaves", leaves}, std::pair{"throws", throws}, std::pair{"throws_seven", throws_seven},
        std::pair{"fails", fails}, std::pair{"hangs", hangs}})
    all.push_back(row(name, launch));
  all.push_back(row("fails_with_words", fails));
  all.back().error_text = words;
  all.push_back(row("never", right));
  all.back().can_run = never;
  all.push_back(row("past_the_workspace", past_the_workspace));
  all.back().workspace_bytes = little;
  all.push_back(row("of_prepared", of_prepared));
  all.back().prepared_bytes = size_of_b;
  all.back().prepare = copy_b;
  for (const auto& [name, launch] : {std::pair{"stale", stale}, std::pair{"second_wrong", later_wrong<1>},
                                     std::pair{"tenth_wrong", later_wrong<9>}}) {
    all.push_back(row(name, launch));
    all.back().create = new_vector;
    all.back().destroy = delete_vector;
  }
  static const std::string wrong = asked(), text = wrong.substr(wrong.find('=') + 1);
  for (const auto& [field, member] :
       {std::pair{"op=", &noisefloor_plugin::op}, std::pair{"name=", &noisefloor_plugin::name},
        std::pair{"kind=", &noisefloor_plugin::kind}, std::pair{"arch=", &noisefloor_plugin::arch}})
    if (wrong.rfind(field, 0) == 0) all[0].*member = text.c_str();
  if (wrong == "no rows") all.clear();
  if (wrong == "ABI") all[0].abi = 99;
  if (wrong == "size") all[0].size = 16;
  if (wrong == "no op") all[0].op = nullptr;
  if (wrong == "launch") all[0].launch = nullptr;
  return all;
}

struct AtLoad {
  AtLoad() {
    if (asked() == "crash at load") crash();
    if (asked() == "exit at load") _exit(3);
  }
} at_load;

}  // namespace

#ifndef WITHOUT_THE_FUNCTION
const noisefloor_plugin* noisefloor_plugin_at(uint32_t index) {
  static const std::vector<noisefloor_plugin> all = rows();
  return index < all.size() ? &all[index] : nullptr;
}
#endif
