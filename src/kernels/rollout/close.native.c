/** The end of a tick, for lanes `from` to `to`, with the plain twin's bits (`close.ts`). Lanes for which there is nothing to do are passed over by sixteen. */
#include "../fours.native.h"

int32_t KERNEL(settleDead)(uint8_t *valid, float *reward, uint8_t *terminated, uint8_t *truncated, uint8_t *phase,
                           int32_t ready, int32_t from, int32_t to) {
  int dead = 0;
  for (int n = from; n < to;) {
    if (n + 16 <= to && wasm_i8x16_all_true(wasm_i8x16_eq(wasm_v128_load(phase + n), wasm_i8x16_splat(ready)))) {
      wasm_v128_store(valid + n, wasm_i8x16_splat(1));
      n += 16;
      continue;
    }
    for (const int stop = least(n + 16, to); n < stop; n++) {
      valid[n] = phase[n] == ready;
      if (valid[n]) continue;
      reward[n] = 0;
      terminated[n] = truncated[n] = 0;
      dead++;
    }
  }
  return dead;
}

void KERNEL(limitSteps)(uint8_t *truncated, int32_t *step, int32_t stepsMax, int32_t from, int32_t to) {
  for (int n = from; n < to;) {
    const int stop = least(n + 16, to);
    if (n + 16 <= to) {
      v128_t most = wasm_v128_load(step + n);
      UNROLLED for (int l = 4; l < 16; l += 4) most = wasm_i32x4_max(most, wasm_v128_load(step + n + l));
      if (!wasm_v128_any_true(wasm_i32x4_ge(most, wasm_i32x4_splat(stepsMax - 1)))) {
        n = stop;
        continue;
      }
    }
    for (; n < stop; n++) {
      if (step[n] + 1 >= stepsMax) truncated[n] = 1;
    }
  }
}

void KERNEL(closeRow)(uint32_t *restrict rowLane, uint32_t *restrict rowEpisode, int32_t *restrict rowStep,
                      float *restrict rowEpisodeReturn, uint32_t *restrict rowVersion, float *restrict rowNextValue,
                      int32_t *restrict lanesStep, double *restrict lanesEpisodeReturn, uint8_t *restrict phase,
                      uint32_t *restrict lanesLane, uint32_t *restrict lanesEpisode, float *restrict reward,
                      uint8_t *restrict terminated, uint8_t *restrict truncated, uint8_t *restrict valid,
                      int32_t version, int32_t endedPhase, int32_t from, int32_t to) {
  int n = from;
  for (; n + 4 <= to; n += 4) {
    const ints acted = (ints){valid[n], valid[n + 1], valid[n + 2], valid[n + 3]} != 0;
    const ints step = (ints)load((float *)lanesStep + n);
    store((float *)rowLane + n, load((float *)lanesLane + n));
    store((float *)rowEpisode + n, load((float *)lanesEpisode + n));
    store((float *)rowVersion + n, (four)(ints){version, version, version, version});
    store(rowNextValue + n, splat(0));
    store((float *)rowStep + n, (four)(step | ~acted)); // −1 where the lane did not act.
    store((float *)lanesStep + n, (four)(step - acted)); // The mask is −1 where it did.
    // To add 0 leaves a sum as it is: one that began at 0 is never −0.
    four_doubles sum;
    memcpy(&sum, lanesEpisodeReturn + n, sizeof sum);
    sum += doubles4(keep4(acted, load(reward + n)));
    memcpy(lanesEpisodeReturn + n, &sum, sizeof sum);
    store(rowEpisodeReturn + n, keep4(acted, __builtin_convertvector(sum, four)));
  }
  for (; n < to; n++) {
    const bool acted = valid[n] != 0;
    rowLane[n] = lanesLane[n];
    rowEpisode[n] = lanesEpisode[n];
    rowVersion[n] = version;
    rowNextValue[n] = 0;
    rowStep[n] = acted ? lanesStep[n] : -1;
    lanesStep[n] += acted;
    if (acted) lanesEpisodeReturn[n] += reward[n];
    rowEpisodeReturn[n] = acted ? (float)lanesEpisodeReturn[n] : 0;
  }
  for (n = from; n < to; n++) {
    const bool ended = ((terminated[n] | truncated[n]) != 0) & (valid[n] != 0);
    const uint8_t now = phase[n];
    phase[n] = ended ? (uint8_t)endedPhase : now;
  }
}

/** As in the plain twin's `Listed`. */
enum { GOES_ON, TRUNCATED, ENDED, ANY };

INLINE bool is_wanted(int wanted, bool terminated, bool truncated) {
  if (wanted == ANY) return true;
  if (wanted == ENDED) return terminated | truncated;
  return !terminated && truncated == (wanted != GOES_ON);
}

int32_t KERNEL(listRows)(uint32_t *listRow, float *listObservation, int32_t listObservationElementBytes,
                         float *observation, uint8_t *terminated, uint8_t *truncated, uint8_t *valid, int32_t wanted,
                         int32_t length, int32_t firstRow, int32_t width, int32_t from, int32_t to) {
  int count = length;
  for (int n = from; n < to;) {
    if ((wanted == TRUNCATED || wanted == ENDED) && n + 16 <= to) {
      // Truncated rows are ended ones: sixteen of which none has ended hold neither.
      if (!wasm_v128_any_true(wasm_v128_load(terminated + n) | wasm_v128_load(truncated + n))) {
        n += 16;
        continue;
      }
    }
    for (const int stop = least(n + 16, to); n < stop; n++) {
      if (valid[n] == 0 || !is_wanted(wanted, terminated[n] != 0, truncated[n] != 0)) continue;
      listRow[count] = firstRow + n;
      if (listObservationElementBytes == 1) {
        memcpy((uint8_t *)listObservation + (size_t)count * width, (uint8_t *)observation + (size_t)n * width, width);
      } else copy4(listObservation + (size_t)count * width, observation + (size_t)n * width, width);
      count++;
    }
  }
  return count;
}

void KERNEL(completeNextValue)(float *restrict previousNextValue, float *restrict value, uint8_t *restrict previousTerminated,
                               uint8_t *restrict previousTruncated, uint8_t *restrict previousValid, int32_t from,
                               int32_t to) {
  for (int n = from; n < to; n++) {
    const bool wentOn = ((previousTerminated[n] | previousTruncated[n]) == 0) & (previousValid[n] != 0);
    const float now = value[n], before = previousNextValue[n];
    previousNextValue[n] = wentOn ? now : before;
  }
}
