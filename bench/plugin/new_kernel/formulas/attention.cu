// Formulas of attention.

// q, k and v: where a token's heads and elements lie, in tensors of their own or packed into one.
struct Heads : Case {
  bool packed = tensor("qkv") != nullptr, by_head = packed && !is("layout", "packed_3hd"),
       neighbours = is("layout", "packed_hd3");
  Numbers q = numbers(packed ? "qkv" : "q"), k = numbers(packed ? "qkv" : "k"), v = numbers(packed ? "qkv" : "v"),
          out = numbers("out");
  int64_t heads = integer("heads"), dim = integer("dim");
  int64_t of_token = (packed ? 3 : 1) * heads * dim, of_head = (by_head ? 3 : 1) * dim, of_element = neighbours ? 3 : 1,
          of_part = !packed      ? 0
                    : !by_head   ? heads * dim
                    : neighbours ? 1
                                 : dim;  // steps
  float scale = real("scale") != 0 ? real("scale") : 1 / sqrtf(static_cast<float>(dim));

  static constexpr int kMostDim = 512;
  const char* why_not() const { return dim <= kMostDim ? nullptr : "needs dim of at most 512"; }

  // A query's softmax over `count` keys, which lie `step` tokens apart, to out; the logarithm of its sum.
  __host__ __device__ float attend(int64_t query, int64_t first, int64_t count, int64_t step, int64_t head) const {
    float sums[kMostDim], top = -INFINITY, sum = 0;
    for (int64_t e = 0; e < dim; ++e) sums[e] = 0;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t key = (first + j * step) * of_token + head * of_head;
      float score = 0;
      for (int64_t e = 0; e < dim; ++e)
        score += q[query * of_token + head * of_head + e * of_element] * k[key + of_part + e * of_element];
      const float before = top;
      top = fmaxf(top, score * scale);
      const float kept = expf(before - top), weight = expf(score * scale - top);
      sum = sum * kept + weight;
      for (int64_t e = 0; e < dim; ++e) sums[e] = sums[e] * kept + weight * v[key + 2 * of_part + e * of_element];
    }
    for (int64_t e = 0; e < dim; ++e) out.set((query * heads + head) * dim + e, sums[e] / sum);
    return top + logf(sum);
  }
};

// A thread has a query of a head.
struct attention : Heads {
  Numbers lse = numbers("lse");
  int64_t batch = integer("batch"), queries = integer("seq_q"), keys = integer("seq_kv");

  int64_t count() const { return batch * queries * heads; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t query = i / heads, head = i % heads, image = query / queries;
    const float found = attend(query, image * keys, keys, 1, head);
    if (lse) lse.set((image * heads + head) * queries + query % queries, found);
  }
};

// A thread has a query of a head, and its pixel in all frames.
struct temporal_attention : Heads {
  int64_t batch = integer("batch"), frames = integer("frames"), hw = integer("hw");

  int64_t count() const { return batch * frames * hw * heads; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t query = i / heads, video = query / (frames * hw);
    attend(query, video * frames * hw + query % hw, frames, hw, i % heads);
  }
};
