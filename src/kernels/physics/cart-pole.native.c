/** CartPole's step in f32; the plain twin `cart-pole.ts` has the equations and the units, the SIMD twin the operations. */
#include "../math.native.h"

#define GRAVITY 9.8f
#define TOTAL_MASS 1.1f
#define POLE_MASS 0.1f
#define POLE_MOMENT 0.05f
#define HALF_LENGTH 0.5f
#define FORCE 10.0f
#define STEP_SECONDS 0.02f
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
    const float inertia = __builtin_fmaf(-HALF_LENGTH * POLE_MASS / TOTAL_MASS, cos * cos, HALF_LENGTH * 4 / 3);
    const float ddTheta = torque / inertia;
    const float ddx = push - poleShare * (ddTheta * cos);
    const float x = __builtin_fmaf(STEP_SECONDS, velocity[n], position[n]);
    const float dx = __builtin_fmaf(STEP_SECONDS, ddx, velocity[n]);
    const float nextTheta = __builtin_fmaf(STEP_SECONDS, angularVelocity[n], theta);
    const float dTheta = __builtin_fmaf(STEP_SECONDS, ddTheta, angularVelocity[n]);
    position[n] = observation[4 * n] = x;
    velocity[n] = observation[4 * n + 1] = dx;
    angle[n] = observation[4 * n + 2] = nextTheta;
    angularVelocity[n] = observation[4 * n + 3] = dTheta;
    reward[n] = 1;
    terminated[n] = (fabsf(x) >= POSITION_LIMIT) | (fabsf(nextTheta) >= ANGLE_LIMIT);
  }
}
