// Shared libraries opened at run time, so that the program starts where a vendor's library is absent.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace noisefloor {

// The vendor's library is not in this build, not on this machine, or too old. Such a row's status is `not_built`.
class LibraryMissing : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class DynamicLibrary {
 public:
  // Opens `name` where the loader finds it (run path, LD_LIBRARY_PATH, system), else in `directory`. It stays open for
  // the life of the process. Throws LibraryMissing with the loader's words.
  DynamicLibrary(const char* name, const char* directory);

  // Throws LibraryMissing when the library is too old to have it.
  template <class Function>
  void load(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(find(symbol));
  }

  void* handle() const { return handle_; }  // as dlopen gave it

 private:
  void* find(const char* symbol) const;

  std::string name_;
  void* handle_ = nullptr;
};

inline DynamicLibrary::DynamicLibrary(const char* name, const char* directory) : name_(name) {
  handle_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (handle_ != nullptr) return;
  const std::string why = dlerror();
  handle_ = dlopen((std::string(directory) + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle_ == nullptr) throw LibraryMissing(why + " (put its folder on LD_LIBRARY_PATH)");
}

inline void* DynamicLibrary::find(const char* symbol) const {
  void* address = dlsym(handle_, symbol);
  if (address == nullptr) throw LibraryMissing(name_ + " has no function " + symbol + ": it is older than this build");
  return address;
}

}  // namespace noisefloor

// For a list X(member, function) of what is called of a library: a struct's members, and `api`'s from `library`.
#define NOISEFLOOR_API_MEMBER(member, function) decltype(::function)* member;
#define NOISEFLOOR_API_LOAD(member, function) library.load(#function, api.member);
