// The rooms whose tests are tested: `mutate` is what faults are put into, `tests` is who should notice. A room takes one
// line. Tests that start threads or the command line run dist, where there are no faults, and so are left out.
export const rooms = {
  algorithms: {
    mutate: ['src/algorithms'],
    tests: [
      'tests/algorithms',
      'tests/training/trainer.test.ts',
      'tests/training/text/trainer.test.ts',
      'tests/training/text/metrics-twin.test.ts',
      'tests/training/text/token-trainer.test.ts',
      'tests/training/text/sft-training.test.ts',
    ],
  },
  systems: {
    mutate: ['src/systems'],
    tests: ['tests/systems', 'tests/world.test.ts', 'tests/text-cohort.test.ts'],
  },
  world: {
    mutate: ['src/world', 'src/systems/tick.ts'],
    tests: [
      'tests/systems',
      'tests/world.test.ts',
      'tests/cohorts.test.ts',
      'tests/text-cohort.test.ts',
      'tests/lanes.test.ts',
      'tests/engines',
      'tests/training/text/arena.test.ts',
      'tests/population.test.ts',
      'tests/own-systems.test.ts',
      'tests/league.test.ts',
    ],
  },
  training: {
    mutate: ['src/training'],
    tests: ['tests/training', 'tests/metrics.test.ts'],
    // Those that start threads or processes, or repeat whole runs; with the others a fault takes seconds.
    withoutTests: [
      'threads.test.ts',
      'checkpoint-kill.test.ts',
      'faults.test.ts',
      'bits.test.ts',
      'unclosed.test.ts',
      'resume-lines.test.ts',
      'settings-act.test.ts',
      'segments-run.test.ts',
    ],
  },
  rewards: {
    mutate: ['src/language/rewards'],
    tests: ['tests/language/rewards'],
    withoutTests: ['code.test.ts', 'maths.test.ts'],
  },
  tables: { mutate: ['src/tables'], tests: ['tests/tables'] },
  kernels: {
    mutate: ['src/kernels'],
    without: ['compiled', 'bind', 'plain', 'twins', 'grids/bind', 'grids/plain', 'grids/twins'].map(
      (name) => `kernels/${name}.ts`,
    ),
    tests: ['tests/kernels'],
  },
  gateway: {
    mutate: ['src/agents/gateway', 'src/agents/dialects'],
    tests: ['tests/agents/gateway', 'tests/agents/dialects'],
    withoutTests: ['cli.test.ts', 'clients.test.ts'],
  },
  engines: {
    mutate: ['src/engines'],
    tests: [
      'tests/engines',
      'tests/training/tinker.test.ts',
      'tests/text-cohort.test.ts',
      'tests/agents/serving/server.test.ts',
    ],
  },
  // The page itself is tried in a browser, by tests/outside.
  dashboard: {
    mutate: ['src/telemetry/dashboard'],
    without: ['dashboard/page/'],
    tests: ['tests/telemetry/dashboard'],
    withoutTests: ['command.test.ts'],
  },
  fleet: { mutate: ['src/fleet'], tests: ['tests/fleet'] },
  offPolicy: {
    mutate: [
      ...['off-policy.ts', 'replay.ts', 'dqn.ts', 'sac.ts', 'td3.ts'].map(
        (name) => `src/algorithms/off-policy/${name}`,
      ),
      ...['replay', 'values', 'loss/td.ts'].map((name) => `src/kernels/${name}`),
      ...['actor-and-critics.ts', 'q-network.ts', 'sac-network.ts', 'td3-network.ts'].map(
        (name) => `src/policies/${name}`,
      ),
    ],
    tests: [
      ...['off-policy', 'dqn-twin', 'sac-twin', 'td3', 'td3-twin'].map((name) => `tests/algorithms/${name}.test.ts`),
      'tests/kernels/replay.test.ts',
      ...['q-network', 'sac-network', 'td3-network'].map((name) => `tests/policies/${name}.test.ts`),
    ],
  },
  // What faults are put into allocates, which contract.test.ts measures.
  environments: {
    mutate: ['src/environments'],
    tests: ['tests/environments', 'tests/errors.test.ts'],
    withoutTests: ['contract.test.ts'],
  },
}
