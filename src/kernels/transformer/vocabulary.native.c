/** The distribution over a vocabulary; the plain twin `vocabulary.ts` says what is computed, in steps of 64 logits. */
#include "../math.native.h"

#define VOCABULARY_STEP 64
#define LOWEST -1e30f

/** Logits that are taken together. */
#ifdef __wasm__
#define TOGETHER 4
#else
#define TOGETHER 16
#endif

/** Some logits over the temperature, up to TOGETHER; where there are fewer, the others are LOWEST. */
INLINE void scale_part(float into[TOGETHER], const float *logits, int left, float inverse) {
  if (left >= TOGETHER) {
    UNROLLED for (size_t l = 0; l < TOGETHER; l++) into[l] = logits[l] * inverse;
  } else {
    UNROLLED for (size_t l = 0; l < TOGETHER; l++) into[l] = (int)l < left ? logits[l] * inverse : LOWEST;
  }
}

WORTH(sumVocabulary, numRows * count, 512)
void KERNEL(sumVocabulary)(float *max, float *sum, float *weighted, float *targetLogit, float *logits, int32_t *target,
                           float inverseTemperature, int32_t numRows, int32_t firstToken, int32_t count) {
  for (int row = 0; row < numRows; row++, logits += count) {
    float m = LOWEST, s = 0, w = 0;
    if (firstToken > 0) m = max[row], s = sum[row], w = weighted[row];
    for (int from = 0; from < count; from += VOCABULARY_STEP) {
      const int part = least(count - from, VOCABULARY_STEP);
      float high[TOGETHER], x[TOGETHER], e[TOGETHER];
      UNROLLED for (size_t l = 0; l < TOGETHER; l++) high[l] = m;
      for (int i = 0; i < part; i += TOGETHER) {
        scale_part(x, logits + from + i, part - i, inverseTemperature);
        UNROLLED for (size_t l = 0; l < TOGETHER; l++) high[l] = x[l] > high[l] ? x[l] : high[l];
      }
      float higher = high[0];
      UNROLLED for (size_t l = 1; l < TOGETHER; l++) higher = high[l] > higher ? high[l] : higher;
      const float shrink = exp1(m - higher);
      w = shrink * (w + (m - higher) * s);
      s *= shrink;
      m = higher;
      four sums = {0}, products = {0};
      for (int i = 0; i < part; i += TOGETHER) {
        scale_part(x, logits + from + i, part - i, inverseTemperature);
        UNROLLED for (size_t l = 0; l < TOGETHER; l++) {
          x[l] -= m;
          e[l] = exp1(x[l]);
        }
        UNROLLED for (size_t l = 0; l < TOGETHER; l += 4) {
          sums += load4(e + l);
          products = madd4(load4(e + l), load4(x + l), products);
        }
      }
      s += sum4(sums);
      w += sum4(products);
    }
    max[row] = m, sum[row] = s, weighted[row] = w;
    const int chosen = target[row] - firstToken;
    if (chosen >= 0 && chosen < count) targetLogit[row] = logits[chosen] * inverseTemperature;
  }
}

WORTH(vocabularyBackward, numRows * count, 512)
void KERNEL(vocabularyBackward)(float *restrict logits, float *restrict dLogprob, float *restrict dEntropy,
                                float *restrict entropy, float *restrict max, float *restrict sum,
                                int32_t *restrict target, float inverseTemperature, int32_t numRows, int32_t firstToken,
                                int32_t count) {
  for (int row = 0; row < numRows; row++, logits += count) {
    const float m = max[row], logSum = log1(sum[row]), h = entropy[row];
    const float byLogprob = dLogprob[row], byEntropy = dEntropy[row];
    for (int i = 0; i < count; i++) {
      const float logp = logits[i] * inverseTemperature - m - logSum;
      const float pull = madd1(byEntropy, logp + h, byLogprob);
      logits[i] = -(exp1(logp) * pull) * inverseTemperature;
    }
    const int chosen = target[row] - firstToken;
    if (chosen >= 0 && chosen < count) logits[chosen] += byLogprob * inverseTemperature;
  }
}

WORTH(sampleVocabulary, numRows * vocabularySize, 512)
void KERNEL(sampleVocabulary)(int32_t *token, float *targetLogit, float *logits, float *max, float *sum, float *uniform,
                              float inverseTemperature, int32_t numRows, int32_t vocabularySize) {
  for (int row = 0; row < numRows; row++, logits += vocabularySize) {
    const double threshold = (double)uniform[row] * (double)sum[row];
    double cumulative = 0;
    int chosen = 0;
    for (int i = 0; i < vocabularySize && cumulative <= threshold; i += TOGETHER) {
      float e[TOGETHER];
      scale_part(e, logits + i, vocabularySize - i, inverseTemperature);
      UNROLLED for (size_t l = 0; l < TOGETHER; l++) e[l] = exp1(e[l] - max[row]);
      UNROLLED for (size_t l = 0; l < TOGETHER; l++) {
        if (cumulative > threshold) break;
        if (e[l] > 0) chosen = i + l;
        cumulative += (double)e[l];
        IN_ORDER(cumulative); // A branch: to choose among both outcomes each time takes longer.
      }
    }
    token[row] = chosen;
    targetLogit[row] = logits[chosen] * inverseTemperature;
  }
}

BEYOND(evaluateVocabulary)
void KERNEL(evaluateVocabulary)(float *restrict logprob, float *restrict entropy, float *restrict max, float *restrict sum,
                                float *restrict weighted, float *restrict targetLogit, int32_t numRows) {
  for (int row = 0; row < numRows; row++) {
    const float logSum = log1(sum[row]);
    logprob[row] = targetLogit[row] - max[row] - logSum;
    entropy[row] = logSum - weighted[row] / sum[row];
  }
}

BEYOND(modeOfVocabulary)
void KERNEL(modeOfVocabulary)(int32_t *token, float *targetLogit, float *logits, float inverseTemperature, int32_t numRows,
                              int32_t vocabularySize) {
  for (int row = 0; row < numRows; row++, logits += vocabularySize) {
    int best = 0;
    float highest = logits[0];
    for (int j = 1; j < vocabularySize; j++) {
      if (logits[j] > highest) {
        best = j;
        highest = logits[j];
        IN_ORDER(best); // A branch, as above.
      }
    }
    token[row] = best;
    targetLogit[row] = highest * inverseTemperature;
  }
}
