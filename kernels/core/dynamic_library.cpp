#include "kernels/core/dynamic_library.h"

#include <dlfcn.h>

namespace noisefloor {

DynamicLibrary::DynamicLibrary(const char* name, const char* directory) : name_(name) {
  handle_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (handle_ != nullptr) return;
  const std::string why = dlerror();
  handle_ = dlopen((std::string(directory) + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle_ == nullptr) throw LibraryMissing(why + " (put its folder on LD_LIBRARY_PATH)");
}

void* DynamicLibrary::find(const char* symbol) const {
  void* address = dlsym(handle_, symbol);
  if (address == nullptr) throw LibraryMissing(name_ + " has no function " + symbol + ": it is older than this build");
  return address;
}

}  // namespace noisefloor
