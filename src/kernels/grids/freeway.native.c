/** Freeway of MinAtar; the plain twin `freeway.ts` has the rules. The eight cars of a lane are the bytes of one number. */
#include "grids.native.h"

#define CHANNELS 7
#define ROW (SIDE * SIDE * CHANNELS)
#define CARS 8
#define SPEEDS 5
#define COLUMN 4
#define MOVE_STEPS 3
/** Draws of four random numbers per step. */
#define BLOCKS 3

INLINE void show(uint8_t *at, int chicken, uint64_t columns, uint64_t waits, uint64_t ways) {
  clear_bytes(at, ROW);
  // Behind it is one column on or, as it drives right, nine; counted around.
  uint64_t behind = columns + EIGHT(1) + 8 * ways;
  behind -= SIDE * at_least8(behind, SIDE);
  UNROLLED for (int i = 0; i < CARS; i++, columns >>= 8, waits >>= 8, behind >>= 8) {
    uint8_t *line = at + CHANNELS * SIDE * (i + 1);
    line[CHANNELS * (columns & 15) + 1] = 1;
    line[CHANNELS * (behind & 15) + 1 + (waits & 15)] = 1;
  }
  at[CHANNELS * (SIDE * chicken + COLUMN)] = 1;
}

/** Gives the cars that begin at `car` new speeds and directions. */
INLINE void drive_anew(uint8_t *timer, uint8_t *wait, uint8_t *isRightward, size_t car, struct words drawn) {
  UNROLLED for (int i = 0; i < CARS; i++) {
    const uint32_t speed = UPPER(drawn.of[i % 4][i / 4]) * (2 * SPEEDS) >> 24;
    wait[car + i] = timer[car + i] = 1 + speed % SPEEDS;
    isRightward[car + i] = speed >= SPEEDS;
  }
}

void KERNEL(freewayReset)(uint8_t *chicken, uint8_t *moveTimer, uint8_t *column, uint8_t *timer, uint8_t *wait,
                          uint8_t *isRightward, uint8_t *lastAction, uint8_t *observation, uint32_t *lane,
                          uint32_t *episode, uint32_t *rows, int32_t key0, int32_t key1, int32_t count) {
  for (int i = 0; i < count; i++) {
    const size_t n = rows[i], car = CARS * n;
    store8(column + car, 0);
    drive_anew(timer, wait, isRightward, car, next_draws(lane[n], episode[n], 0, STREAM_RESET, key0, key1));
    chicken[n] = LAST;
    moveTimer[n] = MOVE_STEPS;
    lastAction[n] = 0;
    show(observation + ROW * n, LAST, 0, load8(wait + car), load8(isRightward + car));
  }
}

WORTH(freewayStep, to - from, 16)
void KERNEL(freewayStep)(uint8_t *restrict chicken, uint8_t *restrict moveTimer, uint8_t *restrict column,
                         uint8_t *restrict timer, uint8_t *restrict wait, uint8_t *restrict isRightward,
                         uint8_t *restrict lastAction, uint8_t *restrict observation, float *restrict reward,
                         int32_t *restrict action, uint32_t *restrict lane, uint32_t *restrict episode,
                         int32_t *restrict step, double sticky, int32_t key0, int32_t key1, int32_t from, int32_t to) {
  const uint32_t bound = bound_of(sticky);
  for (int first = from; first < to; first += MANY) {
    many drawn = {0};
    if (bound > 0) drawn = draw_many(lane, episode, step, BLOCKS, first, to, key0, key1).of[0];
    KEPT_LOOP for (int n = first; n < first + MANY && n < to; n++, drawn = rotated(drawn)) {
      const size_t car = (size_t)CARS * n;
      const int act = UPPER(drawn[0]) < bound ? lastAction[n] : action[n];
      lastAction[n] = act;
      int at = within(1, chicken[n], LAST), waits = moveTimer[n];
      const bool moves = (act != 0) & (waits == 0);
      const int next = act == 1 ? at - 1 : least(LAST, at + 1);
      at = moves ? next : at;
      waits = moves ? MOVE_STEPS : waits;
      reward[n] = 0;
      if (at == 0) {
        reward[n] = 1;
        const uint32_t draw = (uint32_t)BLOCKS * step[n] + 1;
        drive_anew(timer, wait, isRightward, car, next_draws(lane[n], episode[n], draw, STREAM_STEP, key0, key1));
        at = LAST;
      }
      uint64_t columns = load8(column + car), timers = load8(timer + car);
      const uint64_t ways = load8(isRightward + car), all = load8(wait + car);
      const uint64_t waiting = at_least8(timers, 1), driving = waiting ^ EIGHT(1);
      timers = timers - waiting + (all & masks8(driving));
      const uint64_t old = columns;
      columns += 9 * driving - 8 * (driving & ways);
      columns -= SIDE * at_least8(columns, SIDE);
      if (at < LAST) {
        // The car of its row hits it where it was or where it comes.
        const int own = 8 * (at - 1);
        if ((old >> own & 255) == COLUMN || (columns >> own & 255) == COLUMN) at = LAST;
      }
      store8(column + car, columns);
      store8(timer + car, timers);
      moveTimer[n] = waits > 0 ? waits - 1 : 0;
      chicken[n] = at;
      show(observation + (size_t)ROW * n, at, columns, all, ways);
    }
  }
}
