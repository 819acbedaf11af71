/** What the recurrent cells share. */
#ifndef COLONNADE_STEPS
#define COLONNADE_STEPS

#include "../math.native.h"

/** Where the states of a cell lie; `size`: floats of one. */
struct states {
  const float *after, *recorded, *continues, *carried;
  int continuesLength, carriedLength;
  int length;
  size_t size;
};

/** Whether a row takes its state from the one before. */
INLINE bool goes_on(const struct states *states, size_t row) {
  return states->continuesLength > 0 && states->continues[row] != 0;
}

/** The state that step t of lane n begins with. */
INLINE const float *state_before(const struct states *states, int n, int t) {
  const size_t row = (size_t)n * states->length + t;
  if (!goes_on(states, row) || (t == 0 && states->carriedLength == 0)) return states->recorded + row * states->size;
  return t == 0 ? states->carried + n * states->size : states->after + (row - 1) * states->size;
}

INLINE void copy(float *into, const float *from, size_t length) { memcpy(into, from, length * sizeof *into); }
INLINE void set_zero(float *into, size_t length) { memset(into, 0, length * sizeof *into); }

/** σ(x) = ½ + ½ tanh(½ x). */
INLINE float gate(float x) { return tanh1(x * 0.5f) * 0.5f + 0.5f; }
/** a (1 − a) of a sigmoid's value. */
INLINE float gate_slope(float a) { return a - a * a; }
/** 1 − a² of a hyperbolic tangent's value. */
INLINE float tanh_slope(float a) { return 1 - a * a; }

#endif
