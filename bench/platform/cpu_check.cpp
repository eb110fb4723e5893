// Compiled for every x86-64, and C alone: a function of a header may be linked as another file compiled it.
#include "bench/platform/cpu_check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace noisefloor {
namespace {

const char* name_of(int level) {
  static const char* const kNames[] = {"another CPU", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  return level < 0 || level > 4 ? "x86-64 above v4" : kNames[level];
}

// Before the static initialisers of all other files, which may use what the CPU lacks: they have no priority.
__attribute__((constructor(101))) void check_cpu() {
  char sentence[512];
  if (!cpu_is_too_old(NOISEFLOOR_HOST_LEVEL, cpu_level(), sentence, sizeof sentence)) return;
  (void)!write(STDERR_FILENO, sentence, strlen(sentence));
  _exit(2);
}

}  // namespace

int cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v4")   ? 4
         : __builtin_cpu_supports("x86-64-v3") ? 3
         : __builtin_cpu_supports("x86-64-v2") ? 2
                                               : 1;
#else
  return 0;
#endif
}

bool cpu_is_too_old(int needs, int has, char* sentence, std::size_t bytes) {
  if (has >= needs) return false;
  snprintf(sentence, bytes,
           "noisefloor: this build is for CPUs of level %s, and this one has %s. Build it on this machine "
           "(scripts/sweep), or for both with -DNOISEFLOOR_HOST_ARCH=%s\n",
           name_of(needs), name_of(has), name_of(has));
  return true;
}

}  // namespace noisefloor
