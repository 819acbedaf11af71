/** The beginning of steps, with the plain twin's bits (`begin.ts`). */
#include "../vector.native.h"

int32_t KERNEL(listPhase)(uint32_t *rows, uint8_t *phase, int32_t lowest, int32_t from, int32_t to) {
  int count = 0, n = from;
  for (; n + 16 <= to; n += 16) {
    uint32_t bits = wasm_i8x16_bitmask(wasm_u8x16_ge(wasm_v128_load(phase + n), wasm_u8x16_splat(lowest)));
    for (; bits != 0; bits &= bits - 1) rows[count++] = n + __builtin_ctz(bits);
  }
  for (; n < to; n++) {
    if (phase[n] >= lowest) rows[count++] = n;
  }
  return count;
}

void KERNEL(clearFlags)(uint8_t *terminated, uint8_t *truncated, int32_t from, int32_t to) {
  memset(terminated + from, 0, to - from);
  memset(truncated + from, 0, to - from);
}
