// What a device can really do: measured rates that a roofline is drawn from, with the datasheet's beside them.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/core/dtype.h"
#include "kernels/core/op.h"
#include "reports/run/ceilings_csv.h"

namespace noisefloor {

struct Ceilings : CeilingTable {
  // dram_copy. Throws std::out_of_range when it was not measured.
  const Ceiling& memory() const;
  const Ceiling& reads() const;  // dram_read, as memory()
  // The fastest unit that this device has for products of `dtype` (Pipe::tensor), or fma_fp32 (Pipe::fma: bf16 and fp16
  // are widened, so they run at that rate). fp32 on tensor cores is tf32. A device without the tensor pipe asked for (a
  // host, bf16 on Turing) does such products in fma_fp32: the returned row's name says so. Throws std::out_of_range
  // when it was not measured.
  const Ceiling& compute(Pipe pipe, DType dtype) const;
};

inline constexpr int kHostDevice = -1;

// Messages for the reader: progress and warnings.
using CeilingsLog = std::function<void(const std::string&)>;

// A few seconds, on the given CUDA device or on all cores. Other programs only ever make a host slower: of its runs the
// fastest counts, and runs go on for a while until some had all cores to themselves. Throws std::runtime_error when a
// CUDA call fails, or where this build has no CUDA.
Ceilings measure_gpu_ceilings(int device);
Ceilings measure_host_ceilings();

// Name, driver and highest clock of a device, without measuring: what the cache is keyed by. The host has no driver:
// there it is the vector instructions that this build was compiled for, and the clock is 0.
struct DeviceIdentity {
  std::string name;
  std::string driver;
  int max_clock_mhz = 0;
};
DeviceIdentity gpu_identity(int device);  // throws std::runtime_error as measure_gpu_ceilings does
DeviceIdentity host_identity();

// The datasheet's rate of this ceiling on a device of this name (dense, no sparsity), where it is known.
std::optional<double> datasheet_rate(std::string_view device, std::string_view ceiling);

// ---- as a per-user cache (store.cpp)

// $XDG_CACHE_HOME/noisefloor, else $HOME/.cache/noisefloor; empty when neither variable is set.
std::filesystem::path cache_folder();

// ceilings-<device>-<driver>-<clock>.csv, letters and digits only within each part.
std::string cache_file_name(const DeviceIdentity& identity);

enum class CeilingsProcess { own, this_one };
using MeasureHost = std::function<Ceilings()>;

// The cached ceilings of a device (kHostDevice: the host), or measured ones, which are then cached. `refresh` measures
// always. A host's that were taken under load, or do not say, are taken again as soon as the machine is quieter; of
// both the higher ones stay. A cache that cannot be read is measured again, one that cannot be written is skipped; both
// with a warning through `log`. A GPU's are measured in a process of their own, unless this is that one.
Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log,
                         CeilingsProcess process = CeilingsProcess::own,
                         const MeasureHost& measure_host = measure_host_ceilings);

// What `program ceilings` measures of a GPU: the first process, which measured them itself, was slower than all others
// in every launch (docs/experiments/measuring, the gate on an H200). Where it fails (one process a GPU, no folder for
// temporary files), `here` measures them, with a warning that says why.
Ceilings measure_apart(const std::filesystem::path& program, int device, const CeilingsLog& log,
                       const std::function<Ceilings()>& here);

// A host's that were beaten: measured again and cached, of both the higher ones.
Ceilings raise_host_ceilings(const Ceilings& known, const std::string& commit, const CeilingsLog& log,
                             const MeasureHost& measure_host = measure_host_ceilings);

}  // namespace noisefloor
