#include "bench/platform/nccl.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/platform/platform.h"
#include "kernels/core/dynamic_library.h"
#include "kernels/core/fields.h"

// The few functions and constants of NCCL that this project uses, declared here because neither the CUDA toolkit nor a
// build needs it. Names, values and layouts, the same since 2.19: https://docs.nvidia.com/deeplearning/nccl/.
namespace noisefloor {
namespace {

struct NcclComm;  // ncclComm_t is a pointer to it
constexpr int kNcclSuccess = 0, kNcclInProgress = 7, kNcclFloat32 = 7, kNcclSum = 0;
constexpr int kNcclWindowCollectivelySymmetric = 1;
constexpr int kOldest = 21901;   // with aborts by several threads of a process (NVIDIA/nccl issue 992)
constexpr int kWindows = 22907;  // with sums in windows that an abort ends

// Blocks of a sum in windows: NCCL's model of 65 GB/s a block takes some five; with 16 a step on two H200s was shortest
// (docs/experiments/networks, "training on two GPUs").
constexpr const char* kBlocksOfASum = "16";

struct Nccl {
  int found = 0;  // its version
  int (*version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*init_all)(NcclComm** comms, int count, const int* devices) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int operation, NcclComm*,
                    Stream) = nullptr;
  int (*async_error)(NcclComm*, int* error) = nullptr;
  int (*abort)(NcclComm*) = nullptr;
  int (*destroy)(NcclComm*) = nullptr;
  int (*allocate)(void** data, std::size_t bytes) = nullptr;
  int (*release)(void* data) = nullptr;
  int (*add_window)(NcclComm*, void* data, std::size_t bytes, void** window, int flags) = nullptr;

  Nccl() {
    setenv("NCCL_SYM_CTAS", kBlocksOfASum, /*overwrite=*/0);  // read by NCCL with its first sum
    const DynamicLibrary library("libnccl.so.2", NOISEFLOOR_NCCL_LIBRARY_DIR);
    library.load("ncclGetVersion", version);
    library.load("ncclGetErrorString", error_string);
    library.load("ncclCommInitAll", init_all);
    library.load("ncclAllReduce", all_reduce);
    library.load("ncclCommGetAsyncError", async_error);
    library.load("ncclCommAbort", abort);
    library.load("ncclCommDestroy", destroy);
    if (version(&found) != kNcclSuccess || found < kOldest)
      throw LibraryMissing(fmt::format("this NCCL is of version {}, 2.19.1 (21901) or newer is needed", found));
    if (found < kWindows) return;
    library.load("ncclMemAlloc", allocate);
    library.load("ncclMemFree", release);
    library.load("ncclCommWindowRegister", add_window);
  }
  Status status(int result) const {
    return result == kNcclSuccess ? success() : failure(StatusCode::cuda_error, error_string(result));
  }
};

const Nccl& nccl() {
  static const Nccl library;
  return library;
}

class NcclRanks final : public Communicator {
 public:
  explicit NcclRanks(std::span<const int> devices) : ranks_(devices.size()) {
    const int result = nccl().init_all(ranks_.data(), static_cast<int>(devices.size()), devices.data());
    if (result != kNcclSuccess)
      throw DeviceError(fmt::format("NCCL does not connect the devices: {}", nccl().error_string(result)), false);
  }
  ~NcclRanks() override {
    if (!aborts_.empty()) return;  // which are waited for
    for (NcclComm* const rank : ranks_) (void)nccl().destroy(rank);
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  // A window, through which kernels of all ranks reach the memory: a sum then reads and writes it in place.
  Buffer memory(std::size_t rank, Platform& platform, std::size_t bytes) override {
    if (nccl().found < kWindows) return Communicator::memory(rank, platform, bytes);
    void* data = nullptr;
    if (const int result = nccl().allocate(&data, bytes); result != kNcclSuccess)
      throw OutOfMemory(fmt::format("NCCL gives no {} bytes: {}, {} are free", bytes, nccl().error_string(result),
                                    platform.free_bytes()));
    {
      const std::lock_guard lock(mutex_);
      memory_.emplace_back(data, nccl().release);
    }
    void* window = nullptr;  // of the communicator, with which it goes
    throw_if_failed(
        nccl().status(nccl().add_window(ranks_[rank], data, bytes, &window, kNcclWindowCollectivelySymmetric)));
    return Buffer::of_another(data, bytes);
  }
  Status sum(std::size_t rank, float* numbers, std::int64_t count, Stream stream) override {
    if (aborted_) return noisefloor::failure(StatusCode::cuda_error, "NCCL: another device has failed");
    return nccl().status(nccl().all_reduce(numbers, numbers, static_cast<std::size_t>(count), kNcclFloat32, kNcclSum,
                                           ranks_[rank], stream));
  }
  std::string failure() override {
    for (NcclComm* const rank : ranks_) {
      int error = kNcclSuccess;
      const int result = nccl().async_error(rank, &error);
      if (result != kNcclSuccess) error = result;
      if (error != kNcclSuccess && error != kNcclInProgress) return fmt::format("NCCL: {}", nccl().error_string(error));
    }
    return "";
  }
  // Each call returns once all graphs with sums of its rank are gone.
  void abort() override {
    aborted_ = true;
    for (NcclComm* const rank : ranks_) aborts_.emplace_back([rank] { (void)nccl().abort(rank); });
  }

 private:
  std::vector<NcclComm*> ranks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<void, int (*)(void*)>> memory_;  // goes behind the communicator
  std::atomic<bool> aborted_ = false;                          // a rank that is behind begins no sum any more
  std::vector<std::jthread> aborts_;
};

}  // namespace

void require_nccl() {
  try {
    (void)nccl();
  } catch (const LibraryMissing& error) {
    throw InvalidInput(fmt::format(
        "--devices: gradients are summed by NCCL, which is not here; pip install nvidia-nccl-cu13: {}", error.what()));
  }
}

std::unique_ptr<Communicator> make_nccl(std::span<const int> devices) {
  require_nccl();
  return std::make_unique<NcclRanks>(devices);
}

}  // namespace noisefloor
