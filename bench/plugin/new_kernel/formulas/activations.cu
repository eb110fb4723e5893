// Every op as plainly as it can be, for any.cu: a Case, of whose count() threads thread i does operator()(i).
// `noisefloor new-kernel` takes, of all files here, the struct of the op's name and what it calls or is made from. Each
// block begins with a comment.

// x times the logistic function.
__host__ __device__ inline float silu(float x) {
  return x / (1 + expf(-x));
}

// By the error function.
__host__ __device__ inline float gelu(float x) {
  return x * (1 + erff(x * 0.70710678f)) / 2;
}

// By its approximation.
__host__ __device__ inline float gelu_tanh(float x) {
  return x / 2 * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// The field `act`.
enum class Act { none, relu, silu, gelu, gelu_tanh };
inline Act act_of(const Case& c) {
  return c.is("act", "relu")        ? Act::relu
         : c.is("act", "silu")      ? Act::silu
         : c.is("act", "gelu")      ? Act::gelu
         : c.is("act", "gelu_tanh") ? Act::gelu_tanh
                                    : Act::none;
}

// What `act` makes of x.
__host__ __device__ inline float activated(Act act, float x) {
  return act == Act::relu        ? fmaxf(x, 0)
         : act == Act::silu      ? silu(x)
         : act == Act::gelu      ? gelu(x)
         : act == Act::gelu_tanh ? gelu_tanh(x)
                                 : x;
}
