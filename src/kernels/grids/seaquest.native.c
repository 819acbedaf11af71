/** Seaquest of MinAtar; the plain twin `seaquest.ts` has the rules. */
#include "grids.native.h"

#define CHANNELS 10
#define ROW (SIDE * SIDE * CHANNELS)
#define DEEPEST 8
#define OXYGEN 200
#define DIVERS_ABOARD 6
#define SHOT_STEPS 5
#define TORPEDO_STEPS 10
#define DIVER_SPAWN_STEPS 30
#define DIVER_MOVE_STEPS 5
#define SPAWN_STEPS 20
#define SPAWN_STEPS_LEAST 1
#define MOVE_STEPS 5
#define MOVE_STEPS_LEAST 2
/** Draws of four random numbers per step. */
#define BLOCKS 2
#define FISH 0
#define SUBMARINE 1

/** Bytes of a record, and which they are. */
#define FIELDS 6
#define X 0
#define Y 1
#define RIGHTWARD 2
#define MOVE_TIMER 3
#define KIND 4
#define SHOT_TIMER 5
#define ENEMIES (32 * FIELDS)
#define TORPEDOES (48 * FIELDS)
#define DIVERS (4 * FIELDS)
#define SHOTS (4 * FIELDS)

/** What moves in a lane, as lists of records and their lengths. */
struct sea {
  uint8_t *enemy, *diver, *shot, *torpedo;
  int enemies, divers, shots, torpedoes;
};

INLINE uint8_t *field(uint8_t *seen, int x, int y) { return seen + CHANNELS * within(0, SIDE * y + x, SIDE * SIDE - 1); }
INLINE void mark(uint8_t *seen, const uint8_t *record, int channel) { field(seen, record[X], record[Y])[channel] = 1; }
/** The field behind a moving thing shows its direction. */
INLINE void mark_trail(uint8_t *seen, const uint8_t *record) {
  const int way = record[RIGHTWARD] == 1 ? -1 : 1;
  if ((unsigned)(record[X] + way) <= LAST) field(seen, record[X] + way, record[Y])[3] = 1;
}

/** With the lists one by one: a structure would be handed over in memory, which is all columns in WebAssembly. */
SMALL void show(uint8_t *seen, const uint8_t *enemy, int enemies, const uint8_t *diver, int divers, const uint8_t *shot,
                int shots, const uint8_t *torpedo, int torpedoes, int x, int y, bool right, int oxygen, int aboard) {
  clear_bytes(seen, ROW);
  uint8_t *gauges = seen + CHANNELS * SIDE * LAST;
  field(seen, x, y)[0] = 1;
  field(seen, x + (right ? -1 : 1), y)[1] = 1;
  const int air = (oxygen > 0 ? oxygen : 0) * SIDE / OXYGEN;
  UNROLLED for (int k = 0; k < SIDE; k++) gauges[CHANNELS * k + 7] = k < air;
  UNROLLED for (int k = 1; k <= DIVERS_ABOARD; k++) gauges[CHANNELS * (LAST - k) + 8] = k <= aboard;
  for (int i = 0; i < shots; i++) mark(seen, shot + i * FIELDS, 2);
  for (int i = 0; i < torpedoes; i++) mark(seen, torpedo + i * FIELDS, 4);
  for (; enemies > 0; enemies--, enemy += FIELDS) {
    mark(seen, enemy, enemy[KIND] == FISH ? 5 : 6);
    mark_trail(seen, enemy);
  }
  for (; divers > 0; divers--, diver += FIELDS) {
    mark(seen, diver, 9);
    mark_trail(seen, diver);
  }
}

#define SHOW(s)                                                                                                        \
  show(seen, s.enemy, s.enemies, s.diver, s.divers, s.shot, s.shots, s.torpedo, s.torpedoes, atX, atY, right == 1, air,  \
       divers)

INLINE void clear_list(uint8_t *list, int length) {
  KEPT_LOOP for (int i = 0; i < length; i += 8) store8(list + i, 0);
}

void KERNEL(seaquestReset)(uint8_t *x, uint8_t *y, uint8_t *isRightward, uint8_t *isSurfaced, int32_t *oxygen,
                           int32_t *aboard, uint8_t *spawnSteps, uint8_t *moveSteps, uint8_t *ramps, uint8_t *spawnTimer,
                           uint8_t *diverTimer, uint8_t *shotTimer, uint8_t *enemy, uint8_t *numEnemies, uint8_t *diver,
                           uint8_t *numDivers, uint8_t *shot, uint8_t *numShots, uint8_t *torpedo, uint8_t *numTorpedoes,
                           uint8_t *lastAction, uint8_t *isOver, uint8_t *observation, uint32_t *rows, int32_t count) {
  for (int i = 0; i < count; i++) {
    const size_t n = rows[i];
    x[n] = 5;
    y[n] = isRightward[n] = 0;
    isSurfaced[n] = 1;
    oxygen[n] = OXYGEN;
    aboard[n] = 0;
    spawnSteps[n] = spawnTimer[n] = SPAWN_STEPS;
    moveSteps[n] = MOVE_STEPS;
    diverTimer[n] = DIVER_SPAWN_STEPS;
    clear_list(enemy + ENEMIES * n, ENEMIES);
    clear_list(diver + DIVERS * n, DIVERS);
    clear_list(shot + SHOTS * n, SHOTS);
    clear_list(torpedo + TORPEDOES * n, TORPEDOES);
    numEnemies[n] = numDivers[n] = numShots[n] = numTorpedoes[n] = 0;
    ramps[n] = shotTimer[n] = lastAction[n] = isOver[n] = 0;
    show(observation + ROW * n, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 5, 0, false, OXYGEN, 0);
  }
}

/** Adds a record to a list of `size` bytes, and sets its first fields. In a full list, which no game reaches, it replaces the last one. */
INLINE uint8_t *add(uint8_t *list, int size, int *length, int x, int y, int right) {
  uint8_t *end = list + least(FIELDS * *length, size - FIELDS);
  *length = (int)(end - list) / FIELDS + 1;
  end[X] = x;
  end[Y] = y;
  end[RIGHTWARD] = right;
  return end;
}

/** Removes a record from a list, and closes the gap: what stood last stays beyond the end. */
INLINE void take(uint8_t *list, int *length, uint8_t *record) {
  const uint8_t *end = list + FIELDS * --*length;
  KEPT_LOOP for (; record < end; record++) *record = record[FIELDS];
}

INLINE bool is_at(const uint8_t *record, int x, int y) { return (record[X] == x) & (record[Y] == y); }

/** Moves a record by one field; false if it leaves the grid. */
INLINE bool move_on(uint8_t *record) {
  const int x = record[X] + (record[RIGHTWARD] == 1 ? 1 : -1);
  if ((unsigned)x > LAST) return false;
  record[X] = x;
  return true;
}

/** The first enemy of a kind at a place; null if there is none. */
INLINE uint8_t *enemy_at(struct sea *sea, int kind, const uint8_t *place) {
  KEPT_LOOP for (int i = 0; i < sea->enemies; i++) {
    uint8_t *enemy = sea->enemy + i * FIELDS;
    if (enemy[KIND] == kind && is_at(enemy, place[X], place[Y])) return enemy;
  }
  return NULL;
}

/** Returns how many enemies are hit. */
INLINE int move_shots(struct sea *sea) {
  int hits = 0;
  for (int i = sea->shots - 1; i >= 0; i--) {
    uint8_t *shot = sea->shot + i * FIELDS;
    if (!move_on(shot)) {
      take(sea->shot, &sea->shots, shot);
      continue;
    }
    uint8_t *hit = enemy_at(sea, FISH, shot);
    if (hit == NULL) hit = enemy_at(sea, SUBMARINE, shot);
    if (hit == NULL) continue;
    take(sea->enemy, &sea->enemies, hit);
    take(sea->shot, &sea->shots, shot);
    hits++;
  }
  return hits;
}

/** Moves divers, and takes them aboard if the boat is there and has room. Returns how many are aboard. */
INLINE int move_divers(struct sea *sea, int x, int y, int aboard) {
  for (int i = sea->divers - 1; i >= 0; i--) {
    uint8_t *diver = sea->diver + i * FIELDS;
    bool taken = is_at(diver, x, y) && aboard < DIVERS_ABOARD, gone = taken;
    if (!taken && diver[MOVE_TIMER] == 0) {
      diver[MOVE_TIMER] = DIVER_MOVE_STEPS;
      gone = !move_on(diver);
      taken = !gone && is_at(diver, x, y) && aboard < DIVERS_ABOARD;
    } else if (!taken) diver[MOVE_TIMER]--;
    aboard += taken;
    if (taken || gone) take(sea->diver, &sea->divers, diver);
  }
  return aboard;
}

/** Moves enemies of a kind, also into shots; submarines fire, even in the step in which they are hit. Returns how many are hit. */
INLINE int move_enemies(struct sea *sea, int kind, int steps, int x, int y, bool *over) {
  int hits = 0;
  for (int i = sea->enemies - 1; i >= 0; i--) {
    uint8_t *enemy = sea->enemy + i * FIELDS, *met = NULL;
    if (enemy[KIND] != kind) continue;
    if (is_at(enemy, x, y)) *over = true;
    bool gone = false;
    if (enemy[MOVE_TIMER] == 0) {
      enemy[MOVE_TIMER] = steps;
      gone = !move_on(enemy);
      if (!gone && is_at(enemy, x, y)) *over = true;
      else if (!gone) {
        for (int s = sea->shots - 1; s >= 0; s--) {
          uint8_t *shot = sea->shot + s * FIELDS;
          if (is_at(enemy, shot[X], shot[Y])) met = shot;
        }
      }
    } else enemy[MOVE_TIMER]--;
    if (kind == SUBMARINE) {
      if (enemy[SHOT_TIMER] == 0) {
        enemy[SHOT_TIMER] = TORPEDO_STEPS;
        if (!gone) add(sea->torpedo, TORPEDOES, &sea->torpedoes, enemy[X], enemy[Y], enemy[RIGHTWARD]);
      } else enemy[SHOT_TIMER]--;
    }
    if (met != NULL) {
      take(sea->shot, &sea->shots, met);
      hits++;
    }
    if (met != NULL || gone) take(sea->enemy, &sea->enemies, enemy);
  }
  return hits;
}

INLINE void move_torpedoes(struct sea *sea, int x, int y, bool *over) {
  for (int i = sea->torpedoes - 1; i >= 0; i--) {
    uint8_t *torpedo = sea->torpedo + i * FIELDS;
    if (is_at(torpedo, x, y)) *over = true;
    if (!move_on(torpedo)) take(sea->torpedo, &sea->torpedoes, torpedo);
    else if (is_at(torpedo, x, y)) *over = true;
  }
}

/** Adds an enemy at a side, unless one in its row moves the other way. */
INLINE void add_enemy(struct sea *sea, int right, int kind, int y, int steps) {
  for (int i = 0; i < sea->enemies; i++) {
    const uint8_t *enemy = sea->enemy + i * FIELDS;
    if (enemy[Y] == y && enemy[RIGHTWARD] != right) return;
  }
  uint8_t *enemy = add(sea->enemy, ENEMIES, &sea->enemies, right ? 0 : LAST, y, right);
  enemy[MOVE_TIMER] = steps;
  enemy[KIND] = kind;
  enemy[SHOT_TIMER] = TORPEDO_STEPS;
}

/** A random row for arrivals. */
#define ROW_OF(word) (1 + ((uint32_t)(word) >> 29))

WORTH(seaquestStep, to - from, 16)
void KERNEL(seaquestStep)(uint8_t *x, uint8_t *y, uint8_t *isRightward, uint8_t *isSurfaced, int32_t *oxygen,
                          int32_t *aboard, uint8_t *spawnSteps, uint8_t *moveSteps, uint8_t *ramps, uint8_t *spawnTimer,
                          uint8_t *diverTimer, uint8_t *shotTimer, uint8_t *enemy, uint8_t *numEnemies, uint8_t *diver,
                          uint8_t *numDivers, uint8_t *shot, uint8_t *numShots, uint8_t *torpedo, uint8_t *numTorpedoes,
                          uint8_t *lastAction, uint8_t *isOver, uint8_t *observation, float *reward, uint8_t *terminated,
                          int32_t *action, uint32_t *lane, uint32_t *episode, int32_t *step, double sticky, int32_t key0,
                          int32_t key1, int32_t from, int32_t to) {
  const uint32_t bound = bound_of(sticky);
  for (int first = from; first < to; first += MANY) {
    struct many_words drawn = draw_many(lane, episode, step, BLOCKS, first, to, key0, key1);
    KEPT_LOOP for (int n = first; n < first + MANY && n < to; n++, drawn = rotated_words(drawn)) {
      uint8_t *seen = observation + (size_t)ROW * n;
      struct sea sea = {
          enemy + (size_t)ENEMIES * n, diver + (size_t)DIVERS * n, shot + (size_t)SHOTS * n, torpedo + (size_t)TORPEDOES * n,
          least(numEnemies[n], ENEMIES / FIELDS), least(numDivers[n], DIVERS / FIELDS), least(numShots[n], SHOTS / FIELDS),
          least(numTorpedoes[n], TORPEDOES / FIELDS),
      };
      int atX = within(0, x[n], LAST), atY = within(0, y[n], DEEPEST), air = oxygen[n], divers = aboard[n], right = isRightward[n];
      reward[n] = 0;
      if (isOver[n] == 1) {
        SHOW(sea);
        continue;
      }
      const int act = UPPER(drawn.of[0][0]) < bound ? lastAction[n] : action[n];
      lastAction[n] = act;
      int spawns = spawnTimer[n], dives = diverTimer[n], reloads = shotTimer[n];
      if (spawns == 0) {
        const int kind = IN_THIRD(drawn.of[2][0]) ? SUBMARINE : FISH;
        add_enemy(&sea, IN_HALF(drawn.of[1][0]), kind, ROW_OF(drawn.of[3][0]), moveSteps[n]);
        spawns = spawnSteps[n];
      }
      if (dives == 0) {
        const uint32_t draw = (uint32_t)BLOCKS * step[n] + 1;
        const struct words next = next_draws(lane[n], episode[n], draw, STREAM_STEP, key0, key1);
        const bool rightward = IN_HALF(next.of[0][0]);
        add(sea.diver, DIVERS, &sea.divers, rightward ? 0 : LAST, ROW_OF(next.of[1][0]), rightward)[MOVE_TIMER] = DIVER_MOVE_STEPS;
        dives = DIVER_SPAWN_STEPS;
      }
      if (act == 5 && reloads == 0) {
        add(sea.shot, SHOTS, &sea.shots, atX, atY, right);
        reloads = SHOT_STEPS;
      } else if (act == 1) {
        atX -= atX > 0;
        right = 0;
      } else if (act == 3) {
        atX += atX < LAST;
        right = 1;
      } else if (act == 2) atY -= atY > 0;
      else if (act == 4) atY += atY < DEEPEST;

      // Submarines move, then their torpedoes, then fish, as in MinAtar: a shot hits the first that it meets.
      bool over = air <= 0;
      int paid = move_shots(&sea);
      divers = move_divers(&sea, atX, atY, divers);
      paid += move_enemies(&sea, SUBMARINE, moveSteps[n], atX, atY, &over);
      move_torpedoes(&sea, atX, atY, &over);
      paid += move_enemies(&sea, FISH, moveSteps[n], atX, atY, &over);
      if (atY > 0) {
        air--;
        isSurfaced[n] = 0;
      } else if (isSurfaced[n] == 0) {
        if (divers == 0) over = true;
        else {
          const bool full = divers == DIVERS_ABOARD;
          paid += full ? air * SIDE / OXYGEN : 0;
          isSurfaced[n] = 1;
          air = OXYGEN;
          divers = full ? -1 : divers - 1;
          if (spawnSteps[n] > SPAWN_STEPS_LEAST || moveSteps[n] > MOVE_STEPS_LEAST) {
            if (moveSteps[n] > MOVE_STEPS_LEAST && ramps[n] % 2 == 1) moveSteps[n]--;
            if (spawnSteps[n] > SPAWN_STEPS_LEAST) spawnSteps[n]--;
            ramps[n]++;
          }
        }
      }
      reward[n] = paid;
      spawnTimer[n] = spawns > 0 ? spawns - 1 : 0;
      diverTimer[n] = dives > 0 ? dives - 1 : 0;
      shotTimer[n] = reloads > 0 ? reloads - 1 : 0;
      x[n] = atX;
      y[n] = atY;
      isRightward[n] = right;
      oxygen[n] = air;
      aboard[n] = divers;
      numEnemies[n] = sea.enemies;
      numDivers[n] = sea.divers;
      numShots[n] = sea.shots;
      numTorpedoes[n] = sea.torpedoes;
      terminated[n] = isOver[n] = over;
      SHOW(sea);
    }
  }
}
