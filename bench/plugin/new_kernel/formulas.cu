// Every op as plainly as it can be, for any.cu: count() threads, of which thread i does operator()(i). `noisefloor
// new-kernel` takes the struct of the op's name and the functions that it calls. Each block begins with a comment.

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

// q, k and v: where a token's heads and elements lie, in tensors of their own or packed into one.
struct Heads {
  Numbers q, k, v;
  int64_t heads, dim, of_token, of_head, of_element, of_part;  // steps

  explicit Heads(const Case& c) : q(c("q")), k(c("k")), v(c("v")), heads(c.integer("heads")), dim(c.integer("dim")) {
    const int64_t width = heads * dim;
    of_token = width, of_head = dim, of_element = 1, of_part = 0;
    if (q) return;
    q = k = v = c("qkv");
    of_token = 3 * width;
    of_part = c.is("layout", "packed_3hd") ? width : c.is("layout", "packed_h3d") ? dim : 1;
    if (!c.is("layout", "packed_3hd")) of_head = 3 * dim;
    if (c.is("layout", "packed_hd3")) of_element = 3;
  }
  static constexpr int kMostDim = 512;
  static const char* why_not(const Case& c) {
    return c.integer("dim") <= kMostDim ? nullptr : "needs dim of at most 512";
  }

  // A query's softmax over `count` keys, which lie `step` tokens apart, to out; the logarithm of its sum.
  __host__ __device__ float attend(int64_t query, int64_t first, int64_t count, int64_t step, int64_t head, float scale,
                                   const Numbers& out) const {
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

// Of the scores: 1 / sqrt(dim) where the field is 0.
inline float scale_of(const Case& c) {
  return c.real("scale") != 0 ? c.real("scale") : 1 / sqrtf(static_cast<float>(c.integer("dim")));
}

// A thread has a query of a head.
struct attention {
  Heads t;
  Numbers out, lse;
  int64_t batch, queries, keys;
  float scale;

  explicit attention(const Case& c)
      : t(Heads(c)),
        out(c("out")),
        lse(c("lse")),
        batch(c.integer("batch")),
        queries(c.integer("seq_q")),
        keys(c.integer("seq_kv")),
        scale(scale_of(c)) {}
  static const char* why_not(const Case& c) { return Heads::why_not(c); }
  int64_t count() const { return batch * queries * t.heads; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t query = i / t.heads, head = i % t.heads, image = query / queries;
    const float found = t.attend(query, image * keys, keys, 1, head, scale, out);
    if (lse) lse.set((image * t.heads + head) * queries + query % queries, found);
  }
};

// A thread has a query of a head, and its pixel in all frames.
struct temporal_attention {
  Heads t;
  Numbers out;
  int64_t batch, frames, hw;
  float scale;

  explicit temporal_attention(const Case& c)
      : t(Heads(c)),
        out(c("out")),
        batch(c.integer("batch")),
        frames(c.integer("frames")),
        hw(c.integer("hw")),
        scale(scale_of(c)) {}
  static const char* why_not(const Case& c) { return Heads::why_not(c); }
  int64_t count() const { return batch * frames * hw * t.heads; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t query = i / t.heads, video = query / (frames * hw);
    t.attend(query, video * frames * hw + query % hw, frames, hw, i % t.heads, scale, out);
  }
};

// A thread has an element of d.
struct gemm {
  Numbers a, b, bias, residual, d;
  int64_t m, n, k;
  float scale;
  Act act;
  bool geglu;

  explicit gemm(const Case& c)
      : a(c("a")),
        b(c("b")),
        bias(c("bias")),
        residual(c("residual")),
        d(c("d")),
        m(c.integer("m")),
        n(c.integer("n")),
        k(c.integer("k")),
        scale(c.real("scale")),
        act(act_of(c)),
        geglu(c.is("act", "geglu")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return m * n; }
  __host__ __device__ float product(int64_t row, int64_t column) const {
    float sum = 0;
    for (int64_t l = 0; l < k; ++l) sum += a[row * k + l] * b[column * k + l];
    return scale * sum + (bias ? bias[column] : 0);
  }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t row = i / n, column = i % n;
    const float y =
        geglu ? product(row, column) * gelu(product(row, n + column)) : activated(act, product(row, column));
    d.set(i, y + (residual ? residual[i] : 0));
  }
};

// A thread has an element of y.
struct conv2d {
  Numbers x, w, bias, scale, shift, image_shift, residual, beside, skip, w_beside, y;
  int64_t n, high, wide, cin, cout, kernel, stride, pad, up, rows, columns, sides, skips;
  float gain;
  Act act;

  explicit conv2d(const Case& c)
      : x(c("x")),
        w(c("w")),
        bias(c("bias")),
        scale(c("scale")),
        shift(c("shift")),
        image_shift(c("image_shift")),
        residual(c("residual")),
        beside(c("side")),
        skip(c("side_skip")),
        w_beside(c("w_side")),
        y(c("y")),
        n(c.integer("n")),
        high(c.integer("h")),
        wide(c.integer("w")),
        cin(c.integer("cin")),
        cout(c.integer("cout")),
        kernel(c.integer("kernel")),
        stride(c.integer("stride")),
        pad(c.integer("pad")),
        up(c.integer("upsample") + 1),
        rows(c.tensor("y")->shape[1]),
        columns(c.tensor("y")->shape[2]),
        sides(c.integer("side")),
        skips(c.integer("side_skip")),
        gain(c.real("gain")),
        act(act_of(c)) {}
  static const char* why_not(const Case& c) {
    return c.integer("stats") != 0 ? "needs stats=0" : c.is("norm", "none") ? nullptr : "needs norm=none";
  }
  int64_t count() const { return n * rows * columns * cout; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t channel = i % cout, column = i / cout % columns, row = i / (cout * columns) % rows,
                  image = i / (cout * columns * rows);
    float sum = 0;
    for (int64_t tap = 0; tap < kernel * kernel; ++tap) {
      const int64_t from_row = row * stride + tap / kernel - pad, from_column = column * stride + tap % kernel - pad;
      if (from_row < 0 || from_row >= up * high || from_column < 0 || from_column >= up * wide) continue;
      const int64_t pixel = (image * high + from_row / up) * wide + from_column / up;
      for (int64_t l = 0; l < cin; ++l) sum += x[pixel * cin + l] * w[(channel * kernel * kernel + tap) * cin + l];
    }
    const int64_t at = i / cout;  // the pixel, over all images
    for (int64_t l = 0; l < sides; ++l) sum += beside[at * sides + l] * w_beside[channel * (sides + skips) + l];
    for (int64_t l = 0; l < skips; ++l) sum += skip[at * skips + l] * w_beside[channel * (sides + skips) + sides + l];
    if (bias) sum += bias[channel];
    if (scale) sum = sum * scale[channel] + shift[channel];
    if (image_shift) sum += image_shift[image * cout + channel];
    y.set(i, gain * (activated(act, sum) + (residual ? residual[i] : 0)));
  }
};

// A thread has an element of y, to which every other tap adds.
struct conv_transpose2d {
  Numbers x, w, bias, y;
  int64_t n, high, wide, cin, cout, kernel, pad;
  Act act;

  explicit conv_transpose2d(const Case& c)
      : x(c("x")),
        w(c("w")),
        bias(c("bias")),
        y(c("y")),
        n(c.integer("n")),
        high(c.integer("h")),
        wide(c.integer("w")),
        cin(c.integer("cin")),
        cout(c.integer("cout")),
        kernel(c.integer("kernel")),
        pad(kernel == 4),
        act(act_of(c)) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return n * 4 * high * wide * cout; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t channel = i % cout, column = i / cout % (2 * wide), row = i / (cout * 2 * wide) % (2 * high),
                  image = i / (cout * 4 * high * wide);
    float sum = 0;
    for (int64_t tap = 0; tap < kernel * kernel; ++tap) {
      const int64_t from_row = row + pad - tap / kernel,
                    from_column = column + pad - tap % kernel;  // twice the pixel's
      if (from_row < 0 || from_row % 2 != 0 || from_row >= 2 * high || from_column < 0 || from_column % 2 != 0 ||
          from_column >= 2 * wide)
        continue;
      const int64_t pixel = (image * high + from_row / 2) * wide + from_column / 2;
      for (int64_t l = 0; l < cin; ++l) sum += x[pixel * cin + l] * w[(channel * kernel * kernel + tap) * cin + l];
    }
    y.set(i, activated(act, sum + (bias ? bias[channel] : 0)));
  }
};

// A thread has an element of y.
struct conv3d_temporal {
  Numbers x, w, bias, residual, y;
  int64_t batch, frames, hw, cin, cout;

  explicit conv3d_temporal(const Case& c)
      : x(c("x")),
        w(c("w")),
        bias(c("bias")),
        residual(c("residual")),
        y(c("y")),
        batch(c.integer("batch")),
        frames(c.integer("frames")),
        hw(c.integer("hw")),
        cin(c.integer("cin")),
        cout(c.integer("cout")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return batch * frames * hw * cout; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t channel = i % cout, token = i / cout, frame = token / hw % frames;
    float sum = 0;
    for (int64_t tap = 0; tap < 3; ++tap) {
      if (frame + tap < 1 || frame + tap > frames) continue;
      for (int64_t l = 0; l < cin; ++l) sum += x[(token + (tap - 1) * hw) * cin + l] * w[(channel * 3 + tap) * cin + l];
    }
    y.set(i, sum + (bias ? bias[channel] : 0) + (residual ? residual[i] : 0));
  }
};

// A thread has a row.
struct layernorm {
  Numbers x, residual, gamma, beta, scale, shift, sum, y;
  int64_t rows, channels, images;
  float eps;

  explicit layernorm(const Case& c)
      : x(c("x")),
        residual(c("residual")),
        gamma(c("gamma")),
        beta(c("beta")),
        scale(c("scale")),
        shift(c("shift")),
        sum(c("sum")),
        y(c("y")),
        rows(c.integer("rows")),
        channels(c.integer("channels")),
        images(c.integer("images")),
        eps(c.real("eps")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return rows; }
  __host__ __device__ float at(int64_t i) const { return x[i] + (residual ? residual[i] : 0); }
  __host__ __device__ void operator()(int64_t row) const {
    const int64_t first = row * channels, image = row / (rows / images) * channels;
    float mean = 0, squares = 0;
    for (int64_t j = 0; j < channels; ++j) mean += at(first + j) / static_cast<float>(channels);
    for (int64_t j = 0; j < channels; ++j) squares += (at(first + j) - mean) * (at(first + j) - mean);
    const float rstd = 1 / sqrtf(squares / static_cast<float>(channels) + eps);
    for (int64_t j = 0; j < channels; ++j) {
      float value = (at(first + j) - mean) * rstd;
      if (gamma) value = value * gamma[j] + beta[j];
      if (scale) value = value * (1 + scale[image + j]) + shift[image + j];
      y.set(first + j, value);
      if (sum) sum.set(first + j, at(first + j));
    }
  }
};

// A thread has an element of y.
struct elementwise {
  Numbers a, b, c, x, y;
  int64_t images, hw, channels;
  float scale;
  bool broadcast, adds, fma, geglu, relu, silus, to_nhwc, to_nchw;

  explicit elementwise(const Case& k)
      : a(k("a")),
        b(k("b")),
        c(k("c")),
        x(k("x")),
        y(k("y")),
        images(k.integer("n")),
        hw(k.integer("hw")),
        channels(k.integer("channels")),
        scale(k.real("scale")),
        broadcast(k.integer("broadcast") != 0),
        adds(k.is("op", "add")),
        fma(k.is("op", "silu_fma")),
        geglu(k.is("op", "geglu")),
        relu(k.is("op", "relu")),
        silus(k.is("op", "silu")),
        to_nhwc(k.is("op", "nchw_to_nhwc")),
        to_nchw(k.is("op", "nhwc_to_nchw")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return images * hw * channels; }
  __host__ __device__ float value(int64_t i) const {
    const int64_t row = i / channels, channel = i % channels, image = i / (hw * channels), rest = i % (hw * channels);
    if (fma) {
      const int64_t wide = broadcast ? image * channels + channel : i;
      return silu(a[wide] + b[i] * c[wide]);
    }
    if (adds) return (a[i] + b[i]) * scale;
    if (geglu) return x[2 * row * channels + channel] * gelu(x[(2 * row + 1) * channels + channel]);
    if (to_nhwc) return x[image * hw * channels + rest % channels * hw + rest / channels];
    if (to_nchw) return x[image * hw * channels + rest % hw * channels + rest / hw];
    return relu ? fmaxf(x[i], 0) : silus ? silu(x[i]) : x[i];
  }
  __host__ __device__ void operator()(int64_t i) const { y.set(i, value(i)); }
};

// A thread has an element of y.
struct resample {
  Numbers x, skip, y;
  int64_t images, rows, columns, channels, wide;
  bool up, down;

  explicit resample(const Case& c)
      : x(c("x")),
        skip(c("skip")),
        y(c("y")),
        images(c.integer("n")),
        rows(c.tensor("y")->shape[1]),
        columns(c.tensor("y")->shape[2]),
        channels(c.integer("channels")),
        wide(c.tensor("y")->shape[3]),
        up(c.is("op", "nearest_up2")),
        down(c.is("op", "average_down2")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return images * rows * columns * wide; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t channel = i % wide, pixel = i / wide, column = pixel % columns,
                  row = pixel / columns;  // of all images
    if (up) {
      y.set(i, x[(row / 2 * (columns / 2) + column / 2) * channels + channel]);
    } else if (down) {
      const int64_t first = (2 * row * 2 * columns + 2 * column) * channels + channel,
                    below = first + 2 * columns * channels;
      y.set(i, (x[first] + x[first + channels] + x[below] + x[below + channels]) / 4);
    } else {
      y.set(i,
            channel < channels ? x[pixel * channels + channel] : skip[pixel * (wide - channels) + channel - channels]);
    }
  }
};

// A thread has an element of y; with two layers it computes all of the first.
struct timestep_embedding {
  Numbers t, freqs, w1, b1, w2, b2, y;
  int64_t batch, channels, hidden, half;
  float max_period;
  bool endpoint, sin_first, final_silu;

  explicit timestep_embedding(const Case& c)
      : t(c("t")),
        freqs(c("freqs")),
        w1(c("w1")),
        b1(c("b1")),
        w2(c("w2")),
        b2(c("b2")),
        y(c("y")),
        batch(c.integer("batch")),
        channels(c.integer("channels")),
        hidden(c.integer("hidden")),
        half(channels / 2),
        max_period(c.real("max_period")),
        endpoint(c.integer("endpoint") != 0),
        sin_first(c.is("order", "sin_cos")),
        final_silu(c.integer("final_silu") != 0) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return batch * (hidden > 0 ? hidden : channels); }
  __host__ __device__ float embedding(int64_t image, int64_t j) const {
    const int64_t k = j % half, steps = half - (endpoint && half > 1);
    const double frequency = freqs ? 6.283185307179586 * freqs[k]
                                   : pow(double{max_period}, -static_cast<double>(k) / static_cast<double>(steps));
    const double angle = t[image] * frequency;
    return static_cast<float>((j < half) != sin_first ? cos(angle) : sin(angle));
  }
  __host__ __device__ void operator()(int64_t i) const {
    if (hidden == 0) {
      y.set(i, embedding(i / channels, i % channels));
      return;
    }
    const int64_t image = i / hidden, row = i % hidden;
    float sum = 0;
    constexpr int64_t kSome = 16;  // hidden numbers at a time, as an embedding costs more than a product
    for (int64_t begin = 0; begin < hidden; begin += kSome) {
      const int64_t some = hidden - begin < kSome ? hidden - begin : kSome;
      float first[kSome] = {};
      for (int64_t j = 0; j < channels; ++j) {
        const float value = embedding(image, j);
        for (int64_t h = 0; h < some; ++h) first[h] += w1[(begin + h) * channels + j] * value;
      }
      for (int64_t h = 0; h < some; ++h) sum += w2[row * hidden + begin + h] * silu(first[h] + b1[begin + h]);
    }
    y.set(i, final_silu ? silu(sum + b2[row]) : sum + b2[row]);
  }
};

// A thread has an element.
struct edm_precondition {
  Numbers x, f, sigma, y, c_noise, d;
  int64_t batch, elements;
  float data;

  explicit edm_precondition(const Case& c)
      : x(c("x")),
        f(c("f")),
        sigma(c("sigma")),
        y(c("y")),
        c_noise(c("c_noise")),
        d(c("d")),
        batch(c.integer("batch")),
        elements(c.integer("elements")),
        data(c.real("sigma_data")) {}
  static const char* why_not(const Case&) { return nullptr; }
  int64_t count() const { return batch * elements; }
  __host__ __device__ void operator()(int64_t i) const {
    const float level = sigma[i / elements], deviation = sqrtf(data * data + level * level);
    if (d) {
      d.set(i, data / deviation * (data / deviation) * x[i] + level * data / deviation * f[i]);
      return;
    }
    y.set(i, x[i] / deviation);
    if (i % elements == 0) c_noise.set(i / elements, logf(level) / 4);
  }
};

// A thread has an element.
struct q_sample {
  Numbers x0, noise, levels, x_t;
  int64_t batch, elements;

  explicit q_sample(const Case& c)
      : x0(c("x0")),
        noise(c("noise")),
        levels(c("levels")),
        x_t(c("x_t")),
        batch(c.integer("batch")),
        elements(c.integer("elements")) {}
  static const char* why_not(const Case& c) { return c.is("noise", "given") ? nullptr : "needs noise that is given"; }
  int64_t count() const { return batch * elements; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t image = i / elements;
    x_t.set(i, levels[2 * image] * x0[i] + levels[2 * image + 1] * noise[i]);
  }
};

// A thread has an element; the step's coefficients are a row of 12.
struct sampler_step {
  Numbers x, output, history, noise, previous, coefficients, x_next, history_out;
  int64_t total, row;
  bool guided;

  explicit sampler_step(const Case& c)
      : x(c("x")),
        output(c("model_output")),
        history(c("history")),
        noise(c("noise")),
        previous(c("previous_frame")),
        coefficients(c("coefficients")),
        x_next(c("x_next")),
        history_out(c("history_out")),
        total(c.integer("batch") * c.integer("elements")),
        row(12 * c.integer("step")),
        guided(c.real("guidance") != 0) {}
  static const char* why_not(const Case& c) {
    return c.is("noise", "drawn") ? "needs noise that is given, or none" : nullptr;
  }
  int64_t count() const { return total; }
  __host__ __device__ void operator()(int64_t i) const {
    const auto of = [&](int64_t k) { return coefficients[row + k]; };
    const float model = of(1) * output[i] + (guided ? of(2) * output[total + i] : 0);
    const float x0 = fminf(fmaxf(of(0) * x[i] + model, -of(3)), of(3));
    x_next.set(i, of(4) * x[i] + of(5) * x0 + (history ? of(6) * history[i] : 0) + (noise ? of(7) * noise[i] : 0) +
                      (previous ? of(8) * previous[i] : 0));
    if (history_out) history_out.set(i, of(9) * x[i] + of(10) * x0);
  }
};
