/**
 * Categorical distributions, four rows at a time, in f32, shifted by the segment's maximum; the plain twin `categorical.ts` has the
 * formulas. A logprob is (z − max) − log Σ exp(z − max) by the same operations in every kernel, so what was sampled and what is
 * evaluated have the same bits.
 */
#include "../fours.native.h"

void KERNEL(maskLogits)(float *restrict logits, uint8_t *restrict mask, int32_t numRows, int32_t numLogits, int32_t from) {
  mask += (size_t)from * numLogits;
  for (int i = 0; i < numRows * numLogits; i++) {
    const float given = logits[i];
    logits[i] = mask[i] != 0 ? given : -1e9f;
  }
}

/** The largest logit of each row's segment. */
INLINE four maximum(const float *z, struct places rows, int size) {
  four max = gather4(z, rows);
  KEPT_LOOP for (int j = 1; j < size; j++) max = max4(max, gather4(z + j, rows));
  return max;
}

INLINE four sum_exp(const float *z, struct places rows, int size, four max) {
  four total = {0};
  KEPT_LOOP for (int j = 0; j < size; j++) total += exp4(gather4(z + j, rows) - max);
  return total;
}

INLINE void sample(int row, int left, int32_t *action, float *logprob, const float *z, const float *uniform,
                   const int32_t *sizes, int numChoices, int numLogits) {
  const struct places rows = rows_at(numLogits, left), choices = rows_at(numChoices, left);
  four sum = {0};
  action += (size_t)row * numChoices;
  uniform += (size_t)row * numChoices;
  z += (size_t)row * numLogits;
  for (int c = 0; c < numChoices; z += sizes[c++]) {
    const int size = sizes[c];
    const four max = maximum(z, rows, size), total = sum_exp(z, rows, size, max);
    const four threshold = gather4(uniform + c, choices) * total;
    four cumulative = {0}, candidate = gather4(z, rows), picked = candidate;
    ints chosen = {0};
    KEPT_LOOP for (int j = 1; j < size; j++) {
      cumulative += exp4(candidate - max);
      const ints passed = cumulative <= threshold;
      candidate = gather4(z + j, rows);
      picked = select4(passed, candidate, picked);
      chosen -= passed; // The mask is −1 where it is set.
    }
    scatter4((float *)action + c, numChoices, (four)chosen, left);
    sum += picked - max - log4(total);
  }
  store_part(logprob + row, sum, left);
}

void KERNEL(categoricalSample)(int32_t *action, float *logprob, float *logits, float *uniform, int32_t *sizes,
                               int32_t numRows, int32_t numChoices, int32_t numLogits, int32_t from) {
  action += (size_t)from * numChoices;
  BY_FOURS(sample, numRows, action, logprob + from, logits, uniform, sizes, numChoices, numLogits);
}

INLINE void mode(int row, int left, int32_t *action, float *logprob, const float *z, const int32_t *sizes, int numChoices,
                 int numLogits) {
  const struct places rows = rows_at(numLogits, left);
  four sum = {0};
  action += (size_t)row * numChoices;
  z += (size_t)row * numLogits;
  for (int c = 0; c < numChoices; z += sizes[c++]) {
    ints best = {0};
    four max = gather4(z, rows);
    KEPT_LOOP for (int j = 1; j < sizes[c]; j++) {
      const four candidate = gather4(z + j, rows);
      const ints better = candidate > max;
      max = select4(better, candidate, max);
      best = (best & ~better) | (better & j);
    }
    scatter4((float *)action + c, numChoices, (four)best, left);
    sum -= log4(sum_exp(z, rows, sizes[c], max));
  }
  store_part(logprob + row, sum, left);
}

void KERNEL(categoricalMode)(int32_t *action, float *logprob, float *logits, int32_t *sizes, int32_t numRows,
                             int32_t numChoices, int32_t numLogits, int32_t from) {
  action += (size_t)from * numChoices;
  BY_FOURS(mode, numRows, action, logprob + from, logits, sizes, numChoices, numLogits);
}

INLINE void evaluate(int row, int left, float *logprob, float *entropy, const int32_t *action, const float *z,
                     const int32_t *sizes, int numChoices, int numLogits) {
  const struct places rows = rows_at(numLogits, left), choices = rows_at(numChoices, left);
  four sum = {0}, entropies = {0};
  action += (size_t)row * numChoices;
  z += (size_t)row * numLogits;
  for (int c = 0; c < numChoices; z += sizes[c++]) {
    const int size = sizes[c];
    const four max = maximum(z, rows, size);
    const ints chosen = gather_ints(action + c, choices);
    four picked = gather4(z, rows), total = {0}, weighted = {0};
    KEPT_LOOP for (int j = 0; j < size; j++) {
      const four candidate = gather4(z + j, rows), shifted = candidate - max, e = exp4(shifted);
      total += e;
      weighted += e * shifted;
      picked = select4(chosen == j, candidate, picked);
    }
    const four logTotal = log4(total);
    sum += picked - max - logTotal;
    entropies += logTotal - weighted / total;
  }
  store_part(logprob + row, sum, left);
  store_part(entropy + row, entropies, left);
}

void KERNEL(categoricalEvaluate)(float *logprob, float *entropy, int32_t *action, float *logits, int32_t *sizes,
                                 int32_t numRows, int32_t numChoices, int32_t numLogits, int32_t from) {
  action += (size_t)from * numChoices;
  BY_FOURS(evaluate, numRows, logprob, entropy, action, logits, sizes, numChoices, numLogits);
}

INLINE void backward(int row, int left, float *dz, const float *dLogprob, const float *dEntropy, const int32_t *action,
                     const float *z, const int32_t *sizes, int numChoices, int numLogits) {
  const struct places rows = rows_at(numLogits, left), choices = rows_at(numChoices, left);
  const four byLogprob = load_part(dLogprob + row, left), byEntropy = load_part(dEntropy + row, left);
  action += (size_t)row * numChoices;
  z += (size_t)row * numLogits;
  dz += (size_t)row * numLogits;
  for (int c = 0; c < numChoices; c++) {
    const int size = sizes[c];
    const four max = maximum(z, rows, size);
    const ints chosen = gather_ints(action + c, choices);
    four total = {0}, weighted = {0};
    KEPT_LOOP for (int j = 0; j < size; j++) {
      const four shifted = gather4(z + j, rows) - max, e = exp4(shifted);
      total += e;
      weighted += e * shifted;
    }
    const four perTotal = 1 / total, mean = weighted * perTotal; // log p + H = (z − max) − Σ p (z − max).
    KEPT_LOOP for (int j = 0; j < size; j++) {
      const four shifted = gather4(z + j, rows) - max, p = exp4(shifted) * perTotal;
      const four hit = keep4(chosen == j, splat(1));
      scatter4(dz + j, numLogits, byLogprob * (hit - p) - byEntropy * p * (shifted - mean), left);
    }
    z += size;
    dz += size;
  }
}

void KERNEL(categoricalBackward)(float *dLogits, float *dLogprob, float *dEntropy, int32_t *action, float *logits,
                                 int32_t *sizes, int32_t numRows, int32_t numChoices, int32_t numLogits, int32_t from) {
  action += (size_t)from * numChoices;
  BY_FOURS(backward, numRows, dLogits, dLogprob, dEntropy, action, logits, sizes, numChoices, numLogits);
}
