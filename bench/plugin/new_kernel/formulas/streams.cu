// Formulas of norms, of what reads and writes each number once, and of the time's embedding.

// A thread has a row.
struct layernorm : Case {
  Numbers x = numbers("x"), residual = numbers("residual"), gamma = numbers("gamma"), beta = numbers("beta"),
          scale = numbers("scale"), shift = numbers("shift"), sum = numbers("sum"), y = numbers("y");
  int64_t rows = integer("rows"), channels = integer("channels"), images = integer("images");
  float eps = real("eps");

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
struct elementwise : Case {
  Numbers a = numbers("a"), b = numbers("b"), c = numbers("c"), x = numbers("x"), y = numbers("y");
  int64_t images = integer("n"), hw = integer("hw"), channels = integer("channels");
  float scale = real("scale");
  bool broadcast = integer("broadcast") != 0, adds = is("op", "add"), fma = is("op", "silu_fma"),
       geglu = is("op", "geglu"), relu = is("op", "relu"), silus = is("op", "silu"), to_nhwc = is("op", "nchw_to_nhwc"),
       to_nchw = is("op", "nhwc_to_nchw");

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
struct resample : Case {
  Numbers x = numbers("x"), skip = numbers("skip"), y = numbers("y");
  int64_t images = integer("n"), rows = tensor("y")->shape[1], columns = tensor("y")->shape[2],
          channels = integer("channels"), wide = tensor("y")->shape[3];
  bool up = is("op", "nearest_up2"), down = is("op", "average_down2");

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
struct timestep_embedding : Case {
  Numbers t = numbers("t"), freqs = numbers("freqs"), w1 = numbers("w1"), b1 = numbers("b1"), w2 = numbers("w2"),
          b2 = numbers("b2"), y = numbers("y");
  int64_t batch = integer("batch"), channels = integer("channels"), hidden = integer("hidden"), half = channels / 2;
  float max_period = real("max_period");
  bool endpoint = integer("endpoint") != 0, sin_first = is("order", "sin_cos"), final_silu = integer("final_silu") != 0;

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
struct edm_precondition : Case {
  Numbers x = numbers("x"), f = numbers("f"), sigma = numbers("sigma"), y = numbers("y"), c_noise = numbers("c_noise"),
          d = numbers("d");
  int64_t batch = integer("batch"), elements = integer("elements");
  float data = real("sigma_data");

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
struct q_sample : Case {
  Numbers x0 = numbers("x0"), noise = numbers("noise"), levels = numbers("levels"), x_t = numbers("x_t");
  int64_t batch = integer("batch"), elements = integer("elements");

  const char* why_not() const { return is("noise", "given") ? nullptr : "needs noise that is given"; }
  int64_t count() const { return batch * elements; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t image = i / elements;
    x_t.set(i, levels[2 * image] * x0[i] + levels[2 * image + 1] * noise[i]);
  }
};

// A thread has an element; the step's coefficients are a row of 12.
struct sampler_step : Case {
  Numbers x = numbers("x"), output = numbers("model_output"), history = numbers("history"), noise = numbers("noise"),
          previous = numbers("previous_frame"), coefficients = numbers("coefficients"), x_next = numbers("x_next"),
          history_out = numbers("history_out");
  int64_t total = integer("batch") * integer("elements"), row = 12 * integer("step");
  bool guided = real("guidance") != 0;

  const char* why_not() const { return is("noise", "drawn") ? "needs noise that is given, or none" : nullptr; }
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
