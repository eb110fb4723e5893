// Sums over the GPUs of this process, by NCCL, which is opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/platform/platform.h"
#include "kernels/core/device.h"
#include "kernels/core/status.h"

namespace noisefloor {

// Ranks count from 0; each calls from a thread of its own.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // Memory in which sums are fastest, of a rank's device. All ranks ask for as much, and may use it while this is there.
  // Throws OutOfMemory, DeviceError. Like a sum it waits for the others.
  virtual Buffer memory(std::size_t /*rank*/, Platform& platform, std::size_t bytes) { return {platform, bytes}; }
  // Enqueues: the numbers of a rank become their sum over all ranks, each of which enqueues it as often.
  virtual Status sum(std::size_t rank, float* numbers, std::int64_t count, Stream stream) = 0;
  // What failed where no call could say so; "" while nothing did.
  virtual std::string failure() = 0;
  // Who waits for another rank waits no longer, and has no sum. No sums may follow.
  virtual void abort() = 0;
};

// Throws InvalidInput, with how to get it, where there is no NCCL.
void require_nccl();
// Of CUDA devices, rank by rank. Recordings of its sums go before it does, also behind abort(). Throws DeviceError.
std::unique_ptr<Communicator> make_nccl(std::span<const int> devices);

}  // namespace noisefloor
