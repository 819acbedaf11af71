// The C twin of the dense kernels: the forward pass of an actor-critic network, 4 → 64 → 64 → (2 + 1) with tanh, and one
// PPO update of it (forward, loss, backward, clipping, Adam), with the blocks, the formulas and the rational tanh of the
// SIMD bodies. Plain C with GCC's vector type for the register block, one thread:
//
//     gcc -O3 -march=x86-64-v3 twin.c -o twin -lm && ./twin 256 1024 8192
//
// Prints one JSON object: for the one layer and for each number of rows the median seconds, and sums to compare.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUTS = 4, HIDDEN = 64, CHOICES = 2, BLOCK = 256, REPEATS = 21 };
enum {
  W0 = 0,
  B0 = W0 + INPUTS * HIDDEN,
  W1 = B0 + HIDDEN,
  B1 = W1 + HIDDEN * HIDDEN,
  WA = B1 + HIDDEN,
  BA = WA + HIDDEN * CHOICES,
  WV = BA + CHOICES,
  BV = WV + HIDDEN,
  PARAMETERS = BV + 1
};

typedef float lanes __attribute__((vector_size(32), aligned(4)));
enum { LANES = 8 };

static float *floats(long length) {
  void *p = aligned_alloc(64, (length * sizeof(float) + 63) / 64 * 64);
  memset(p, 0, length * sizeof(float));
  return p;
}

static unsigned state = 1;
static float uniform(float low, float high) {
  state = state * 1664525u + 1013904223u;
  return low + (high - low) * (float)(state >> 8) / 16777216.0f;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline float tanh_ratio(float v) {
  float x = v < -7.90531110763549805f ? -7.90531110763549805f : v;
  x = x > 7.90531110763549805f ? 7.90531110763549805f : x;
  float s = x * x, p = -2.76076847742355e-16f, q = 1.19825839466702e-6f;
  p = s * p + 2.00018790482477e-13f;
  p = s * p + -8.60467152213735e-11f;
  p = s * p + 5.12229709037114e-8f;
  p = s * p + 1.48572235717979e-5f;
  p = s * p + 6.37261928875436e-4f;
  p = s * p + 4.89352455891786e-3f;
  q = s * q + 1.18534705686654e-4f;
  q = s * q + 2.26843463243900e-3f;
  q = s * q + 4.89352518554385e-3f;
  return x * p / q;
}

// C = start + A · B in register blocks of ROWS × 2 vectors. Element (r, k) of A at a + r · aRow + k · aStep.
#define TILE(NAME, ROWS)                                                                                               \
  static void NAME(float *c, long cRow, const float *from, long fromRow, const float *a, long aRow, long aStep,        \
                   const float *b, long bRow, int depth) {                                                             \
    lanes sum[ROWS][2];                                                                                                \
    for (int r = 0; r < ROWS; r++)                                                                                     \
      for (int q = 0; q < 2; q++) sum[r][q] = from ? *(const lanes *)(from + r * fromRow + q * LANES) : (lanes){0};    \
    for (int k = 0; k < depth; k++) {                                                                                  \
      lanes b0 = *(const lanes *)(b + k * bRow), b1 = *(const lanes *)(b + k * bRow + LANES);                          \
      for (int r = 0; r < ROWS; r++) {                                                                                 \
        float e = a[r * aRow + k * aStep];                                                                             \
        sum[r][0] += e * b0;                                                                                           \
        sum[r][1] += e * b1;                                                                                           \
      }                                                                                                                \
    }                                                                                                                  \
    for (int r = 0; r < ROWS; r++)                                                                                     \
      for (int q = 0; q < 2; q++) *(lanes *)(c + r * cRow + q * LANES) = sum[r][q];                                    \
  }
TILE(tile4, 4)
TILE(tile1, 1)

static void multiply(float *c, long cRow, const float *from, long fromRow, const float *a, long aRow, long aStep,
                     const float *b, long bRow, int rows, int depth, int columns) {
  for (int r = 0; r < rows;) {
    int four = rows - r >= 4;
    for (int j = 0; j < columns; j += 2 * LANES) {
      const float *start = from ? from + r * fromRow + j : 0;
      (four ? tile4 : tile1)(c + r * cRow + j, cRow, start, fromRow, a + r * aRow, aRow, aStep, b + j, bRow, depth);
    }
    r += four ? 4 : 1;
  }
}

static void dense_tanh(float *y, const float *x, const float *w, const float *b, int rows, int inputs, int outputs) {
  multiply(y, outputs, b, 0, x, inputs, 1, w, outputs, rows, inputs, outputs);
  for (int i = 0; i < rows * outputs; i++) y[i] = tanh_ratio(y[i]);
}

static void head(float *y, const float *x, const float *w, const float *b, int rows, int outputs) {
  float column[HIDDEN];
  for (int j = 0; j < outputs; j++) {
    for (int k = 0; k < HIDDEN; k++) column[k] = w[k * outputs + j];
    for (int r = 0; r < rows; r++) {
      lanes sum = {0};
      for (int k = 0; k < HIDDEN; k += LANES) sum += *(const lanes *)(x + r * HIDDEN + k) * *(lanes *)(column + k);
      float total = b[j];
      for (int i = 0; i < LANES; i++) total += sum[i];
      y[r * outputs + j] = total;
    }
  }
}

static void backward_weights(float *dw, float *db, const float *dy, const float *x, int rows, int inputs, int outputs) {
  for (int first = 0; first < rows; first += 64) {
    int depth = rows - first < 64 ? rows - first : 64;
    const float *d = dy + first * outputs, *in = x + first * inputs;
    multiply(dw, outputs, dw, outputs, in, 1, inputs, d, outputs, inputs, depth, outputs);
    for (int r = 0; r < depth; r++)
      for (int j = 0; j < outputs; j++) db[j] += d[r * outputs + j];
  }
}

static void backward_head_weights(float *dw, float *db, const float *dy, const float *x, int rows, int outputs) {
  for (int j = 0; j < outputs; j++) {
    float sum[HIDDEN] = {0}, bias = 0;
    for (int r = 0; r < rows; r++) {
      float d = dy[r * outputs + j];
      bias += d;
      for (int k = 0; k < HIDDEN; k++) sum[k] += d * x[r * HIDDEN + k];
    }
    for (int k = 0; k < HIDDEN; k++) dw[k * outputs + j] += sum[k];
    db[j] += bias;
  }
}

static void tanh_backward(float *dy, const float *y, int length) {
  for (int i = 0; i < length; i++) dy[i] *= 1 - y[i] * y[i];
}

static float x0[BLOCK * HIDDEN] __attribute__((aligned(64))), x1[BLOCK * HIDDEN] __attribute__((aligned(64)));
static float dx0[BLOCK * HIDDEN] __attribute__((aligned(64))), dx1[BLOCK * HIDDEN] __attribute__((aligned(64)));
static float logits[BLOCK * CHOICES], dLogits[BLOCK * CHOICES], values[BLOCK], dValues[BLOCK];

static void forward(const float *w, const float *x, int rows) {
  dense_tanh(x0, x, w + W0, w + B0, rows, INPUTS, HIDDEN);
  dense_tanh(x1, x0, w + W1, w + B1, rows, HIDDEN, HIDDEN);
  head(logits, x1, w + WA, w + BA, rows, CHOICES);
  head(values, x1, w + WV, w + BV, rows, 1);
}

struct rows {
  const float *x, *oldLogprob, *advantage, *target;
  const int *action;
};

// Policy loss max(−Â r, −Â clip(r, 0.8, 1.2)), value loss ½ (v − R)² · 0.5, entropy bonus 0.01.
static double loss(const struct rows *m, int from, int rows, double mean, double scale, float weight) {
  double sum = 0;
  for (int r = 0; r < rows; r++) {
    int i = from + r, a = m->action[i];
    const float *z = logits + r * CHOICES;
    float max = z[0] > z[1] ? z[0] : z[1];
    float e0 = expf(z[0] - max), e1 = expf(z[1] - max), total = e0 + e1, logTotal = logf(total);
    float l0 = z[0] - max - logTotal, l1 = z[1] - max - logTotal, p0 = e0 / total, p1 = e1 / total;
    float entropy = -(p0 * l0 + p1 * l1);
    float ratio = expf((a ? l1 : l0) - m->oldLogprob[i]);
    float drawback = (float)((mean - m->advantage[i]) * scale);
    float clipped = ratio < 0.8f ? 0.8f : ratio > 1.2f ? 1.2f : ratio;
    float surrogate = drawback * ratio, other = drawback * clipped;
    float dLogprob = surrogate >= other ? weight * surrogate : 0, dEntropy = -0.01f * weight;
    dLogits[r * 2] = dLogprob * ((a == 0) - p0) - dEntropy * p0 * (l0 + entropy);
    dLogits[r * 2 + 1] = dLogprob * ((a == 1) - p1) - dEntropy * p1 * (l1 + entropy);
    float error = values[r] - m->target[i];
    dValues[r] = weight * 0.5f * error;
    sum += (surrogate > other ? surrogate : other) + 0.25 * error * error - 0.01 * entropy;
  }
  return sum;
}

static double update(float *w, float *m1, float *m2, float *g, const struct rows *m, int rows) {
  static float transposed[HIDDEN * HIDDEN], heads[HIDDEN * 2];
  double mean = 0, squares = 0, sum = 0;
  for (int i = 0; i < rows; i++) mean += m->advantage[i];
  mean /= rows;
  for (int i = 0; i < rows; i++) squares += (m->advantage[i] - mean) * (m->advantage[i] - mean);
  double scale = 1 / (sqrt(squares / (rows - 1)) + 1e-8);
  memset(g, 0, PARAMETERS * sizeof(float));
  for (int k = 0; k < HIDDEN; k++)
    for (int j = 0; j < HIDDEN; j++) transposed[j * HIDDEN + k] = w[W1 + k * HIDDEN + j];
  for (int k = 0; k < HIDDEN; k++)
    for (int j = 0; j < CHOICES; j++) heads[j * HIDDEN + k] = w[WA + k * CHOICES + j];
  for (int from = 0; from < rows; from += BLOCK) {
    int count = rows - from < BLOCK ? rows - from : BLOCK;
    const float *x = m->x + from * INPUTS;
    forward(w, x, count);
    sum += loss(m, from, count, mean, scale, 1.0f / rows);
    backward_head_weights(g + WA, g + BA, dLogits, x1, count, CHOICES);
    backward_head_weights(g + WV, g + BV, dValues, x1, count, 1);
    multiply(dx1, HIDDEN, 0, 0, dLogits, CHOICES, 1, heads, HIDDEN, count, CHOICES, HIDDEN);
    multiply(dx1, HIDDEN, dx1, HIDDEN, dValues, 1, 1, w + WV, HIDDEN, count, 1, HIDDEN);
    tanh_backward(dx1, x1, count * HIDDEN);
    backward_weights(g + W1, g + B1, dx1, x0, count, HIDDEN, HIDDEN);
    multiply(dx0, HIDDEN, 0, 0, dx1, HIDDEN, 1, transposed, HIDDEN, count, HIDDEN, HIDDEN);
    tanh_backward(dx0, x0, count * HIDDEN);
    backward_weights(g + W0, g + B0, dx0, x, count, INPUTS, HIDDEN);
  }
  double norm = 0;
  for (int i = 0; i < PARAMETERS; i++) norm += (double)g[i] * g[i];
  norm = sqrt(norm);
  float clip = norm > 0.5 ? 0.5 / (norm + 1e-6) : 1;
  for (int i = 0; i < PARAMETERS; i++) {
    float d = g[i] * clip;
    m1[i] = 0.9f * m1[i] + 0.1f * d;
    m2[i] = 0.999f * m2[i] + 0.001f * d * d;
    w[i] -= 1e-3f * (m1[i] * (1 / 0.1f)) / (sqrtf(m2[i] * (1 / 0.001f)) + 1e-5f);
  }
  return sum + norm;
}

static double median(double *seconds) {
  qsort(seconds, REPEATS, sizeof(double), rising);
  return seconds[REPEATS / 2];
}

int main(int count, char **words) {
  float *w = floats(PARAMETERS), *start = floats(PARAMETERS), *m1 = floats(PARAMETERS), *m2 = floats(PARAMETERS);
  float *g = floats(PARAMETERS);
  double seconds[REPEATS];
  for (int i = 0; i < PARAMETERS; i++) start[i] = uniform(-0.2f, 0.2f);

  float *layer = floats(BLOCK * HIDDEN);
  for (int i = 0; i < BLOCK * HIDDEN; i++) layer[i] = uniform(-1, 1);
  memcpy(w, start, PARAMETERS * sizeof(float));
  for (int s = -3; s < REPEATS; s++) {
    double begin = now();
    for (int i = 0; i < 50; i++) dense_tanh(x1, layer, w + W1, w + B1, BLOCK, HIDDEN, HIDDEN);
    if (s >= 0) seconds[s] = (now() - begin) / 50;
  }
  double sum = 0;
  for (int i = 0; i < BLOCK * HIDDEN; i++) sum += x1[i];
  printf("{\"layer\": {\"seconds\": %.9g, \"sum\": %.9g}, \"rows\": {", median(seconds), sum);

  for (int word = 1; word < count; word++) {
    int rows = atoi(words[word]), repeats = rows < 4096 ? 4096 / rows * 4 : 4;
    float *x = floats(rows * INPUTS), *old = floats(rows), *advantage = floats(rows), *target = floats(rows);
    int *action = malloc(rows * sizeof(int));
    for (int i = 0; i < rows; i++) {
      for (int k = 0; k < INPUTS; k++) x[i * INPUTS + k] = uniform(-1, 1);
      old[i] = uniform(-1, -0.4f);
      advantage[i] = uniform(-1, 1);
      target[i] = uniform(-1, 1);
      action[i] = uniform(0, 1) < 0.5f ? 0 : 1;
    }
    struct rows m = {x, old, advantage, target, action};
    memcpy(w, start, PARAMETERS * sizeof(float));
    double sums = 0;
    for (int s = -3; s < REPEATS; s++) {
      double begin = now();
      for (int i = 0; i < repeats; i++) {
        sums = 0;
        for (int from = 0; from < rows; from += BLOCK) {
          forward(w, x + from * INPUTS, rows - from < BLOCK ? rows - from : BLOCK);
          sums += values[0] + logits[1];
        }
      }
      if (s >= 0) seconds[s] = (now() - begin) / repeats;
    }
    double forwardSeconds = median(seconds);
    memset(m1, 0, PARAMETERS * sizeof(float));
    memset(m2, 0, PARAMETERS * sizeof(float));
    double first = update(w, m1, m2, g, &m, rows);
    for (int s = -3; s < REPEATS; s++) {
      double begin = now();
      for (int i = 0; i < repeats; i++) update(w, m1, m2, g, &m, rows);
      if (s >= 0) seconds[s] = (now() - begin) / repeats;
    }
    printf("%s\"%d\": {\"forward\": %.9g, \"forwardSum\": %.9g, \"update\": %.9g, \"updateSum\": %.9g}",
           word > 1 ? ", " : "", rows, forwardSeconds, sums, median(seconds), first);
  }
  printf("}}\n");
}
