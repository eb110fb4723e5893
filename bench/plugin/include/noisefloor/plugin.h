/* A kernel of your own as a row of noisefloor's: the C interface of a shared library that `noisefloor sweep --plugin
 * mine.so` loads, in a process of its own. docs/plugins.md shows it at work; `noisefloor new-kernel OP` writes one.
 *
 * The library has one function, noisefloor_plugin_at. Every pointer that it is given is valid during the call alone,
 * every pointer that it returns until the library's next call; strings are UTF-8. C or C++, nothing to link.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes where a library of before could not be called any more. Structs grow at their ends: `size` says how far. */
#define NOISEFLOOR_PLUGIN_ABI 1

enum noisefloor_dtype {
  NOISEFLOOR_FP32 = 0,
  NOISEFLOOR_BF16 = 1,
  NOISEFLOOR_FP16 = 2,
  NOISEFLOOR_FP64 = 3,
  NOISEFLOOR_INT32 = 4,
  NOISEFLOOR_INT64 = 5,
  NOISEFLOOR_UINT8 = 6
};

/* `in` stays as it is; every element of `out` is written; `inout` is read and written. */
enum noisefloor_role { NOISEFLOOR_IN = 0, NOISEFLOOR_OUT = 1, NOISEFLOOR_INOUT = 2 };

enum noisefloor_field_type {
  NOISEFLOOR_INTEGER = 0,
  NOISEFLOOR_REAL = 1,
  NOISEFLOOR_CHOICE = 2, /* one of some names */
  NOISEFLOOR_FLAG = 3    /* 0 or 1 */
};

/* A field of the problem, as `noisefloor list ops` prints it. */
typedef struct noisefloor_field {
  const char* name; /* "groups" */
  const char* text; /* "32", "silu" */
  int64_t integer;  /* of integers and flags; of a choice, which of its names, from 0; of a real, 0 */
  double real;      /* of integers, flags and reals the number */
  int32_t type;     /* noisefloor_field_type */
} noisefloor_field;

/* Contiguous, row-major, outermost first; at a multiple of 256 bytes. */
typedef struct noisefloor_tensor {
  const char* name;
  void* data; /* on the GPU, or the host's for arch "host"; null outside of prepare and launch */
  const int64_t* shape;
  int32_t rank;
  int32_t dtype; /* noisefloor_dtype */
  int32_t role;  /* noisefloor_role */
} noisefloor_tensor;

typedef struct noisefloor_problem {
  uint32_t size;    /* of this struct */
  int32_t dtype;    /* noisefloor_dtype: of the row */
  const char* op;   /* "groupnorm" */
  const char* text; /* "n=2,hw=4096,c=320,groups=32,fusion=silu" */
  const noisefloor_field* fields;
  const noisefloor_tensor* tensors; /* those that the problem has, in the op's order */
  int32_t field_count;
  int32_t tensor_count;
  int32_t compute_capability; /* 90 for sm_90; 0 on the host */
  int32_t sm_count;           /* on the host: cores */
  uint64_t l2_bytes;
  uint64_t shared_bytes_per_block;
} noisefloor_problem;

enum noisefloor_flags {
  /* The kernel may be launched with programmatic stream serialization, where it waits for the one before it by itself.
   */
  NOISEFLOOR_PROGRAMMATIC_LAUNCH = 1
};

typedef struct noisefloor_launch {
  uint32_t size;                     /* of this struct */
  uint32_t flags;                    /* noisefloor_flags */
  const noisefloor_problem* problem; /* with the tensors' data */
  void* workspace;                   /* workspace_bytes, uninitialised; null where that is 0 */
  const void* prepared;              /* what prepare wrote; null where prepared_bytes is 0 */
  void* stream;                      /* cudaStream_t, all work goes there; null on the host */
} noisefloor_launch;

/* A row. Where a function is null, nothing is asked: any problem can be run, and there is no workspace. Functions
 * return 0, or a number that error_text explains. A launch enqueues and returns: it allocates nothing and waits for
 * nothing, so that a CUDA graph can record it. On the host it returns when the work is done. */
typedef struct noisefloor_plugin {
  uint32_t abi;     /* NOISEFLOOR_PLUGIN_ABI */
  uint32_t size;    /* sizeof(noisefloor_plugin) */
  const char* op;   /* of `noisefloor list ops` */
  const char* name; /* of the row: letters, digits and underscores, and none of the op's variants */
  const char* kind; /* "host", "naive", "tiled", "tensor_core" or "ptx"; "baseline" of a library that is not yours */
  const char* arch; /* "host", or of GPUs "any", "sm_75", "sm_80" (and newer), "sm_90a" (exactly) */

  const char* (*can_run)(const noisefloor_problem*); /* null: it can; else why not: "needs c in multiples of 8" */
  int (*create)(const noisefloor_problem*, void** state);
  size_t (*workspace_bytes)(void* state, const noisefloor_problem*);
  size_t (*prepared_bytes)(void* state, const noisefloor_problem*);
  /* Lays weights out anew at call->prepared, once per weight, untimed. */
  int (*prepare)(void* state, const noisefloor_launch* call, void* prepared);
  int (*launch)(void* state, const noisefloor_launch* call); /* not null */
  const char* (*error_text)(void* state, int error);
  void (*destroy)(void* state);
} noisefloor_plugin;

/* By name; null where the problem has none. */
static inline const noisefloor_field* noisefloor_find_field(const noisefloor_problem* problem, const char* name) {
  for (int32_t i = 0; i < problem->field_count; ++i)
    if (strcmp(problem->fields[i].name, name) == 0) return &problem->fields[i];
  return NULL;
}
static inline void* noisefloor_find_data(const noisefloor_problem* problem, const char* name) {
  for (int32_t i = 0; i < problem->tensor_count; ++i)
    if (strcmp(problem->tensors[i].name, name) == 0) return problem->tensors[i].data;
  return NULL;
}

/* The library's rows: 0, 1, ... up to the first null. The only symbol that is looked for. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const noisefloor_plugin*
noisefloor_plugin_at(uint32_t index);

#ifdef __cplusplus
}
#endif
