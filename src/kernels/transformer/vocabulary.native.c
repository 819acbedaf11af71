/** The distribution over a vocabulary; the plain twin `vocabulary.ts` says what is computed, in steps of 64 logits. */
#include "../math.native.h"

#define VOCABULARY_STEP 64
#define LOWEST -1e30f

/** Some logits over the temperature, up to the next multiple of four LOWEST. How many there then are. */
INLINE int scaled(float *restrict into, const float *restrict logits, int count, float inverse) {
  for (int i = 0; i < count; i++) into[i] = logits[i] * inverse;
  for (; count % 4 != 0; count++) into[count] = LOWEST;
  return count;
}

WORTH(sumVocabulary, numRows * count, 512)
void KERNEL(sumVocabulary)(float *max, float *sum, float *weighted, float *targetLogit, float *logits, int32_t *target,
                           float inverseTemperature, int32_t numRows, int32_t firstToken, int32_t count) {
  for (int row = 0; row < numRows; row++, logits += count) {
    float m = LOWEST, s = 0, w = 0;
    if (firstToken > 0) m = max[row], s = sum[row], w = weighted[row];
    for (int from = 0; from < count; from += VOCABULARY_STEP) {
      float x[VOCABULARY_STEP], e[VOCABULARY_STEP], high[16];
      const int part = scaled(x, logits + from, least(count - from, VOCABULARY_STEP), inverseTemperature);
      for (int l = 0; l < 16; l++) high[l] = m;
      int i = 0;
      for (; i + 16 <= part; i += 16) {
        for (int l = 0; l < 16; l++) high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
      }
      for (; i < part; i++) high[0] = x[i] > high[0] ? x[i] : high[0];
      float higher = high[0];
      for (int l = 1; l < 16; l++) higher = high[l] > higher ? high[l] : higher;
      const float shrink = exp1(m - higher);
      w = shrink * (w + (m - higher) * s);
      s *= shrink;
      m = higher;
      for (i = 0; i < part; i++) {
        x[i] -= m;
        e[i] = exp1(x[i]);
      }
      four sums = {0}, products = {0};
      for (i = 0; i < part; i += 4) {
        sums += load4(e + i);
        products = madd4(load4(e + i), load4(x + i), products);
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
      const float pull = __builtin_fmaf(byEntropy, logp + h, byLogprob);
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
    for (int from = 0; from < vocabularySize && cumulative <= threshold; from += VOCABULARY_STEP) {
      float e[VOCABULARY_STEP];
      const int part = scaled(e, logits + from, least(vocabularySize - from, VOCABULARY_STEP), inverseTemperature);
      for (int i = 0; i < part; i++) e[i] = exp1(e[i] - max[row]);
      for (int i = 0; i < part && cumulative <= threshold; i++) {
        if (e[i] > 0) chosen = from + i;
        cumulative += (double)e[i];
      }
    }
    token[row] = chosen;
    targetLogit[row] = logits[chosen] * inverseTemperature;
  }
}
