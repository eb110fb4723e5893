# Writes noisefloor_wgmma.cuh, which ptx/wgmma.cuh includes: wgmma for every n from 8 to 256, whose operands are n / 2 accumulators by name.
function(noisefloor_write_wgmma file)
  # A in shared memory (by its descriptor) or in registers; %k numbers what stands behind the accumulators.
  set(one_shape [[
template <class T, bool kNMajor, bool kMMajor>
struct Wgmma<T, @n@, kNMajor, kMMajor> {
  static __device__ __forceinline__ void run(float (&d)[@count@], std::uint64_t a, std::uint64_t b, std::uint32_t accumulate) {
#define NOISEFLOOR_WGMMA(types, modes)                                                             \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %@k2@, 0;\n"                      \
               "wgmma.mma_async.sync.aligned.m64n@n@" types " {@registers@}, %@k0@, %@k1@, accumulate, 1, 1" modes ";\n}\n" \
               : @accumulators@ : "l"(a), "l"(b), "r"(accumulate), "n"(kNMajor), "n"(kMMajor))
    NOISEFLOOR_WGMMA_BY_TYPE(", %@k4@, %@k3@")
#undef NOISEFLOOR_WGMMA
  }
  static __device__ __forceinline__ void run(float (&d)[@count@], const std::uint32_t (&a)[4], std::uint64_t b, std::uint32_t accumulate) {
    static_assert(!kMMajor, "of a tile in shared memory");
#define NOISEFLOOR_WGMMA(types, modes)                                                             \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %@k5@, 0;\n"                      \
               "wgmma.mma_async.sync.aligned.m64n@n@" types " {@registers@}, {%@k0@, %@k1@, %@k2@, %@k3@}, %@k4@, accumulate, 1, 1" modes ";\n}\n" \
               : @accumulators@ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kNMajor))
    NOISEFLOOR_WGMMA_BY_TYPE(", %@k6@")
#undef NOISEFLOOR_WGMMA
  }
};
]])
  set(text "// By kernels/ptx/wgmma.cmake.\n")
  set(registers)
  set(accumulators)
  foreach(n RANGE 8 256 8)
    math(EXPR count "${n} / 2")
    math(EXPR first "${count} - 4")
    math(EXPR last "${count} - 1")
    foreach(i RANGE ${first} ${last})
      string(APPEND registers ", %${i}")
      string(APPEND accumulators ", \"+f\"(d[${i}])")
    endforeach()
    foreach(i RANGE 6)
      math(EXPR k${i} "${count} + ${i}")
    endforeach()
    string(REGEX REPLACE "^, " "" registers "${registers}")
    string(REGEX REPLACE "^, " "" accumulators "${accumulators}")
    string(CONFIGURE "${one_shape}" shape @ONLY)
    string(APPEND text "${shape}")
  endforeach()
  file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY)  # touched only where it changes
endfunction()
