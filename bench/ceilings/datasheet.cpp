// Datasheet rates, dense (no sparsity), with fp32 accumulation, at boost clock, in GB/s and GFLOP/s. Each from the
// vendor's datasheet or architecture whitepaper of that product. They stand beside measured ceilings and are never
// drawn as a roof.
#include <array>

#include "bench/ceilings/ceilings.h"

namespace noisefloor {
namespace {

struct Datasheet {
  std::string_view device;  // the start of the driver's name for it; the first match counts
  double dram, fma_fp32, tensor_bf16, tensor_fp16, tensor_tf32, tensor_fp8;  // 0: the device has none
};

constexpr double kTera = 1000;  // GFLOP/s per TFLOP/s

constexpr std::array kDatasheets = {
    Datasheet{"NVIDIA B200", 8000, 75 * kTera, 2250 * kTera, 2250 * kTera, 1125 * kTera, 4500 * kTera},
    Datasheet{"NVIDIA H200", 4800, 67 * kTera, 989.5 * kTera, 989.5 * kTera, 494.7 * kTera, 1979 * kTera},
    Datasheet{"NVIDIA H100 80GB HBM3", 3350, 67 * kTera, 989.5 * kTera, 989.5 * kTera, 494.7 * kTera, 1979 * kTera},
    Datasheet{"NVIDIA H100 PCIe", 2000, 51 * kTera, 756 * kTera, 756 * kTera, 378 * kTera, 1513 * kTera},
    Datasheet{"NVIDIA A100-SXM4-80GB", 2039, 19.5 * kTera, 312 * kTera, 312 * kTera, 156 * kTera, 0},
    Datasheet{"NVIDIA A100 80GB PCIe", 1935, 19.5 * kTera, 312 * kTera, 312 * kTera, 156 * kTera, 0},
    Datasheet{"NVIDIA A100-SXM4-40GB", 1555, 19.5 * kTera, 312 * kTera, 312 * kTera, 156 * kTera, 0},
    Datasheet{"NVIDIA A100-PCIE-40GB", 1555, 19.5 * kTera, 312 * kTera, 312 * kTera, 156 * kTera, 0},
    Datasheet{"NVIDIA L40S", 864, 91.6 * kTera, 362 * kTera, 362 * kTera, 183 * kTera, 733 * kTera},
    Datasheet{"NVIDIA GeForce RTX 4090", 1008, 82.6 * kTera, 165.2 * kTera, 165.2 * kTera, 82.6 * kTera, 330.3 * kTera},
    Datasheet{"Tesla T4", 320, 8.1 * kTera, 0, 65 * kTera, 0, 0},
};

// "NVIDIA H200 NVL" is another product than "NVIDIA H200": after the prefix the name must end or continue with the
// memory size.
bool is_product(std::string_view device, std::string_view product) {
  if (!device.starts_with(product)) return false;
  const std::string_view rest = device.substr(product.size());
  return rest.empty() || (rest.size() > 1 && rest[0] == ' ' && rest[1] >= '0' && rest[1] <= '9');
}

double rate(const Datasheet& sheet, std::string_view ceiling) {
  if (ceiling == "dram_copy" || ceiling == "dram_read") return sheet.dram;
  if (ceiling == "fma_fp32") return sheet.fma_fp32;
  if (ceiling == "tensor_bf16") return sheet.tensor_bf16;
  if (ceiling == "tensor_fp16") return sheet.tensor_fp16;
  if (ceiling == "tensor_tf32") return sheet.tensor_tf32;
  if (ceiling == "tensor_fp8") return sheet.tensor_fp8;
  return 0;
}

}  // namespace

std::optional<double> datasheet_rate(std::string_view device, std::string_view ceiling) {
  for (const Datasheet& sheet : kDatasheets) {
    if (!is_product(device, sheet.device)) continue;
    const double value = rate(sheet, ceiling);
    return value > 0 ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace noisefloor
