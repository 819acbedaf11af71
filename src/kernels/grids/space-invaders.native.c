/** Space invaders of MinAtar; the plain twin `space-invaders.ts` has the rules. */
#include "grids.native.h"

#define CHANNELS 6
#define ROW (SIDE * SIDE * CHANNELS)
#define WAVE_ROWS 4
#define WAVE 0xfc
#define LEFT_EDGE 1
#define RIGHT_EDGE (1 << LAST)
#define SHOT_STEPS 5
#define BOMB_STEPS 10
#define MOVE_STEPS 12
#define MOVE_STEPS_LEAST 6

/** Where byte k of a row's 60 comes from: of two bytes a channel, the low one has columns 0 to 7. And which bit of it. */
#define FROM(k) (2 * ((k) % CHANNELS) + ((k) / CHANNELS >= 8))
#define BIT(k) (1 << ((k) / CHANNELS & 7))
#define OF_16(f, k)                                                                                                    \
  f(k), f(k + 1), f(k + 2), f(k + 3), f(k + 4), f(k + 5), f(k + 6), f(k + 7), f(k + 8), f(k + 9), f(k + 10), f(k + 11),  \
      f(k + 12), f(k + 13), f(k + 14), f(k + 15)
#define SPREAD(at, planes, k)                                                                                          \
  {                                                                                                                    \
    const sixteen bits = {OF_16(BIT, k)};                                                                              \
    const sixteen spread = __builtin_shufflevector(planes, planes, OF_16(FROM, k));                                    \
    *(sixteen *)((at) + k) = (sixteen)((spread & bits) == bits) & 1;                                                    \
  }

typedef uint64_t pair __attribute__((vector_size(16)));

/** Each row's columns of a channel become bytes, sixteen at a time. */
INLINE void show(uint8_t *at, int cannon, const int32_t *aliens, const int32_t *shots, const int32_t *bombs, bool right) {
  KEPT_LOOP for (int y = 0; y < SIDE; y++, at += SIDE * CHANNELS) {
    const uint64_t there = aliens[y], here = y == LAST ? 1 << cannon : 0;
    const pair both = {here | there << 16 | there << (right ? 48 : 32), (uint64_t)shots[y] | (uint64_t)bombs[y] << 16};
    const sixteen planes = (sixteen)both;
    SPREAD(at, planes, 0)
    SPREAD(at, planes, 16)
    SPREAD(at, planes, 32)
    SPREAD(at, planes, 44)
  }
}

void KERNEL(spaceInvadersReset)(uint8_t *cannon, int32_t *aliens, int32_t *shots, int32_t *bombs, uint8_t *isRightward,
                                uint8_t *moveSteps, uint8_t *moveTimer, uint8_t *bombTimer, uint8_t *shotTimer,
                                uint8_t *lastAction, uint8_t *isOver, uint8_t *observation, uint32_t *rows,
                                int32_t count) {
  for (int i = 0; i < count; i++) {
    const size_t n = rows[i], first = SIDE * n;
    cannon[n] = 5;
    UNROLLED for (int y = 0; y < SIDE; y++) {
      aliens[first + y] = y < WAVE_ROWS ? WAVE : 0;
      shots[first + y] = bombs[first + y] = 0;
    }
    isRightward[n] = shotTimer[n] = lastAction[n] = isOver[n] = 0;
    moveSteps[n] = moveTimer[n] = MOVE_STEPS;
    bombTimer[n] = BOMB_STEPS;
    show(observation + ROW * n, 5, aliens + first, shots + first, bombs + first, false);
  }
}

/** Drops a bomb from the lowest alien of the column nearest to the cannon; of two equally near columns, the left one. */
INLINE void drop_bomb(const int32_t *aliens, int32_t *bombs, int cannon) {
  uint32_t columns = 0;
  UNROLLED for (int y = 0; y < SIDE; y++) columns |= aliens[y];
  columns &= (1 << SIDE) - 1; // A stranger's checkpoint may have more.
  if (columns == 0) return;
  // Those from the cannon's own to the left, and those to its right.
  const uint32_t left = columns & ((2u << cannon) - 1), right = columns >> cannon >> 1;
  const int toLeft = left == 0 ? SIDE : cannon - (31 - __builtin_clz(left));
  const int toRight = right == 0 ? SIDE : 1 + __builtin_ctz(right);
  const int column = toLeft <= toRight ? cannon - toLeft : cannon + toRight;
  int y = LAST;
  while ((aliens[y] >> column & 1) == 0) y--;
  bombs[y] |= 1 << column;
}

WORTH(spaceInvadersStep, to - from, 16)
void KERNEL(spaceInvadersStep)(uint8_t *restrict cannon, int32_t *restrict aliens, int32_t *restrict shots,
                               int32_t *restrict bombs, uint8_t *restrict isRightward, uint8_t *restrict moveSteps,
                               uint8_t *restrict moveTimer, uint8_t *restrict bombTimer, uint8_t *restrict shotTimer,
                               uint8_t *restrict lastAction, uint8_t *restrict isOver, uint8_t *restrict observation,
                               float *restrict reward, uint8_t *restrict terminated, int32_t *restrict action,
                               uint32_t *restrict lane, uint32_t *restrict episode, int32_t *restrict step,
                               double sticky, int32_t key0, int32_t key1, int32_t from, int32_t to) {
  const uint32_t bound = bound_of(sticky);
  for (int first = from; first < to; first += MANY) {
    many drawn = {0};
    if (bound > 0) drawn = draw_many(lane, episode, step, 1, first, to, key0, key1).of[0];
    KEPT_LOOP for (int n = first; n < first + MANY && n < to; n++, drawn = rotated(drawn)) {
      int32_t *there = aliens + (size_t)SIDE * n, *up = shots + (size_t)SIDE * n, *down = bombs + (size_t)SIDE * n;
      uint8_t *seen = observation + (size_t)ROW * n;
      int at = within(0, cannon[n], LAST);
      bool right = isRightward[n] == 1;
      reward[n] = 0;
      if (isOver[n] == 1) {
        show(seen, at, there, up, down, right);
        continue;
      }
      const int act = UPPER(drawn[0]) < bound ? lastAction[n] : action[n];
      lastAction[n] = act;
      int reloads = shotTimer[n];
      if (act == 3 && reloads == 0) {
        up[LAST] |= 1 << at;
        reloads = SHOT_STEPS;
      }
      at -= (act == 1) & (at > 0);
      at += (act == 2) & (at < LAST);
      const int here = 1 << at;

      UNROLLED for (int y = 0; y < LAST; y++) up[y] = up[y + 1];
      up[LAST] = 0;
      UNROLLED for (int y = LAST; y > 0; y--) down[y] = down[y - 1];
      down[0] = 0;
      bool over = ((down[LAST] | there[LAST]) & here) != 0;

      int moves = moveTimer[n], drops = bombTimer[n];
      if (moves == 0) {
        int count = 0, columns = 0;
        UNROLLED for (int y = 0; y < SIDE; y++) {
          count += __builtin_popcount(there[y]);
          columns |= there[y];
        }
        moves = least(count, moveSteps[n]);
        if ((columns & (right ? RIGHT_EDGE : LEFT_EDGE)) != 0) {
          right = !right;
          const int lowest = there[LAST];
          if (lowest != 0) over = true;
          UNROLLED for (int y = LAST; y > 0; y--) there[y] = there[y - 1];
          there[0] = lowest;
        } else {
          UNROLLED for (int y = 0; y < SIDE; y++) there[y] = right ? there[y] << 1 : there[y] >> 1;
        }
        if ((there[LAST] & here) != 0) over = true;
      }
      if (drops == 0) {
        drops = BOMB_STEPS;
        drop_bomb(there, down, at);
      }
      int struck = 0, left = 0;
      UNROLLED for (int y = 0; y < SIDE; y++) struck |= there[y] & up[y];
      if (struck != 0) {
        int paid = 0;
        for (int y = 0; y < SIDE; y++) {
          const int hits = there[y] & up[y];
          paid += __builtin_popcount(hits);
          there[y] ^= hits;
          up[y] ^= hits;
        }
        reward[n] = paid;
      }
      UNROLLED for (int y = 0; y < SIDE; y++) left |= there[y];

      shotTimer[n] = reloads > 0 ? reloads - 1 : 0;
      moveTimer[n] = moves - 1;
      bombTimer[n] = drops - 1;
      if (left == 0) {
        if (moveSteps[n] > MOVE_STEPS_LEAST) moveSteps[n]--;
        UNROLLED for (int y = 0; y < WAVE_ROWS; y++) there[y] = WAVE;
      }
      cannon[n] = at;
      isRightward[n] = right;
      terminated[n] = isOver[n] = over;
      show(seen, at, there, up, down, right);
    }
  }
}
