/** CartPole in f32; the plain twin `cart-pole.ts` has the equations and the units. */
#include "../math.native.h"
#include "../philox.native.h"

#define GRAVITY 9.8f
#define TOTAL_MASS 1.1f
#define POLE_MASS 0.1f
#define POLE_MOMENT 0.05f
#define HALF_LENGTH 0.5f
#define FORCE 10.0f
#define STEP_SECONDS 0.02f
/** Both are above their exact values, so that "at least" in f32 says the same as "above" in f64. */
#define ANGLE_LIMIT 0.20943951023931953f
#define POSITION_LIMIT 2.4f

WORTH(cartPoleStep, to - from, 64)
void KERNEL(cartPoleStep)(float *restrict position, float *restrict velocity, float *restrict angle,
                          float *restrict angularVelocity, float *restrict observation, float *restrict reward,
                          uint8_t *restrict terminated, int32_t *restrict action, int32_t from, int32_t to) {
  const float perTotalMass = 1 / TOTAL_MASS;
  const float poleShare = POLE_MOMENT * perTotalMass;
  for (int n = from; n < to; n++) {
    const float theta = angle[n], q = quarter_turns(theta), r = within_quarter(theta, q);
    const float sin = turn(sin_quarter(r), cos_quarter(r), q, 0), cos = turn(sin_quarter(r), cos_quarter(r), q, 1);
    const float pushed = action[n] == 1 ? FORCE : -FORCE;
    const float swing = POLE_MOMENT * (angularVelocity[n] * angularVelocity[n]) * sin;
    const float push = (pushed + swing) * perTotalMass;
    const float torque = GRAVITY * sin - cos * push;
    const float inertia = madd1(-HALF_LENGTH * POLE_MASS / TOTAL_MASS, cos * cos, HALF_LENGTH * 4 / 3);
    const float ddTheta = torque / inertia;
    const float ddx = push - poleShare * (ddTheta * cos);
    const float x = madd1(STEP_SECONDS, velocity[n], position[n]);
    const float dx = madd1(STEP_SECONDS, ddx, velocity[n]);
    const float nextTheta = madd1(STEP_SECONDS, angularVelocity[n], theta);
    const float dTheta = madd1(STEP_SECONDS, ddTheta, angularVelocity[n]);
    position[n] = observation[4 * n] = x;
    velocity[n] = observation[4 * n + 1] = dx;
    angle[n] = observation[4 * n + 2] = nextTheta;
    angularVelocity[n] = observation[4 * n + 3] = dTheta;
    reward[n] = 1;
    terminated[n] = (fabsf(x) >= POSITION_LIMIT) | (fabsf(nextTheta) >= ANGLE_LIMIT);
  }
}

#define START_LIMIT 0.05

/** Uniform in [−START_LIMIT, START_LIMIT) from the upper 24 bits of each word: in f64 as the plain twin, for its bits. */
INLINE four start(uints words) {
  const ints bits = (ints)(words >> 8);
  const two first = {bits[0], bits[1]}, last = {bits[2], bits[3]};
  const two x = first * (2 * START_LIMIT * 0x1p-24) - START_LIMIT, y = last * (2 * START_LIMIT * 0x1p-24) - START_LIMIT;
  return (four){x[0], x[1], y[0], y[1]};
}

void KERNEL(cartPoleReset)(float *position, float *velocity, float *angle, float *angularVelocity, float *observation,
                           uint32_t *lane, uint32_t *episode, uint32_t *rows, int32_t key0, int32_t key1, int32_t count) {
  for (int i = 0; i < count; i += 4) {
    uints episodes = {0}, lanes = {0};
    UNROLLED for (int l = 0; l < 4; l++) {
      const size_t row = rows[l < count - i ? i + l : i];
      episodes[l] = episode[row];
      lanes[l] = lane[row];
    }
    // The first draw of the stream of resets.
    const struct words drawn = philox4((struct words){{{0}, episodes, lanes, {0}}}, key0, key1);
    const four x = start(drawn.of[0]), dx = start(drawn.of[1]), theta = start(drawn.of[2]), dTheta = start(drawn.of[3]);
    UNROLLED for (int l = 0; l < 4; l++) {
      if (l >= count - i) continue;
      const size_t row = rows[i + l];
      position[row] = observation[4 * row] = x[l];
      velocity[row] = observation[4 * row + 1] = dx[l];
      angle[row] = observation[4 * row + 2] = theta[l];
      angularVelocity[row] = observation[4 * row + 3] = dTheta[l];
    }
  }
}
