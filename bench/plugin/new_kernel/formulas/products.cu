// Formulas of products and convolutions.

// A thread has an element of d.
struct gemm : Case {
  Numbers a = numbers("a"), b = numbers("b"), bias = numbers("bias"), image_shift = numbers("image_shift"),
          residual = numbers("residual"), blend = numbers("blend"), share = numbers("share"), d = numbers("d");
  int64_t m = integer("m"), n = integer("n"), k = integer("k"), images = integer("images");
  int64_t part = integer("part_columns") == 0 ? n : integer("part_columns");
  float scale = real("scale");
  Act act = act_of(*this);
  bool geglu = is("act", "geglu");

  int64_t count() const { return m * n; }
  __host__ __device__ float product(int64_t row, int64_t column) const {
    float sum = 0;
    for (int64_t l = 0; l < k; ++l) sum += a[row * k + l] * b[column * k + l];
    sum = scale * sum + (bias ? bias[column] : 0);
    return sum + (image_shift ? image_shift[row / (m / images) * n + column] : 0);
  }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t row = i / n, column = i % n, place = (column / part * m + row) * part + column % part;
    float y =
        geglu ? product(row, column) * gelu(product(row, n + column)) : activated(act, product(row, column));
    if (residual) y += residual[place];
    d.set(place, blend ? y + share[0] * (blend[place] - y) : y);
  }
};

// A thread has an element of y.
struct conv2d : Case {
  Numbers x = numbers("x"), w = numbers("w"), bias = numbers("bias"), scale = numbers("scale"),
          shift = numbers("shift"), image_shift = numbers("image_shift"), residual = numbers("residual"),
          beside = numbers("side"), skip = numbers("side_skip"), w_beside = numbers("w_side"), y = numbers("y");
  int64_t n = integer("n"), high = integer("h"), wide = integer("w"), cin = integer("cin"), cout = integer("cout"),
          kernel = integer("kernel"), stride = integer("stride"), pad = integer("pad"), up = integer("upsample") + 1,
          rows = tensor("y")->shape[1], columns = tensor("y")->shape[2], sides = integer("side"),
          skips = integer("side_skip"), halved = integer("residual_upsample") + 1;
  float gain = real("gain");
  Act act = act_of(*this);

  const char* why_not() const {
    return integer("stats") == 0 && is("norm", "none") ? nullptr : "needs stats=0 and norm=none";
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
    const int64_t added = ((image * rows + row) / halved * (columns / halved) + column / halved) * cout + channel;
    y.set(i, gain * (activated(act, sum) + (residual ? residual[added] : 0)));
  }
};

// A thread has an element of y, to which every other tap adds.
struct conv_transpose2d : Case {
  Numbers x = numbers("x"), w = numbers("w"), bias = numbers("bias"), y = numbers("y");
  int64_t n = integer("n"), high = integer("h"), wide = integer("w"), cin = integer("cin"), cout = integer("cout"),
          kernel = integer("kernel"), pad = kernel == 4;
  Act act = act_of(*this);

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
struct conv3d_temporal : Case {
  Numbers x = numbers("x"), w = numbers("w"), bias = numbers("bias"), image_shift = numbers("image_shift"),
          residual = numbers("residual"), y = numbers("y");
  int64_t batch = integer("batch"), frames = integer("frames"), hw = integer("hw"), cin = integer("cin"),
          cout = integer("cout");

  int64_t count() const { return batch * frames * hw * cout; }
  __host__ __device__ void operator()(int64_t i) const {
    const int64_t channel = i % cout, token = i / cout, frame = token / hw % frames;
    float sum = 0;
    for (int64_t tap = 0; tap < 3; ++tap) {
      if (frame + tap < 1 || frame + tap > frames) continue;
      for (int64_t l = 0; l < cin; ++l) sum += x[(token + (tap - 1) * hw) * cin + l] * w[(channel * 3 + tap) * cin + l];
    }
    if (bias) sum += bias[channel];
    if (image_shift) sum += image_shift[token / (frames * hw) * cout + channel];
    y.set(i, sum + (residual ? residual[i] : 0));
  }
};
