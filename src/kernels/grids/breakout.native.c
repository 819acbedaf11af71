/** Breakout of MinAtar; the plain twin `breakout.ts` has the rules. */
#include "grids.native.h"

#define CHANNELS 4
#define ROW (SIDE * SIDE * CHANNELS)
#define ALL_BRICKS 0x3fffffff

SMALL void show(uint8_t *at, int ballX, int ballY, int trailX, int trailY, int paddle, uint32_t bricks) {
  clear_bytes(at, ROW);
  // Four fields a vector, a brick in the last byte of each; there are none in bits 30 and 31.
  const ints bits = {1, 2, 4, 8};
  UNROLLED for (int k = 0; k < 32; k += 4) {
    const ints some = (ints)wasm_i32x4_splat((int32_t)(bricks >> k));
    wasm_v128_store(at + CHANNELS * (SIDE + k), (v128_t)(((some & bits) == bits) & (1 << 24)));
  }
  at[CHANNELS * (SIDE * LAST + paddle)] = 1;
  at[CHANNELS * (SIDE * ballY + ballX) + 1] = 1;
  at[CHANNELS * (SIDE * trailY + trailX) + 2] = 1;
}

void KERNEL(breakoutReset)(uint8_t *ballX, uint8_t *ballY, uint8_t *direction, uint8_t *trailX, uint8_t *trailY,
                           uint8_t *paddle, uint32_t *bricks, uint8_t *strike, uint8_t *lastAction, uint8_t *observation,
                           uint32_t *lane, uint32_t *episode, uint32_t *rows, int32_t key0, int32_t key1, int32_t count) {
  for (int i = 0; i < count; i += 4) {
    uints episodes = {0}, lanes = {0};
    UNROLLED for (int l = 0; l < 4; l++) {
      const size_t row = rows[l < count - i ? i + l : i];
      episodes[l] = episode[row];
      lanes[l] = lane[row];
    }
    uints drawn = first_words((uints){0}, episodes, lanes, (uints){0}, key0, key1);
    KEPT_LOOP for (int l = 0; l < 4 && i + l < count; l++, drawn = rotated(drawn)) {
      const size_t n = rows[i + l];
      const bool isLeft = drawn[0] < 0x80000000;
      const int x = isLeft ? 0 : LAST;
      ballX[n] = trailX[n] = x;
      ballY[n] = trailY[n] = 3;
      direction[n] = isLeft ? 2 : 3;
      paddle[n] = 4;
      bricks[n] = ALL_BRICKS;
      strike[n] = lastAction[n] = 0;
      show(observation + ROW * n, x, 3, x, 3, 4, ALL_BRICKS);
    }
  }
}

void KERNEL(breakoutStep)(uint8_t *restrict ballX, uint8_t *restrict ballY, uint8_t *restrict direction,
                          uint8_t *restrict trailX, uint8_t *restrict trailY, uint8_t *restrict paddle,
                          uint32_t *restrict bricks, uint8_t *restrict strike, uint8_t *restrict lastAction,
                          uint8_t *restrict observation, float *restrict reward, uint8_t *restrict terminated,
                          int32_t *restrict action, uint32_t *restrict lane, uint32_t *restrict episode,
                          int32_t *restrict step, int32_t sticky, int32_t key0, int32_t key1, int32_t from, int32_t to) {
  for (int first = from; first < to; first += 4) {
    uints drawn = {0};
    if (sticky > 0) drawn = draw4(lane, episode, step, STREAM_STEP, first, to, key0, key1);
    KEPT_LOOP for (int n = first; n < first + 4 && n < to; n++, drawn = rotated(drawn)) {
      const int x = ballX[n], y = ballY[n];
      uint8_t *seen = observation + (size_t)ROW * n;
      reward[n] = 0;
      if (y == LAST) {
        show(seen, x, y, trailX[n], trailY[n], paddle[n], bricks[n]);
        continue;
      }
      const int act = UPPER(drawn[0]) < sticky ? lastAction[n] : action[n];
      lastAction[n] = act;
      int at = paddle[n];
      at = act == 1 ? (at > 0 ? at - 1 : 0) : act == 2 ? (at < LAST ? at + 1 : LAST) : at;
      int turned = direction[n];
      int nextX = x + (turned == 1 || turned == 2 ? 1 : -1), nextY = y + (turned < 2 ? -1 : 1);
      if (nextX < 0 || nextX > LAST) {
        nextX = x;
        turned ^= 1;
      }
      uint32_t left = bricks[n];
      const uint32_t place = SIDE * (nextY - 1) + nextX;
      bool hasStruck = false;
      if (nextY < 0) {
        nextY = 0;
        turned ^= 3;
      } else if (nextY >= 1 && nextY <= 3 && (left >> place & 1)) {
        hasStruck = true;
        if (strike[n] == 0) {
          reward[n] = 1;
          left ^= 1u << place;
          nextY = y;
          turned ^= 3;
        }
      } else if (nextY == LAST) {
        if (left == 0) left = ALL_BRICKS;
        if (x == at) {
          nextY = y;
          turned ^= 3;
        } else if (nextX == at) {
          nextY = y;
          turned ^= 2;
        } else terminated[n] = 1;
      }
      ballX[n] = nextX;
      ballY[n] = nextY;
      direction[n] = turned;
      trailX[n] = x;
      trailY[n] = y;
      paddle[n] = at;
      bricks[n] = left;
      strike[n] = hasStruck;
      show(seen, nextX, nextY, x, y, at, left);
    }
  }
}
