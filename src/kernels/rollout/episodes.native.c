/** Accounts for finished episodes with the plain twin's bits (`episodes.ts`): sixteen rows are passed over at once where none ended. */
#include "../vector.native.h"

INLINE double mean(const double *x, int length) {
  double sum = 0;
  for (int i = 0; i < length; i++) sum += x[i];
  return sum / length;
}

int32_t KERNEL(accountEpisodes)(double *totals, double *recent, double *recentSteps, float *episodeReturn, int32_t *step,
                                uint8_t *terminated, uint8_t *truncated, uint8_t *valid, double finished,
                                double threshold, int32_t numRows, int32_t recentLength) {
  int count = 0, solvedRow = -1, place = (int)((int64_t)finished % recentLength);
  double returns = 0, lengths = 0;
  for (int row = 0; row < numRows;) {
    if (row + 16 <= numRows && !wasm_v128_any_true(wasm_v128_load(terminated + row) | wasm_v128_load(truncated + row))) {
      row += 16;
      continue;
    }
    for (const int stop = least(row + 16, numRows); row < stop; row++) {
      if (valid[row] == 0 || (terminated[row] | truncated[row]) == 0) continue;
      const double length = step[row] + 1;
      recent[place] = episodeReturn[row];
      recentSteps[place] = length;
      place = place + 1 == recentLength ? 0 : place + 1;
      count++;
      returns += episodeReturn[row];
      lengths += length;
      const bool isFull = finished + count >= recentLength;
      if (solvedRow < 0 && isFull && mean(recent, recentLength) >= threshold) solvedRow = row;
    }
  }
  totals[0] = count;
  totals[1] = returns;
  totals[2] = lengths;
  return solvedRow;
}
