/** Asterix of MinAtar; the plain twin `asterix.ts` has the rules. The eight rows of a lane are the bytes of one number. */
#include "grids.native.h"

#define CHANNELS 4
#define ROW (SIDE * SIDE * CHANNELS)
#define ROWS 8
#define ENEMY 1
#define GOLD 2
#define SPAWN_STEPS 10
#define MOVE_STEPS 5
#define RAMP_STEPS 100

INLINE void show(uint8_t *at, int x, int y, uint64_t kinds, uint64_t columns, uint64_t ways) {
  clear_bytes(at, ROW);
  UNROLLED for (int i = 0; i < ROWS; i++, kinds >>= 8, columns >>= 8, ways >>= 8) {
    const int kind = kinds & 3, column = columns & 15, behind = column + ((ways & 1) != 0 ? -1 : 1);
    const bool is = kind != 0, trails = (unsigned)behind < SIDE;
    uint8_t *line = at + CHANNELS * SIDE * (i + 1);
    // Without a trail in the grid nothing is written where the thing itself has none.
    line[CHANNELS * (trails ? behind : column) + 2] = is & trails;
    line[CHANNELS * column + (kind == GOLD ? 3 : 1)] = is;
  }
  at[CHANNELS * (SIDE * y + x)] = 1;
}

void KERNEL(asterixReset)(uint8_t *x, uint8_t *y, uint8_t *kind, uint8_t *column, uint8_t *isRightward,
                          uint8_t *spawnSteps, uint8_t *moveSteps, uint8_t *spawnTimer, uint8_t *moveTimer,
                          int32_t *rampTimer, int32_t *ramps, uint8_t *lastAction, uint8_t *isOver,
                          uint8_t *observation, uint32_t *rows, int32_t count) {
  for (int i = 0; i < count; i++) {
    const size_t n = rows[i];
    x[n] = y[n] = 5;
    store8(kind + ROWS * n, 0);
    store8(column + ROWS * n, 0);
    store8(isRightward + ROWS * n, 0);
    spawnSteps[n] = spawnTimer[n] = SPAWN_STEPS;
    moveSteps[n] = moveTimer[n] = MOVE_STEPS;
    rampTimer[n] = RAMP_STEPS;
    ramps[n] = 0;
    lastAction[n] = isOver[n] = 0;
    clear_bytes(observation + ROW * n, ROW);
    observation[ROW * n + CHANNELS * (SIDE * 5 + 5)] = 1;
  }
}

/** What the player in column x meets in its row, which begins at bit `own`. */
INLINE int met(uint64_t kinds, uint64_t columns, int own, int x) {
  return (int)(columns >> own & 255) == x ? (int)(kinds >> own & 255) : 0;
}

WORTH(asterixStep, to - from, 16)
void KERNEL(asterixStep)(uint8_t *restrict x, uint8_t *restrict y, uint8_t *restrict kind, uint8_t *restrict column,
                         uint8_t *restrict isRightward, uint8_t *restrict spawnSteps, uint8_t *restrict moveSteps,
                         uint8_t *restrict spawnTimer, uint8_t *restrict moveTimer, int32_t *restrict rampTimer,
                         int32_t *restrict ramps, uint8_t *restrict lastAction, uint8_t *restrict isOver,
                         uint8_t *restrict observation, float *restrict reward, uint8_t *restrict terminated,
                         int32_t *restrict action, uint32_t *restrict lane, uint32_t *restrict episode,
                         int32_t *restrict step, double sticky, int32_t key0, int32_t key1, int32_t from, int32_t to) {
  const uint32_t bound = bound_of(sticky);
  for (int first = from; first < to; first += MANY) {
    struct many_words drawn = draw_many(lane, episode, step, 1, first, to, key0, key1);
    KEPT_LOOP for (int n = first; n < first + MANY && n < to; n++, drawn = rotated_words(drawn)) {
      const size_t each = (size_t)ROWS * n;
      uint8_t *seen = observation + (size_t)ROW * n;
      uint64_t kinds = load8(kind + each), columns = load8(column + each), ways = load8(isRightward + each);
      int atX = within(0, x[n], LAST), atY = within(1, y[n], ROWS);
      reward[n] = 0;
      if (isOver[n] == 1) {
        show(seen, atX, atY, kinds, columns, ways);
        continue;
      }
      const int act = UPPER(drawn.of[0][0]) < bound ? lastAction[n] : action[n];
      lastAction[n] = act;
      int spawns = spawnTimer[n], moves = moveTimer[n];
      if (spawns == 0) {
        uint64_t free = EIGHT(1) ^ at_least8(kinds, 1);
        const int numFree = __builtin_popcountll(free);
        if (numFree > 0) {
          for (int skipped = UPPER(drawn.of[3][0]) * numFree >> 24; skipped > 0; skipped--) free &= free - 1;
          const int at = __builtin_ctzll(free);
          const uint64_t others = ~(255ull << at), right = IN_HALF(drawn.of[1][0]);
          kinds |= (uint64_t)(IN_THIRD(drawn.of[2][0]) ? GOLD : ENEMY) << at;
          ways = (ways & others) | right << at;
          columns = (columns & others) | (right ? 0ull : LAST) << at;
          store8(isRightward + each, ways);
        }
        spawns = spawnSteps[n];
      }
      atX += (act == 3) & (atX < LAST);
      atX -= (act == 1) & (atX > 0);
      atY += (act == 4) & (atY < ROWS);
      atY -= (act == 2) & (atY > 1);

      const int own = 8 * (atY - 1);
      const int before = met(kinds, columns, own, atX);
      if (before == GOLD) kinds &= ~(255ull << own);
      int after = 0;
      if (moves == 0) {
        moves = moveSteps[n];
        // One more than the next column: 0 and 11 are beyond the edges.
        const uint64_t there = at_least8(kinds, 1), next = columns + 2 * ways;
        const uint64_t inside = there & at_least8(next, 1) & ~at_least8(next, SIDE + 1), moved = masks8(inside);
        kinds &= moved;
        columns = (columns & ~moved) | ((next & moved) - inside);
        after = met(kinds, columns, own, atX);
        if (after == GOLD) kinds &= ~(255ull << own);
      }
      store8(kind + each, kinds);
      store8(column + each, columns);
      reward[n] = (before == GOLD) + (after == GOLD);
      const bool over = before == ENEMY || after == ENEMY;
      spawnTimer[n] = spawns - 1;
      moveTimer[n] = moves - 1;
      if (spawnSteps[n] > 1 || moveSteps[n] > 1) {
        if (rampTimer[n] >= 0) rampTimer[n]--;
        else {
          if (moveSteps[n] > 1 && ramps[n] % 2 == 1) moveSteps[n]--;
          if (spawnSteps[n] > 1) spawnSteps[n]--;
          ramps[n]++;
          rampTimer[n] = RAMP_STEPS;
        }
      }
      x[n] = atX;
      y[n] = atY;
      terminated[n] = isOver[n] = over;
      show(seen, atX, atY, kinds, columns, ways);
    }
  }
}
