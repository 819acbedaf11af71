// The C twin of the dense kernels: the forward pass of an actor-critic network, 4 → 64 → 64 → (2 + 1) with tanh, or as wide
// as -DHIDDEN says, and one PPO update of it (forward, loss, backward, clipping, Adam), with the blocks, the formulas and the
// rational tanh of the SIMD bodies. Plain C with GCC's vector type for the register block; blocks are shared by one or two threads:
//
//     gcc -O3 -march=x86-64-v3 twin.c -o twin -lm -lpthread && echo 'update 1024 2 16' | ./twin 256 1024 8192
//
// Reads requests, a line each: layer, forward or update, then rows (one of those in the command line), threads, calls.
// Each begins with the starting weights. Answers with a line: mean seconds of a call, and a sum of the first to compare.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef HIDDEN
#define HIDDEN 64
#endif
enum { INPUTS = 4, CHOICES = 2, BLOCK = 256, THREADS = 2 };
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

#define OWN static _Thread_local
OWN float x0[BLOCK * HIDDEN] __attribute__((aligned(64))), x1[BLOCK * HIDDEN] __attribute__((aligned(64)));
OWN float dx0[BLOCK * HIDDEN] __attribute__((aligned(64))), dx1[BLOCK * HIDDEN] __attribute__((aligned(64)));
OWN float logits[BLOCK * CHOICES], dLogits[BLOCK * CHOICES], values[BLOCK], dValues[BLOCK];

static void forward(const float *w, const float *x, int rows) {
  dense_tanh(x0, x, w + W0, w + B0, rows, INPUTS, HIDDEN);
  dense_tanh(x1, x0, w + W1, w + B1, rows, HIDDEN, HIDDEN);
  head(logits, x1, w + WA, w + BA, rows, CHOICES);
  head(values, x1, w + WV, w + BV, rows, 1);
}

struct rows {
  const float *x, *oldLogprob, *advantage, *target;
  const int *action;
  int count;
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

// One update in three parts: before the shares, the share of a thread, and after the shares.
static float *w, *start, *m1, *m2, *gradients[THREADS];
static double mean, scale, sums[THREADS];
static float transposed[HIDDEN * HIDDEN], heads[HIDDEN * 2];

static void prepare(const struct rows *m) {
  double squares = 0;
  mean = 0;
  for (int i = 0; i < m->count; i++) mean += m->advantage[i];
  mean /= m->count;
  for (int i = 0; i < m->count; i++) squares += (m->advantage[i] - mean) * (m->advantage[i] - mean);
  scale = 1 / (sqrt(squares / (m->count - 1)) + 1e-8);
  for (int k = 0; k < HIDDEN; k++)
    for (int j = 0; j < HIDDEN; j++) transposed[j * HIDDEN + k] = w[W1 + k * HIDDEN + j];
  for (int k = 0; k < HIDDEN; k++)
    for (int j = 0; j < CHOICES; j++) heads[j * HIDDEN + k] = w[WA + k * CHOICES + j];
}

static void differentiate_share(const struct rows *m, int thread, int threads) {
  float *g = gradients[thread];
  double sum = 0;
  memset(g, 0, PARAMETERS * sizeof(float));
  for (int from = thread * BLOCK; from < m->count; from += threads * BLOCK) {
    int count = m->count - from < BLOCK ? m->count - from : BLOCK;
    const float *x = m->x + from * INPUTS;
    forward(w, x, count);
    sum += loss(m, from, count, mean, scale, 1.0f / m->count);
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
  sums[thread] = sum;
}

static double finish(int threads) {
  float *g = gradients[0];
  double norm = 0, sum = sums[0];
  for (int t = 1; t < threads; t++) {
    sum += sums[t];
    for (int i = 0; i < PARAMETERS; i++) g[i] += gradients[t][i];
  }
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

static void forward_share(const struct rows *m, int thread, int threads) {
  double sum = 0;
  for (int from = thread * BLOCK; from < m->count; from += threads * BLOCK) {
    forward(w, m->x + from * INPUTS, m->count - from < BLOCK ? m->count - from : BLOCK);
    sum += values[0] + logits[1];
  }
  sums[thread] = sum;
}

// The second thread waits for a job: it spins while jobs come, and sleeps between requests.
typedef void share(const struct rows *, int, int);
static atomic_int issued, finished, awake;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakes = PTHREAD_COND_INITIALIZER;
static share *job;
static const struct rows *jobRows;

static void *second(void *unused) {
  for (int done = 0;;) {
    while (atomic_load(&issued) == done) {
      if (atomic_load(&awake)) continue;
      pthread_mutex_lock(&mutex);
      while (!atomic_load(&awake)) pthread_cond_wait(&wakes, &mutex);
      pthread_mutex_unlock(&mutex);
    }
    job(jobRows, 1, 2);
    atomic_store(&finished, ++done);
  }
  return unused;
}

static void wake(int value) {
  pthread_mutex_lock(&mutex);
  atomic_store(&awake, value);
  pthread_cond_broadcast(&wakes);
  pthread_mutex_unlock(&mutex);
}

static void run(share *part, const struct rows *m, int threads) {
  if (threads == 1) return part(m, 0, 1);
  job = part;
  jobRows = m;
  int number = atomic_fetch_add(&issued, 1) + 1;
  part(m, 0, 2);
  while (atomic_load(&finished) != number);
}

static double run_update(const struct rows *m, int threads) {
  prepare(m);
  run(differentiate_share, m, threads);
  return finish(threads);
}

static double run_forward(const struct rows *m, int threads) {
  run(forward_share, m, threads);
  return threads == 1 ? sums[0] : sums[0] + sums[1];
}

static float layerRows[BLOCK * HIDDEN];

static double run_layer(const struct rows *m, int threads) {
  (void)m, (void)threads;
  dense_tanh(x1, layerRows, w + W1, w + B1, BLOCK, HIDDEN, HIDDEN);
  return 0;
}

static struct rows draw_rows(int rows) {
  float *x = floats(rows * INPUTS), *old = floats(rows), *advantage = floats(rows), *target = floats(rows);
  int *action = malloc(rows * sizeof(int));
  for (int i = 0; i < rows; i++) {
    for (int k = 0; k < INPUTS; k++) x[i * INPUTS + k] = uniform(-1, 1);
    old[i] = uniform(-1, -0.4f);
    advantage[i] = uniform(-1, 1);
    target[i] = uniform(-1, 1);
    action[i] = uniform(0, 1) < 0.5f ? 0 : 1;
  }
  return (struct rows){x, old, advantage, target, action, rows};
}

int main(int count, char **words) {
  struct rows made[8] = {0};
  w = floats(PARAMETERS), start = floats(PARAMETERS), m1 = floats(PARAMETERS), m2 = floats(PARAMETERS);
  for (int t = 0; t < THREADS; t++) gradients[t] = floats(PARAMETERS);
  for (int i = 0; i < PARAMETERS; i++) start[i] = uniform(-0.2f, 0.2f);
  for (int i = 0; i < BLOCK * HIDDEN; i++) layerRows[i] = uniform(-1, 1);
  for (int word = 1; word < count && word <= 8; word++) made[word - 1] = draw_rows(atoi(words[word]));
  pthread_t thread;
  pthread_create(&thread, 0, second, 0);

  char what[16];
  int rows, threads, calls;
  while (scanf("%15s %d %d %d", what, &rows, &threads, &calls) == 4) {
    double (*call)(const struct rows *, int) = *what == 'u' ? run_update : *what == 'f' ? run_forward : run_layer;
    const struct rows *m = made;
    while (call != run_layer && m->count != rows) m++;
    memcpy(w, start, PARAMETERS * sizeof(float));
    memset(m1, 0, PARAMETERS * sizeof(float));
    memset(m2, 0, PARAMETERS * sizeof(float));
    if (threads > 1) wake(1);
    double sum = call(m, threads), begin = now();
    while (threads > 1 && now() - begin < 0.02) call(m, threads); // Until the second thread has a core of its own.
    begin = now();
    for (int i = 0; i < calls; i++) call(m, threads);
    double seconds = (now() - begin) / calls;
    if (threads > 1) wake(0);
    if (call == run_layer)
      for (int i = 0; i < BLOCK * HIDDEN; i++) sum += x1[i];
    printf("{\"seconds\": %.9g, \"sum\": %.9g}\n", seconds, sum);
    fflush(stdout);
  }
}
