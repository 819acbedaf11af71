/** Sums and moments in f64, over the rows in interleaved sums; the plain twin `moments.ts` has the formulas. */
#include "../fours.native.h"

void KERNEL(meanAndDeviation)(double *moments, float *x, int32_t numRows) {
  four_doubles sum = {0}, squares = {0};
  for (int i = 0; i < numRows; i += 4) sum += doubles4(load_part(x + i, numRows - i));
  const double mean = sum_doubles(sum) / numRows;
  for (int i = 0; i < numRows; i += 4) {
    const four_doubles apart = keep_doubles(first4(numRows - i), doubles4(load_part(x + i, numRows - i)) - mean);
    squares += apart * apart;
  }
  moments[0] = mean;
  moments[1] = numRows > 1 ? sqrt(sum_doubles(squares) / (numRows - 1)) : 0;
}

/** A mask of the flags that are set, of those that are left. */
INLINE ints flags4(const uint8_t *at, int left) {
  return (ints){at[0], left > 1 ? at[1] : 0, left > 2 ? at[2] : 0, left > 3 ? at[3] : 0} != 0;
}

double KERNEL(explainedVariance)(float *value, float *returns, uint8_t *valid, int32_t numRows) {
  int count = 0;
  two sumReturn = {0}, sumError = {0}, varianceReturn = {0}, varianceError = {0};
  for (int i = 0; i < numRows; i++) count += valid[i] != 0;
  for (int i = 0; i < numRows; i += 4) {
    const int left = numRows - i;
    const ints row = flags4(valid + i, left);
    const four_doubles given = doubles4(keep4(row, load_part(returns + i, left)));
    sumReturn = add_doubles(sumReturn, given);
    sumError = add_doubles(sumError, given - doubles4(keep4(row, load_part(value + i, left))));
  }
  const double meanReturn = sum2(sumReturn) / count, meanError = sum2(sumError) / count;
  for (int i = 0; i < numRows; i += 4) {
    const int left = numRows - i;
    const ints row = flags4(valid + i, left);
    const four_doubles given = doubles4(load_part(returns + i, left)), values = doubles4(load_part(value + i, left));
    const four_doubles apart = keep_doubles(row, given - meanReturn), error = keep_doubles(row, given - values - meanError);
    varianceReturn = add_doubles(varianceReturn, apart * apart);
    varianceError = add_doubles(varianceError, error * error);
  }
  const double ofReturn = sum2(varianceReturn);
  return ofReturn == 0 ? __builtin_nan("") : 1 - sum2(varianceError) / ofReturn;
}
