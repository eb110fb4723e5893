#include "bench/platform/nccl.h"

#include <fmt/format.h>

#include <atomic>
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
constexpr int kOldest = 21901;  // with aborts by several threads of a process (NVIDIA/nccl issue 992)

struct Nccl {
  int (*version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*init_all)(NcclComm** comms, int count, const int* devices) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int operation, NcclComm*,
                    Stream) = nullptr;
  int (*async_error)(NcclComm*, int* error) = nullptr;
  int (*abort)(NcclComm*) = nullptr;
  int (*destroy)(NcclComm*) = nullptr;

  Nccl() {
    const DynamicLibrary library("libnccl.so.2", NOISEFLOOR_NCCL_LIBRARY_DIR);
    library.load("ncclGetVersion", version);
    library.load("ncclGetErrorString", error_string);
    library.load("ncclCommInitAll", init_all);
    library.load("ncclAllReduce", all_reduce);
    library.load("ncclCommGetAsyncError", async_error);
    library.load("ncclCommAbort", abort);
    library.load("ncclCommDestroy", destroy);
    int found = 0;
    if (version(&found) != kNcclSuccess || found < kOldest)
      throw LibraryMissing(fmt::format("this NCCL is of version {}, 2.19.1 (21901) or newer is needed", found));
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
  std::atomic<bool> aborted_ = false;  // a rank that is behind begins no sum any more
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
