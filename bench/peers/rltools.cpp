/**
 * Pendulum-v1 by RLtools' PPO with the sizes of its own example: 4 environments × 1,024 steps, 2 epochs of minibatches of 256, two
 * separate nets of two hidden layers of 64. `program SEED` trains UPDATES updates, evaluates 100 episodes of the mean action, and
 * prints one JSON line. A process of its own is timed from without.
 */
#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/rl/environments/pendulum/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>
#include <rl_tools/nn/layers/sample_and_squash/operations_generic.h>
#include <rl_tools/nn/layers/standardize/operations_generic.h>
#include <rl_tools/nn/layers/td3_sampling/operations_generic.h>
#include <rl_tools/nn_models/mlp_unconditional_stddev/operations_generic.h>
#include <rl_tools/nn_models/mlp/operations_generic.h>
#include <rl_tools/nn_models/sequential/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/operations_generic.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/config.h>
#include <rl_tools/rl/loop/steps/evaluation/config.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/operations_generic.h>
#include <rl_tools/rl/loop/steps/evaluation/operations_generic.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace rlt = rl_tools;
using Device = rlt::devices::DEVICE_FACTORY<>;
using Rng = Device::SPEC::RANDOM::ENGINE<>;
using T = float;
using TI = typename Device::index_t;
using Types = rlt::numeric_types::Policy<T>;
using Environment = rlt::rl::environments::Pendulum<rlt::rl::environments::pendulum::Specification<T, TI>>;

struct Parameters : rlt::rl::algorithms::ppo::loop::core::DefaultParameters<Types, TI, Environment> {
  static constexpr TI N_ENVIRONMENTS = 4;
  static constexpr TI ON_POLICY_RUNNER_STEPS_PER_ENV = 1024;
  static constexpr TI DATASET_SIZE = N_ENVIRONMENTS * ON_POLICY_RUNNER_STEPS_PER_ENV;
  static constexpr TI BATCH_SIZE = 256;
  static constexpr TI EPISODE_STEP_LIMIT = 200;
  static constexpr TI STEP_LIMIT = UPDATES;
  struct PPO_PARAMETERS : rlt::rl::algorithms::ppo::DefaultParameters<Types, TI, BATCH_SIZE> {
    static constexpr T ACTION_ENTROPY_COEFFICIENT = 0;
    static constexpr T GAMMA = 0.9;
    static constexpr TI N_EPOCHS = 2;
    static constexpr bool IGNORE_TERMINATION = true;
  };
  struct OPTIMIZER_PARAMETERS : rlt::nn::optimizers::adam::DEFAULT_PARAMETERS_TENSORFLOW<Types> {
    static constexpr T ALPHA = 1e-3;
  };
};
using Core = rlt::rl::algorithms::ppo::loop::core::Config<Types, TI, Rng, Environment, Parameters>;
template <typename Next>
struct Evaluation : rlt::rl::loop::steps::evaluation::Parameters<Types, TI, Next> {
  static constexpr TI EVALUATION_INTERVAL = UPDATES;
  static constexpr TI NUM_EVALUATION_EPISODES = 100;
  static constexpr TI N_EVALUATIONS = 1;
};
using Config = rlt::rl::loop::steps::evaluation::Config<Core, Evaluation<Core>>;
using State = typename Config::template State<Config>;

int main(int, char **arguments) {
  Device device;
  static State state;
  rlt::malloc(device, state);
  rlt::init(device, state, std::atoi(arguments[1]));
  const auto start = std::chrono::steady_clock::now();
  // Without the step that evaluates: that is done once, at the end.
  for (TI update = 0; update < UPDATES; update++) rlt::step(device, static_cast<typename State::NEXT &>(state));
  const std::chrono::duration<double> trained = std::chrono::steady_clock::now() - start;
  auto actor = rlt::get_actor(state);
  auto &result = rlt::get(state.evaluation_results, 0, 0);
  rlt::evaluate(device, state.env_eval, state.ui, actor, state.actor_deterministic_evaluation_state,
                state.actor_deterministic_evaluation_buffers, state.evaluation_buffer, result, state.rng_eval,
                state.evaluation_mode);
  const TI steps = UPDATES * Parameters::DATASET_SIZE;
  std::printf("{\"trainingSeconds\": %f, \"steps\": %lu, \"episodeReturn\": %f}\n", trained.count(), (unsigned long)steps,
              (double)result.returns_mean);
}
