/** Breakout of MinAtar; the plain twin `breakout.ts` has the rules. */
#include "grids.native.h"

#define CHANNELS 4
#define ROW (SIDE * SIDE * CHANNELS)
#define ALL_BRICKS 0x3fffffff

INLINE void show(uint8_t *at, int ballX, int ballY, int trailX, int trailY, int paddle, uint32_t bricks) {
  clear_bytes(at, ROW);
  // Four fields a vector, a brick in the last byte of each; there are none in bits 30 and 31.
  const uints bits = {1, 2, 4, 8}, last = {1 << 24, 1 << 24, 1 << 24, 1 << 24};
  UNROLLED for (int k = 0; k < 32; k += 4) {
    const uint32_t four = bricks >> k;
    const uints some = (uints){four, four, four, four} & bits;
    *(sixteen *)(at + CHANNELS * (SIDE + k)) = (sixteen)((uints)(some == bits) & last);
  }
  at[CHANNELS * (SIDE * LAST + paddle)] = 1;
  at[CHANNELS * (SIDE * ballY + ballX) + 1] = 1;
  at[CHANNELS * (SIDE * trailY + trailX) + 2] = 1;
}

void KERNEL(breakoutReset)(uint8_t *ballX, uint8_t *ballY, uint8_t *direction, uint8_t *trailX, uint8_t *trailY,
                           uint8_t *paddle, uint32_t *bricks, uint8_t *strike, uint8_t *lastAction, uint8_t *observation,
                           uint32_t *lane, uint32_t *episode, uint32_t *rows, int32_t key0, int32_t key1, int32_t count) {
  for (int first = 0; first < count; first += MANY) {
    many drawn = draw_resets(lane, episode, rows, first, count, key0, key1).of[0];
    KEPT_LOOP for (int i = first; i < first + MANY && i < count; i++, drawn = rotated(drawn)) {
      const size_t n = rows[i];
      const bool isLeft = IN_HALF(drawn[0]);
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

WORTH(breakoutStep, to - from, 16)
void KERNEL(breakoutStep)(uint8_t *restrict ballX, uint8_t *restrict ballY, uint8_t *restrict direction,
                          uint8_t *restrict trailX, uint8_t *restrict trailY, uint8_t *restrict paddle,
                          uint32_t *restrict bricks, uint8_t *restrict strike, uint8_t *restrict lastAction,
                          uint8_t *restrict observation, float *restrict reward, uint8_t *restrict terminated,
                          int32_t *restrict action, uint32_t *restrict lane, uint32_t *restrict episode,
                          int32_t *restrict step, double sticky, int32_t key0, int32_t key1, int32_t from, int32_t to) {
  const uint32_t bound = bound_of(sticky);
  for (int first = from; first < to; first += MANY) {
    many drawn = {0};
    if (bound > 0) drawn = draw_many(lane, episode, step, 1, first, to, key0, key1).of[0];
    KEPT_LOOP for (int n = first; n < first + MANY && n < to; n++, drawn = rotated(drawn)) {
      const int x = within(0, ballX[n], LAST), y = within(0, ballY[n], LAST);
      uint8_t *seen = observation + (size_t)ROW * n;
      reward[n] = 0;
      if (y == LAST) {
        show(seen, x, y, within(0, trailX[n], LAST), within(0, trailY[n], LAST), within(0, paddle[n], LAST), bricks[n]);
        continue;
      }
      const int act = UPPER(drawn[0]) < bound ? lastAction[n] : action[n];
      lastAction[n] = act;
      int at = within(0, paddle[n], LAST);
      at += (act == 2) & (at < LAST);
      at -= (act == 1) & (at > 0);
      int turned = direction[n];
      int nextX = x + (turned == 1 || turned == 2 ? 1 : -1), nextY = y + (turned < 2 ? -1 : 1);
      const bool bounces = (unsigned)nextX > LAST;
      nextX = bounces ? x : nextX;
      turned ^= bounces;
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
