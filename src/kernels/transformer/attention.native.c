/**
 * Causal attention; the plain twin `attention.ts` says what is computed. A score is summed in four
 * parts over the head's width, a row's exponentials in four parts over the keys, what is attended to from the first key on, and
 * the gradient of a key from the first row on.
 *
 * Rows that follow one another in a sequence, and the heads that share keys, run together through the register block of the matrix
 * products (`TOGETHER` of them), over keys in panels. Each sum keeps its order: a row has the same bits as if it came alone.
 */
#include "../math.native.h"
#include "../tile.native.h"

/** Below every score, and no infinity. */
#define LOWEST -1e30f
/** Keys whose scores are made side by side. */
#define KEYS 8
/** Rows, each of one head, that run together. */
#define TOGETHER 48
/** Fewer rows than this come one by one. */
#define FEWEST 8
/** Up to so many rows are differentiated one by one, and up to so many numbers of one head in them. */
#define FEW 16
#define FEW_NUMBERS 1024
/** Keys whose gradients are summed while the rows of a sequence run by: with all that they need they stay in the second-level cache. */
#define CHUNK 128
/** Floats between the ends of rows of scores, so that rows do not begin in the same lines of the first-level cache. */
#define APART_BY 16
/** Largest numbers that are looked for side by side. */
#ifdef __wasm__
#define LARGEST 4
#else
#define LARGEST 16
#endif

/** Words that may lie where floats do. */
typedef uint32_t aliased __attribute__((may_alias));

INLINE void dots_of(const size_t keys, float *scores, const float *q, const float *k, size_t key_row, int width, float scale) {
  four sums[KEYS];
  UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = (four){0};
  int i = 0;
  for (; i + 4 <= width; i += 4) {
    UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = madd4(load4(q + i), load4(k + j * key_row + i), sums[j]);
  }
  if (i < width) {
    const four last = load_part4(q + i, width - i);
    UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = madd4(last, load_part4(k + j * key_row + i, width - i), sums[j]);
  }
  UNROLLED for (size_t j = 0; j < keys; j++) scores[j] = sum4(sums[j]) * scale;
}

static float dot(const float *a, const float *b, int width) {
  four sums = {0};
  for (int i = 0; i < width; i += 4) {
    if (width - i >= 4) sums = madd4(load4(a + i), load4(b + i), sums);
    else sums = madd4(load_part4(a + i, width - i), load_part4(b + i, width - i), sums);
  }
  return sum4(sums);
}

/** scores[j] = scale · (q · keys[j]); up to the next multiple of four they are LOWEST. */
APART void dots(float *scores, const float *q, const float *keys, size_t key_row, int count, int width, float scale) {
  int j = 0;
  for (; j + KEYS <= count; j += KEYS) dots_of(KEYS, scores + j, q, keys + j * key_row, key_row, width, scale);
  for (; j < count; j++) dots_of(1, scores + j, q, keys + j * key_row, key_row, width, scale);
  for (; j % 4 != 0; j++) scores[j] = LOWEST;
}

/** The largest of some numbers, a multiple of four of them. */
static float largest(const float *x, int length) {
  float high[LARGEST];
  UNROLLED for (size_t l = 0; l < LARGEST; l++) high[l] = LOWEST;
  int i = 0;
  for (; i + LARGEST <= length; i += LARGEST) {
    UNROLLED for (size_t l = 0; l < LARGEST; l++) high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
  }
  for (; i < length; i++) high[0] = x[i] > high[0] ? x[i] : high[0];
  UNROLLED for (size_t l = 1; l < LARGEST; l++) high[0] = high[l] > high[0] ? high[l] : high[0];
  return high[0];
}

/** Turns the scores of a row into their exponentials, and returns what divides them. Behind them are three more floats. */
APART float exponentials(float *scores, float *log_sum, int count) {
  const int padded = (count + 3) & ~3;
  for (int j = count; j < padded; j++) scores[j] = LOWEST;
  const float max = largest(scores, padded);
  for (int j = 0; j < padded; j++) scores[j] = exp1(scores[j] - max);
  four sums = {0};
  for (int j = 0; j < padded; j += 4) sums += load4(scores + j);
  const float sum = sum4(sums);
  *log_sum = max + log1(sum);
  return 1 / sum;
}

/** One head of a row: its keys and values lie `key_row` apart. */
INLINE void attend(float *out, float *log_sum, const float *q, const float *k, const float *v, float *scores, size_t key_row,
                   int count, int width, float scale) {
  dots(scores, q, k, key_row, count, width, scale);
  const float inverse = exponentials(scores, log_sum, count);
  multiply((struct sums){out, width, NULL, 0}, scores, count, v, key_row, 1, width, count);
  for (int i = 0; i < width; i++) out[i] *= inverse;
}

/** Numbers of one head in f32: words `row_words` apart become rows of `width`. */
static void widen(float *restrict to, const uint32_t *restrict from, size_t row_words, int count, int width) {
  const int half = width / 2;
  for (int row = 0; row < count; row++, from += row_words, to += width) {
    aliased *const bits = (aliased *)to;
    for (int j = 0; j < half; j++) bits[j] = from[j] << 16;
    for (int j = 0; j < half; j++) bits[half + j] = from[j] & 0xffff0000u;
  }
}

/** Rows and the keys that they see. */
struct seen {
  const int32_t *first, *position;
  int rows;
  /** The key that is at the beginning of what is handed over as keys. */
  int origin;
};

/** The first key that a row sees, and the first one after those. */
INLINE int key_begin(struct seen seen, int row) { return seen.first[row] - seen.origin; }
INLINE int key_end(struct seen seen, int row) { return key_begin(seen, row) + seen.position[row] + 1; }

/** How many rows from one on follow one another in a sequence, or in one with a window. */
APART int following(const int32_t *first, const int32_t *position, int most) {
  int rows = 1;
  for (; rows < most && position[rows] > 0; rows++) {
    const int step = first[rows] - first[rows - 1], grown = position[rows] - position[rows - 1];
    if (step < 0 || grown < 0 || step + grown != 1) break;
  }
  return rows;
}

/** The heads of one key head: queries lie `row` apart from token to token, keys and values `key_row`. */
struct group {
  size_t row, key_row;
  int heads, width;
  float scale;
};

INLINE struct group group_in(size_t row, size_t key_row, int heads, int width) {
  return (struct group){row, key_row, heads, width, 1 / sqrtf((float)width)};
}

INLINE size_t aligned(size_t floats) { return (floats + 15) & ~(size_t)15; }
/** Numbers of a part of the width: every fourth one. */
INLINE int part_of(int width, int part) { return (width - part + 3) / 4; }
/** Takes floats of the workspace. */
INLINE float *take(float **work, size_t floats) {
  float *const taken = *work;
  *work += aligned(floats);
  return taken;
}

/** Rows of a group, head after head of a token, as rows of `width`; `in_parts`: the numbers of each part side by side. */
APART void gather(float *restrict to, const float *restrict from, size_t row_size, int heads, int width, int tokens, bool in_parts) {
  for (int token = 0; token < tokens; token++, from += row_size) {
    for (int head = 0; head < heads; head++, to += width) {
      const float *const row = from + head * width;
      if (!in_parts) memcpy(to, row, width * sizeof *to);
      else {
        float *into = to;
        for (int part = 0; part < 4; part++) {
          for (int i = part; i < width; i += 4) *into++ = row[i];
        }
      }
    }
  }
}

/** scores = scale · rows · keys, with the rows in parts and a panel of keys; `parts` is workspace. */
APART void score_panel(float *scores, size_t score_row, const float *rows, const float *panel, float *parts, int count, int width,
                        float scale) {
  const size_t size = (size_t)count * PANEL;
  for (int part = 0, at = 0; part < 4; at += part_of(width, part), part++) {
    const struct sums sums = {parts + part * size, PANEL, NULL, 0};
    multiply(sums, rows + at, width, panel + part * PANEL, 4 * PANEL, count, PANEL, part_of(width, part));
  }
  for (int r = 0; r < count; r++, scores += score_row, parts += PANEL) {
    for (int i = 0; i < PANEL; i += WIDTH) {
      const vec even = load(parts + i) + load(parts + 2 * size + i), odd = load(parts + size + i) + load(parts + 3 * size + i);
      store(scores + i, (even + odd) * splat(scale));
    }
  }
}

/** The keys of a sequence in panels, from key `there[0]` on, of which there are `there[1]`. */
struct panels {
  float *at;
  aliased *there;
};

/** Brings keys `begin` to `end` into the panels. `keys` is the row of key 0. */
INLINE void extend(struct panels panels, const float *keys, struct group group, int begin, int end) {
  if (panels.there[1] == 0) panels.there[0] = begin;
  const int base = panels.there[0];
  for (int j = panels.there[1] / PANEL * PANEL; base + j < end; j += PANEL) {
    const int columns = least(end - base - j, PANEL);
    const float *const from = keys + (base + j) * group.key_row;
    pack_panel(panels.at + (size_t)j * group.width, from, group.key_row, true, columns, group.width);
  }
  panels.there[1] = end - base;
}

/** Workspace of the rows that run together. */
struct together {
  struct panels keys;
  float *queries, *attended, *parts, *values, *logs, *scores;
};

INLINE struct together workspace(float *work, int context, int width) {
  const size_t rows = TOGETHER;
  struct together w;
  aliased *const there = (aliased *)take(&work, 2);
  w.keys = (struct panels){take(&work, (size_t)(context + PANEL) * width), there};
  w.queries = take(&work, rows * width);
  w.attended = take(&work, rows * width);
  w.parts = take(&work, 4 * rows * PANEL);
  w.values = take(&work, PANEL_DEPTH * PANEL);
  w.logs = take(&work, rows);
  w.scores = work;
  return w;
}

/** Adds the values from one key to another that the heads of a token see. `scores` begins with key `from`. */
INLINE void add_values(float *attended, const float *scores, size_t score_row, int from, const float *v, struct group group,
                       int token, int begin, int end) {
  if (begin >= end) return;
  const size_t row = (size_t)token * group.heads;
  const struct sums sums = {attended + row * group.width, group.width, attended + row * group.width, group.width};
  multiply(sums, scores + row * score_row + (begin - from), score_row, v + begin * group.key_row, group.key_row, group.heads,
           group.width, end - begin);
}

/** `attend` for rows that follow one another. `k` and `v` are the rows of key 0. */
APART void attend_together(float *out, float *log_sum, size_t log_row, const float *q, const float *k, const float *v, float *work,
                           int context, size_t query_row, size_t key_row, int of_heads, int head_width, const int32_t *first,
                           const int32_t *position, int tokens, int origin) {
  const struct together w = workspace(work, context, head_width);
  const struct group group = group_in(query_row, key_row, of_heads, head_width);
  const struct seen seen = {first, position, tokens, origin};
  const int heads = group.heads, width = group.width, count = seen.rows * heads;
  const int low = key_begin(seen, 0), high = key_end(seen, seen.rows - 1);
  // Every row sees the keys from `late` to `early`.
  const int late = key_begin(seen, seen.rows - 1), early = key_end(seen, 0) > late ? key_end(seen, 0) : late;
  extend(w.keys, k, group, low, high);
  gather(w.queries, q, group.row, heads, width, seen.rows, true);
  const int begin = (low - (int)w.keys.there[0]) / PANEL * PANEL, from = (int)w.keys.there[0] + begin;
  const size_t row = (high - from + PANEL - 1) / PANEL * PANEL + APART_BY;
  for (int j = 0; from + j < high; j += PANEL) {
    const float *const panel = w.keys.at + (size_t)(begin + j) * width;
    score_panel(w.scores + j, row, w.queries, panel, w.parts, count, width, group.scale);
  }
  for (int r = 0; r < count; r++) {
    const int token = r / heads;
    float *const scores = w.scores + r * row + (key_begin(seen, token) - from);
    w.logs[r] = exponentials(scores, log_sum + token * log_row + r % heads, seen.position[token] + 1);
  }
  memset(w.attended, 0, (size_t)count * width * sizeof *out);
  for (int token = 0; token < seen.rows; token++) {
    add_values(w.attended, w.scores, row, from, v, group, token, key_begin(seen, token), least(late, key_end(seen, token)));
  }
  for (int k = late; k < early; k += PANEL_DEPTH) {
    const int depth = least(early - k, PANEL_DEPTH);
    for (int i = 0; i < width; i += PANEL) {
      const int columns = least(width - i, PANEL);
      float *const into = w.attended + i;
      pack_panel(w.values, v + k * group.key_row + i, group.key_row, false, columns, depth);
      multiply((struct sums){into, width, into, width}, w.scores + (k - from), row, w.values, PANEL, count, columns, depth);
    }
  }
  for (int token = 0; token < seen.rows; token++) {
    add_values(w.attended, w.scores, row, from, v, group, token, early, key_end(seen, token));
    for (int head = 0; head < heads; head++) {
      const float *const attended = w.attended + (size_t)(token * heads + head) * width;
      const float inverse = w.logs[token * heads + head];
      float *const to = out + token * group.row + head * width;
      for (int i = 0; i < width; i++) to[i] = attended[i] * inverse;
    }
  }
}

/** Whether so many rows of a sequence run together. */
static bool run_together(int rows, int heads) { return rows > 1 && rows * heads >= FEWEST && 2 * heads <= TOGETHER; }

/** The most keys of rows that follow one another. */
static int longest_of(const int32_t *first, const int32_t *position, int rows) {
  int longest = 0;
  for (int row = 0, run; row < rows; row += run) {
    run = following(first + row, position + row, rows - row);
    const int keys = first[row + run - 1] + position[row + run - 1] + 1 - first[row];
    if (keys > longest) longest = keys;
  }
  return longest;
}

/** The heads of q that a key head serves: the first one, and how many. */
INLINE int first_head(int key_head, int heads, int key_heads) { return (key_head * heads + key_heads - 1) / key_heads; }

INLINE struct group group_of(int key_head, int heads, int key_heads, int width, size_t key_row) {
  const int count = first_head(key_head + 1, heads, key_heads) - first_head(key_head, heads, key_heads);
  return group_in((size_t)heads * width, key_row, count, width);
}

/** Rows that follow one another, of one group. `k` and `v` are the rows of key `seen.origin`. */
INLINE void attend_run(float *out, float *log_sum, size_t log_row, const float *q, const float *k, const float *v, float *scores,
                       int context, struct group group, struct seen seen, bool together) {
  if (together) {
    attend_together(out, log_sum, log_row, q, k, v, scores, context, group.row, group.key_row, group.heads, group.width, seen.first,
                    seen.position, seen.rows, seen.origin);
    return;
  }
  for (int row = 0; row < seen.rows; row++) {
    const size_t keys = key_begin(seen, row) * group.key_row;
    for (int head = 0; head < group.heads; head++) {
      const size_t at = row * group.row + (size_t)head * group.width;
      attend(out + at, log_sum + row * log_row + head, q + at, k + keys, v + keys, scores, group.key_row, seen.position[row] + 1,
             group.width, group.scale);
    }
  }
}

WORTH(attentionOfHalves, numRows * numHeads * headWidth, 128)
void KERNEL(attentionOfHalves)(float *out, float *logSum, float *q, uint32_t *k, uint32_t *v, float *scores, float *work,
                               int32_t workLength, int32_t *first, int32_t *position, int32_t numRows, int32_t numHeads,
                               int32_t numKeyHeads, int32_t headWidth) {
  const size_t rowWords = (size_t)numKeyHeads * headWidth / 2;
  float *const values = work + workLength / 2;
  const int context = longest_of(first, position, numRows);
  for (int keyHead = 0; keyHead < numKeyHeads; keyHead++) {
    const struct group group = group_of(keyHead, numHeads, numKeyHeads, headWidth, headWidth);
    const int head = first_head(keyHead, numHeads, numKeyHeads);
    for (int row = 0, run; row < numRows; row += run) {
      run = following(first + row, position + row, numRows - row);
      const bool isTogether = run_together(run, group.heads);
      const int step = isTogether ? TOGETHER / group.heads : 1;
      workspace(scores, context, headWidth).keys.there[1] = 0;
      // Each row widens only what those before it have not.
      for (int at = row, widened = 0; at < row + run; at += step) {
        const struct seen seen = {first + at, position + at, least(step, row + run - at), first[row]};
        const int end = key_end(seen, seen.rows - 1);
        const size_t from = (size_t)(first[row] + widened) * rowWords + (size_t)keyHead * (headWidth / 2);
        const size_t to = (size_t)widened * headWidth;
        widen(work + to, k + from, rowWords, end - widened, headWidth);
        widen(values + to, v + from, rowWords, end - widened, headWidth);
        widened = end;
        const size_t place = at * group.row + (size_t)head * headWidth;
        attend_run(out + place, logSum + (size_t)at * numHeads + head, numHeads, q + place, work, values, scores, context, group,
                   seen, isTogether);
      }
    }
  }
}

WORTH(attentionForward, numRows * numHeads * headWidth, 128)
void KERNEL(attentionForward)(float *out, float *logSum, float *q, float *k, float *v, float *scores, int32_t *first,
                              int32_t *position, int32_t numRows, int32_t numHeads, int32_t numKeyHeads, int32_t headWidth) {
  const int context = longest_of(first, position, numRows);
  for (int keyHead = 0; keyHead < numKeyHeads; keyHead++, k += headWidth, v += headWidth) {
    const struct group group = group_of(keyHead, numHeads, numKeyHeads, headWidth, (size_t)numKeyHeads * headWidth);
    const int head = first_head(keyHead, numHeads, numKeyHeads);
    for (int row = 0, run; row < numRows; row += run) {
      run = following(first + row, position + row, numRows - row);
      const bool isTogether = run_together(run, group.heads);
      const int step = isTogether ? TOGETHER / group.heads : run;
      workspace(scores, context, headWidth).keys.there[1] = 0;
      for (int at = row; at < row + run; at += step) {
        const struct seen seen = {first + at, position + at, least(step, row + run - at), 0};
        const size_t place = at * group.row + (size_t)head * headWidth;
        attend_run(out + place, logSum + (size_t)at * numHeads + head, numHeads, q + place, k, v, scores, context, group, seen,
                   isTogether);
      }
    }
  }
}

/** Numbers of a part of the keys of one key head, and of the rows that run by. */
struct chunk {
  int begin, end;
  float *keyPanels, *valuePanels, *keys, *dKeys, *dValues;
  float *query, *dOut, *queryParts, *dOutParts, *dQuery, *parts, *scores, *dScores;
};

INLINE struct chunk chunk_in(float *work, int heads, int width) {
  const size_t all = (size_t)CHUNK * width, count = heads > TOGETHER ? heads : TOGETHER, rows = count * width;
  struct chunk c = {0};
  c.keyPanels = take(&work, all);
  c.valuePanels = take(&work, all);
  c.keys = take(&work, all);
  c.dKeys = take(&work, all);
  c.dValues = take(&work, all);
  c.query = take(&work, rows);
  c.dOut = take(&work, rows);
  c.queryParts = take(&work, rows);
  c.dOutParts = take(&work, rows);
  c.dQuery = take(&work, rows);
  c.parts = take(&work, 4 * count * PANEL);
  c.scores = take(&work, count * (CHUNK + APART_BY));
  c.dScores = take(&work, count * (CHUNK + APART_BY));
  return c;
}

/** Rows of one key head, side by side. */
APART void copy_rows(float *to, size_t to_row, const float *from, size_t from_row, int count, int width) {
  for (int row = 0; row < count; row++) memcpy(to + row * to_row, from + row * from_row, width * sizeof *to);
}

/** What rows that follow one another add to the gradients of a chunk's keys, and these to the rows'. */
INLINE void backward_rows(struct chunk c, float *dq, const float *dOut, const float *attended, const float *query,
                          const float *log_sum, size_t log_row, struct group group, struct seen seen) {
  const int heads = group.heads, width = group.width, count = seen.rows * heads;
  const int low = key_begin(seen, 0), high = key_end(seen, seen.rows - 1);
  const int begin = low > c.begin ? low : c.begin, end = least(high, c.end);
  if (begin >= end) return;
  gather(c.queryParts, query, group.row, heads, width, seen.rows, true);
  gather(c.dOutParts, dOut, group.row, heads, width, seen.rows, true);
  gather(c.query, query, group.row, heads, width, seen.rows, false);
  gather(c.dOut, dOut, group.row, heads, width, seen.rows, false);
  gather(c.dQuery, dq, group.row, heads, width, seen.rows, false);
  const size_t row = CHUNK + APART_BY;
  for (int j = (begin - c.begin) / PANEL * PANEL; c.begin + j < end; j += PANEL) {
    score_panel(c.scores + j, row, c.queryParts, c.keyPanels + (size_t)j * width, c.parts, count, width, group.scale);
    score_panel(c.dScores + j, row, c.dOutParts, c.valuePanels + (size_t)j * width, c.parts, count, width, 1);
  }
  for (int r = 0; r < count; r++) {
    const int token = r / heads, head = r % heads;
    const float *const of = attended + token * group.row + head * width;
    const float shared = dot(c.dOut + (size_t)r * width, of, width), log = log_sum[token * log_row + head];
    float *const scores = c.scores + r * row - c.begin, *const dScores = c.dScores + r * row - c.begin;
    const int from = key_begin(seen, token) > begin ? key_begin(seen, token) : begin, to = least(key_end(seen, token), end);
    for (int j = begin; j < least(from, end); j++) scores[j] = dScores[j] = 0;
    for (int j = from; j < to; j++) {
      const float p = exp1(scores[j] - log);
      scores[j] = p;
      dScores[j] = p * (dScores[j] - shared) * group.scale;
    }
    for (int j = to > begin ? to : begin; j < end; j++) scores[j] = dScores[j] = 0;
  }
  const int at = begin - c.begin, keys = end - begin;
  const size_t place = (size_t)at * width;
  multiply((struct sums){c.dQuery, width, c.dQuery, width}, c.dScores + at, row, c.keys + place, width, count, width, keys);
  float *const dKeys = c.dKeys + place, *const dValues = c.dValues + place;
  multiply_beside((struct sums){dKeys, width, dKeys, width}, c.dScores + at, row, c.query, width, keys, width, count);
  multiply_beside((struct sums){dValues, width, dValues, width}, c.scores + at, row, c.dOut, width, keys, width, count);
  for (int token = 0; token < seen.rows; token++) {
    memcpy(dq + token * group.row, c.dQuery + (size_t)token * heads * width, (size_t)heads * width * sizeof *dq);
  }
}

/** Vectors of a row that stay in registers. */
#define OUTER_VECTORS 4

/** rows[j] += weights[j] · x in some vectors of columns; of a partial one only `some` is there. */
INLINE void add_outer_vectors(const size_t vectors, const bool partial, lanes some, float *rows, size_t row,
                              const float *weights, const float *x, int count) {
  vec part[OUTER_VECTORS];
  UNROLLED for (size_t v = 0; v < vectors; v++) part[v] = partial ? load_part(x, some) : load(x + v * WIDTH);
  for (int j = 0; j < count; j++, rows += row) {
    const vec weight = splat(weights[j]);
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      float *const at = rows + v * WIDTH;
      if (partial) store_part(at, madd(weight, part[v], load_part(at, some)), some);
      else store(at, madd(weight, part[v], load(at)));
    }
  }
}

/** rows[j] += weights[j] · x. */
APART void add_outer(float *rows, size_t row, const float *weights, const float *x, int count, int width) {
  const int all = OUTER_VECTORS * WIDTH;
  int i = 0;
  for (; i + all <= width; i += all) {
    add_outer_vectors(OUTER_VECTORS, false, first_lanes(0), rows + i, row, weights, x + i, count);
  }
  for (; i + WIDTH <= width; i += WIDTH) add_outer_vectors(1, false, first_lanes(0), rows + i, row, weights, x + i, count);
  if (i < width) add_outer_vectors(1, true, first_lanes(width - i), rows + i, row, weights, x + i, count);
}

/** What rows add to the gradients of the keys that they see, one by one; sets the gradients of the rows. */
APART void backward_few(float *dq, float *dk, float *dv, const float *dOut, const float *attended, const float *query,
                        const float *key, const float *value, const float *log_sum, size_t log_row, float *scores,
                        size_t query_row, size_t key_row, int heads, int width, const int32_t *first, const int32_t *position,
                        int rows, float scale) {
  for (int row = 0; row < rows; row++) {
    const int count = position[row] + 1, padded = (count + 3) & ~3;
    const size_t keys = first[row] * key_row;
    float *const dScores = scores + padded;
    for (int head = 0; head < heads; head++) {
      const size_t at = row * query_row + (size_t)head * width;
      dots(scores, query + at, key + keys, key_row, count, width, scale);
      dots(dScores, dOut + at, value + keys, key_row, count, width, 1);
      const float shared = dot(dOut + at, attended + at, width), log = log_sum[row * log_row + head];
      for (int j = 0; j < padded; j++) {
        const float p = exp1(scores[j] - log);
        scores[j] = p;
        dScores[j] = p * (dScores[j] - shared) * scale;
      }
      multiply((struct sums){dq + at, width, NULL, 0}, dScores, count, key + keys, key_row, 1, width, count);
      add_outer(dk + keys, key_row, dScores, query + at, count, width);
      add_outer(dv + keys, key_row, scores, dOut + at, count, width);
    }
  }
}

WORTH(attentionBackward, numRows * numHeads * headWidth, 128)
void KERNEL(attentionBackward)(float *dq, float *dk, float *dv, float *dOut, float *attended, float *query, float *key,
                               float *value, float *logSum, float *scores, int32_t *first, int32_t *position,
                               int32_t numRows, int32_t numHeads, int32_t numKeyHeads, int32_t headWidth) {
  const size_t keyRow = (size_t)numKeyHeads * headWidth;
  struct chunk c = chunk_in(scores, (numHeads + numKeyHeads - 1) / numKeyHeads, headWidth);
  memset(dq, 0, (size_t)numRows * numHeads * headWidth * sizeof *dq);
  for (int keyHead = 0; keyHead < numKeyHeads; keyHead++) {
    const struct group group = group_of(keyHead, numHeads, numKeyHeads, headWidth, keyRow);
    const int head = first_head(keyHead, numHeads, numKeyHeads), step = group.heads < TOGETHER ? TOGETHER / group.heads : 1;
    for (int row = 0, run; row < numRows; row += run) {
      run = following(first + row, position + row, numRows - row);
      if (run <= FEW && run * headWidth <= FEW_NUMBERS) {
        const size_t at = row * group.row + (size_t)head * headWidth, of = (size_t)keyHead * headWidth;
        backward_few(dq + at, dk + of, dv + of, dOut + at, attended + at, query + at, key + of, value + of,
                     logSum + (size_t)row * numHeads + head, numHeads, scores, group.row, keyRow, group.heads, headWidth,
                     first + row, position + row, run, group.scale);
        continue;
      }
      const int end = first[row + run - 1] + position[row + run - 1] + 1;
      for (c.begin = first[row]; c.begin < end; c.begin = c.end) {
        c.end = least(c.begin + CHUNK, end);
        const int keys = c.end - c.begin;
        const size_t from = c.begin * keyRow + (size_t)keyHead * headWidth;
        for (int j = 0; j < keys; j += PANEL) {
          const int columns = least(keys - j, PANEL);
          pack_panel(c.keyPanels + (size_t)j * headWidth, key + from + j * keyRow, keyRow, true, columns, headWidth);
          pack_panel(c.valuePanels + (size_t)j * headWidth, value + from + j * keyRow, keyRow, true, columns, headWidth);
        }
        copy_rows(c.keys, headWidth, key + from, keyRow, keys, headWidth);
        copy_rows(c.dKeys, headWidth, dk + from, keyRow, keys, headWidth);
        copy_rows(c.dValues, headWidth, dv + from, keyRow, keys, headWidth);
        for (int at = row; at < row + run; at += step) {
          const struct seen seen = {first + at, position + at, least(step, row + run - at), 0};
          const size_t place = at * group.row + (size_t)head * headWidth;
          backward_rows(c, dq + place, dOut + place, attended + place, query + place, logSum + (size_t)at * numHeads + head,
                        numHeads, group, seen);
        }
        copy_rows(dk + from, keyRow, c.dKeys, headWidth, keys, headWidth);
        copy_rows(dv + from, keyRow, c.dValues, headWidth, keys, headWidth);
      }
    }
  }
}
