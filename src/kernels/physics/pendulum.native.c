/** Pendulum's step in f32; the plain twin `pendulum.ts` has the equations and the units. */
#include "../math.native.h"

#define STEP_SECONDS 0.05f
#define SPEED_LIMIT 8
#define TORQUE_LIMIT 2

/** The same angle in [−π, π). */
INLINE float wrap(float angle) {
  const float turns = __builtin_floorf((angle + 3.14159265358979324f) * 0.159154943091895336f);
  return madd1(turns, -1.9353071795864769e-3f, madd1(turns, -6.28125f, angle));
}

WORTH(pendulumStep, to - from, 64)
void KERNEL(pendulumStep)(float *restrict angle, float *restrict angularVelocity, float *restrict observation,
                          float *restrict reward, float *restrict action, double gravity, int32_t from, int32_t to) {
  const float fall = (float)(1.5 * gravity); // 3 g / 2 l for l = 1 m.
  for (int n = from; n < to; n++) {
    const float torque = clamp(action[n], -TORQUE_LIMIT, TORQUE_LIMIT);
    const float upright = wrap(angle[n]), speed = angularVelocity[n];
    const float effort = torque * torque * 0.001f;
    reward[n] = -madd1(upright, upright, madd1(speed * 0.1f, speed, effort));
    const float q = quarter_turns(upright), r = within_quarter(upright, q);
    const float sin = turn(sin_quarter(r), cos_quarter(r), q, 0);
    const float acceleration = madd1(fall, sin, torque * 3); // 3 / m l² for 1 kg and 1 m.
    const float nextSpeed = clamp(madd1(acceleration, STEP_SECONDS, speed), -SPEED_LIMIT, SPEED_LIMIT);
    const float nextAngle = wrap(madd1(nextSpeed, STEP_SECONDS, upright));
    angularVelocity[n] = observation[3 * n + 2] = nextSpeed;
    angle[n] = nextAngle;
    const float nextQ = quarter_turns(nextAngle), nextR = within_quarter(nextAngle, nextQ);
    const float sinR = sin_quarter(nextR), cosR = cos_quarter(nextR);
    observation[3 * n] = turn(sinR, cosR, nextQ, 1);
    observation[3 * n + 1] = turn(sinR, cosR, nextQ, 0);
  }
}
