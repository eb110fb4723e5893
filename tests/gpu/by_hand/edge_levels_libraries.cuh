// More suspects of edge_levels.cu: modules that the driver compiles and loads, and libraries where they can be opened.
#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include "edge_levels_suspects.cuh"

namespace edge_levels {

// Another for each number, so that the driver's cache knows none of one call from another of the same call.
inline std::string ptx(int number) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry small(.param .u64 to) {\n.reg .u64 %to;\n"
         "ld.param.u64 %to, [to];\nst.global.u32 [%to], " +
         std::to_string(number) + ";\nret;\n}\n";
}

inline std::vector<cudaLibrary_t> libraries;
inline bool load_and_launch(const void* code) {
  cudaLibrary_t library{};
  cudaKernel_t kernel{};
  int* to = nullptr;
  if (!EDGE_LEVELS_TRY(cudaLibraryLoadData(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0))) return false;
  libraries.push_back(library);
  if (!EDGE_LEVELS_TRY(cudaLibraryGetKernel(&kernel, library, "small"))) return false;
  if (!EDGE_LEVELS_TRY(cudaMalloc(&to, sizeof(int)))) return false;
  void* arguments[] = {&to};
  const bool launched =
      EDGE_LEVELS_TRY(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), 1, 1, arguments, 0, stream));
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  return EDGE_LEVELS_TRY(cudaFree(to)) && launched;
}
inline void libraries_50() {
  for (int i = 0; i < 50 && load_and_launch(ptx(i).c_str()); ++i) {
  }
}
inline void libraries_unloaded() {
  say(std::to_string(libraries.size()) + " libraries");
  for (cudaLibrary_t library : libraries) EDGE_LEVELS_TRY(cudaLibraryUnload(library));
  libraries.clear();
}

template <typename Function>
Function driver(const char* name) {
  void* found = nullptr;
  EDGE_LEVELS_TRY(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr));
  if (found == nullptr) say(std::string("no ") + name);
  return reinterpret_cast<Function>(found);
}
inline void driver_modules_50() {
  const auto load = driver<decltype(&cuModuleLoadData)>("cuModuleLoadData");
  const auto get = driver<decltype(&cuModuleGetFunction)>("cuModuleGetFunction");
  const auto run = driver<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  const auto unload = driver<decltype(&cuModuleUnload)>("cuModuleUnload");
  int* to = nullptr;
  if (!load || !get || !run || !unload || !EDGE_LEVELS_TRY(cudaMalloc(&to, sizeof(int)))) return;
  void* arguments[] = {&to};
  std::vector<CUmodule> modules;
  CUresult error = CUDA_SUCCESS;
  for (int i = 0; i < 50 && error == CUDA_SUCCESS; ++i) {
    CUmodule module{};
    CUfunction function{};
    if ((error = load(&module, ptx(100 + i).c_str())) != CUDA_SUCCESS) break;
    modules.push_back(module);
    error = get(&function, module, "small");
    if (error == CUDA_SUCCESS) error = run(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
  }
  EDGE_LEVELS_TRY(cudaStreamSynchronize(stream));
  for (CUmodule module : modules)
    if (const CUresult refused = unload(module); error == CUDA_SUCCESS) error = refused;
  if (error != CUDA_SUCCESS) say("CUresult " + std::to_string(error));
  EDGE_LEVELS_TRY(cudaFree(to));
}

// Libraries, opened where they are: they stay open.

inline void* open(const std::vector<const char*>& names) {
  for (const std::string& folder : {std::string(), std::string("/usr/local/cuda/lib64/")})
    for (const char* name : names)
      if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  say(std::string("no ") + names.front() + ": not done");
  return nullptr;
}

// Calls a C function of these very parameters, enumerations being ints; 0 is success.
template <typename... P>
bool call(void* library, const char* name, P... arguments) {
  auto* function = library == nullptr ? nullptr : reinterpret_cast<int (*)(P...)>(dlsym(library, name));
  const int status = function == nullptr ? -1 : function(arguments...);
  if (status != 0 && library != nullptr) say(std::string(name) + ": " + std::to_string(status));
  return status == 0;
}

inline void* cudnn() {
  return open({"libcudnn.so.9"});
}
inline void* cudnn_handle = nullptr;  // from cudnn_created to cudnn_destroyed
inline void cudnn_created() {
  void* library = cudnn();
  if (call(library, "cudnnCreate", &cudnn_handle)) call(library, "cudnnSetStream", cudnn_handle, stream);
}
inline void cudnn_destroyed() {
  if (cudnn_handle == nullptr) return say("no handle: not done");
  call(cudnn(), "cudnnDestroy", cudnn_handle);
  cudnn_handle = nullptr;
}

// Every algorithm that cuDNN has for a 3x3 convolution in fp16, NHWC, is tried: of the kind that raised the level.
inline void cudnn_search() {
  constexpr int kNhwc = 1, kFp32 = 0, kFp16 = 2, kCrossCorrelation = 1, kTensorCores = 1;
  constexpr int kMost = 16, kBytesOfResult = 48;
  void *library = cudnn(), *handle = nullptr, *x = nullptr, *y = nullptr, *w = nullptr, *place = nullptr;
  if (!call(library, "cudnnCreate", &handle)) return;
  int found = 0;
  alignas(8) char results[kMost * kBytesOfResult];
  const bool searched =
      call(library, "cudnnCreateTensorDescriptor", &x) && call(library, "cudnnCreateTensorDescriptor", &y) &&
      call(library, "cudnnCreateFilterDescriptor", &w) && call(library, "cudnnCreateConvolutionDescriptor", &place) &&
      call(library, "cudnnSetTensor4dDescriptor", x, kNhwc, kFp16, 8, 64, 64, 64) &&
      call(library, "cudnnSetTensor4dDescriptor", y, kNhwc, kFp16, 8, 128, 64, 64) &&
      call(library, "cudnnSetFilter4dDescriptor", w, kFp16, kNhwc, 128, 64, 3, 3) &&
      call(library, "cudnnSetConvolution2dDescriptor", place, 1, 1, 1, 1, 1, 1, kCrossCorrelation, kFp32) &&
      call(library, "cudnnSetConvolutionMathType", place, kTensorCores) &&
      call(library, "cudnnFindConvolutionForwardAlgorithm", handle, x, w, place, y, kMost, &found,
           static_cast<void*>(results));
  if (searched) say(std::to_string(found) + " algorithms answered");
  if (place != nullptr) call(library, "cudnnDestroyConvolutionDescriptor", place);
  if (w != nullptr) call(library, "cudnnDestroyFilterDescriptor", w);
  for (void* tensor : {x, y})
    if (tensor != nullptr) call(library, "cudnnDestroyTensorDescriptor", tensor);
  call(library, "cudnnDestroy", handle);
  finish();
}

inline void cublaslt() {
  void *library = open({"libcublasLt.so.13", "libcublasLt.so.12"}), *handle = nullptr;
  if (call(library, "cublasLtCreate", &handle)) call(library, "cublasLtDestroy", handle);
}

inline void nvrtc() {
  void *library = open({"libnvrtc.so.13", "libnvrtc.so.12"}), *program = nullptr;
  const char* text = "extern \"C\" __global__ void small(int* to) { *to = 1; }";
  const char* option = "--gpu-architecture=sm_90";
  const char* const* none = nullptr;
  std::size_t bytes = 0;
  if (!call(library, "nvrtcCreateProgram", &program, text, static_cast<const char*>(nullptr), 0, none, none)) return;
  if (call(library, "nvrtcCompileProgram", program, 1, static_cast<const char* const*>(&option)) &&
      call(library, "nvrtcGetCUBINSize", program, &bytes)) {
    std::vector<char> code(bytes);
    if (call(library, "nvrtcGetCUBIN", program, code.data())) load_and_launch(code.data());
    libraries_unloaded();
  }
  call(library, "nvrtcDestroyProgram", &program);
}

}  // namespace edge_levels
