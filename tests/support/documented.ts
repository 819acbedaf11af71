/**
 * The names in documents of other systems, each with a small call of its counterpart: textpolicy's guide to rollouts
 * and training, the source of its trainer, its quick reference of rollouts, AReaL's guide to agents, and a tutorial of
 * rollout orchestration. A call returns whether it worked. `docs/names.md` has a row for each name.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import * as algorithms from '../../src/entries/algorithms.ts'
import * as compat from '../../src/entries/compat.ts'
import * as data from '../../src/entries/data.ts'
import { type EngineDefinition, sglangEngine, vllmEngine } from '../../src/entries/engines.ts'
import * as rewards from '../../src/entries/rewards.ts'
import * as text from '../../src/entries/text.ts'
import * as core from '../../src/index.ts'
import { digits, talkUntil, talkWorld } from './conversations.ts'
import { served, smallModel } from './serving.ts'
import { temporaryFolder } from './temporary.ts'

type Call = () => boolean | Promise<boolean>

const policy = core.languageModel({ width: 16, layers: 1, heads: 2 })
const environment = digits({ respond: ({ completion }) => ({ reward: completion.length }) })
/** An environment of one step for any action, and a constant policy. */
const service = (): compat.EnvironmentService<readonly number[], readonly number[]> => ({
  reset: () => ({ observation: [1] }),
  step: (action) => ({ observation: [1, ...action], reward: 1, terminated: true, truncated: false }),
})
const policyFn: compat.PolicyFn = () => ({ action: [2], logprob: [-1] })
const buffer = async () => {
  const runner = new compat.RolloutRunner(service(), policyFn, compat.createStrategy('grpo'), { maxSteps: 3 })
  return runner.collect()
}
const said = { response: 'ab', tokens: [5, 6, 7], lossMask: [0, 1, 1] }
const generateFn: compat.GenerateFn<string> = (prompts) => prompts.map((_, i) => ({ ...said, reward: i }))
const manager = (given: Partial<compat.RolloutConfig<string>> = {}) =>
  new compat.AsyncRolloutManager(new data.DataBuffer(['1', '2', '3']), {
    ...{ batchSize: 2, nSamplesPerPrompt: 2, generateFn },
    ...given,
  })
const openBackend = async () =>
  compat.openTrainingBackend({ policy, environment, optimizer: {}, checkpointDir: await temporaryFolder() })
const collected = async () => {
  const world = await talkWorld({ environment, policy, groupSize: 2 })
  return { world, buffer: await new compat.RolloutCoordinator(world, { episodes: 4 }).collect() }
}
const trainer = async (given: Partial<compat.TrainerParts> = {}) => {
  const { world, buffer } = await collected()
  const { computeAdvantages: advantageFn, policyLoss: lossFn } = compat.grpo
  return new compat.Trainer({ model: world, advantageFn, lossFn, optimizer: {}, buffer, ...given })
}
/** A group as filters see it. */
const group = [1, 0].map((reward) => ({ reward, response: `${reward}`, responseLength: 20, status: 'completed' }))
const agent: compat.Agent = {
  async collectTrajectory({ prompt: { qid }, env, obsQueue, actQueue }) {
    await obsQueue.put({ qid })
    const { outputs } = await actQueue.get()
    const { reward } = await env.step([qid, outputs])
    return { reward: (reward as readonly number[])[0]! }
  },
}
compat.registerAgent('documented', () => agent)
compat.registerEnvironment('documented', () => ({
  reset: () => ({ observation: null }),
  step: ([, answers]: readonly [string, readonly string[]]) => ({
    ...{ observation: null, reward: answers.map((answer) => answer.length), terminated: true, truncated: false },
  }),
}))
const converse = async () => {
  const led = compat.agentEnvironment({
    ...{ agent: { type: 'documented' }, env: { type: 'documented' } },
    ...{ examples: [{ prompt: '1' }], maxTokens: 4, alphabet: '0123456789' },
  })
  const coordinator = new compat.RolloutCoordinator(await talkWorld({ environment: led, policy }), { episodes: 2 })
  return (await coordinator.collect()).columns().known.every((known) => known === 1)
}
const train = async (config: Partial<compat.RlTrainingConfig> = {}, engines: readonly compat.SyncedEngine[] = []) => {
  const prompts = new data.DataBuffer(['1', '2'])
  const rollouts = new compat.AsyncRolloutManager(prompts, { batchSize: 2, nSamplesPerPrompt: 2, generateFn })
  const steps = { numSteps: 2, checkpointEvery: 0, ...config }
  return compat.runRlTraining(await openBackend(), prompts, rollouts, engines, steps)
}
const learn = async (config: Partial<compat.SftTrainingConfig> = {}) =>
  compat.runSftTraining(await openBackend(), [said], { numSteps: 2, batchSize: 1, checkpointEvery: 0, ...config })

/** Whether a step changes the weights. */
const trains = async (given: Partial<compat.TrainerParts> = {}) => {
  const { step, gradNorm } = await (await trainer(given)).train()
  return step === 1 && Number.isFinite(gradNorm)
}
const coordinate: Call = async () => {
  const options = { algorithm: 'grpo', numWorkers: 0, maxSteps: 3 }
  return (
    (await new compat.RolloutCoordinator(service, () => policyFn, options).collect()).episodeCount === 3 &&
    (
      await new compat.RolloutCoordinator(
        () => environment,
        () => policy,
        options,
      ).collect()
    ).count === 3
  )
}
const talksBy = async (engine: EngineDefinition) => {
  const [row] = await talkUntil(await talkWorld({ policy: smallModel(), numLanes: 1, engine }), 1)
  return row!.lossMask.includes(1)
}
const openTrainer = () => openBackend().then((backend) => backend.checkpointDir !== null)

/** The names, by document. A name with a dot is a method, in the row of its class or its own. */
export const documented: Readonly<Record<string, Readonly<Record<string, Call>>>> = {
  'textpolicy: rollouts and training': {
    RolloutCoordinator: coordinate,
    'RolloutCoordinator.collect': coordinate,
    RolloutRunner: async () =>
      (await new compat.RolloutRunner(service(), policyFn, compat.createStrategy('grpo'), { maxSteps: 2 }).collect())
        .length === 4,
    create_strategy: () => compat.createStrategy('grpo').name === 'grpo',
    load_model: async () => {
      const folder = await temporaryFolder()
      const { model, weights, tokenizer } = { ...(await talkWorld({ environment, policy })).cohort() }
      await text.saveTransformer(folder, model, weights)
      await text.saveTokenizer(folder, tokenizer)
      return (await text.loadLanguageModel(folder)).model.numParameters === model.numParameters
    },
    create_policy: () => core.languageModel({ width: 16 }).id === 'languageModel',
    TextGenerationEnv: async () => {
      const make = core.defineTextEnvironment({
        ...{ id: 'text/documented', settings: {} },
        make: () => ({ numExamples: 1, example: () => ({ prompt: '1' }), respond: () => ({ reward: 1 }) }),
      })
      return make().numExamples === 1
    },
    'Environment.step': async () => {
      const step: compat.StepResult<readonly number[]> = {
        observation: [1],
        reward: 2,
        terminated: true,
        truncated: false,
      }
      compat.registerEnvironment('one step', () => ({ reset: () => ({ observation: [1] }), step: () => step }))
      return (await compat.makeEnvironment({ type: 'one step' }).step([1])).reward === 2
    },
    'grpo.compute_advantages': () => trains({ advantageFn: compat.grpo.computeAdvantages }),
    'grpo.policy_loss': () => trains({ lossFn: compat.grpo.policyLoss }),
    Trainer: async () => (await trainer()) instanceof compat.Trainer,
    Buffer: () => new compat.EpisodeBuffer({ maxEpisodes: 1 }).episodeCount === 0,
  },
  'textpolicy: files, and the source of its trainer': {
    BufferAggregator: async () => {
      const aggregator = new compat.BufferAggregator({ maxEpisodes: 4 })
      const worker = new compat.RolloutWorker(service, () => policyFn, compat.createStrategy('grpo'), { maxSteps: 2 })
      aggregator.addWorker(worker)
      await worker.collectAsync()
      return aggregator.consumeAll() === 2 && aggregator.ready(2)
    },
    RolloutWorker: async () => {
      const worker = new compat.RolloutWorker(service, () => policyFn, compat.createStrategy('grpo'), { maxSteps: 2 })
      worker.start()
      await worker.collectAsync()
      return worker.hasData() && worker.getBuffer().episodeCount === 2 && !worker.hasData()
    },
    validate_transition_data: () => {
      compat.validateTransitionData({ obs: [1], act: [2], rew: 1, nextObs: null, done: true })
      return true
    },
    sample_latest_steps: async () => (await buffer()).sampleLatestSteps(1).token.length === 1,
    sample_episodes: async () => (await buffer()).sampleEpisodes(2).reward.length === 2,
    sample_sequences: async () => (await buffer()).sampleSequences(1, 4).validMask[2] === 0,
    'Buffer.sample': async () => (await buffer()).sample().reward.length === 3,
    'Buffer.clear': async () => {
      const filled: compat.EpisodeBuffer = await buffer()
      filled.clear()
      return filled.length === 0
    },
    'Trainer.train': () => trains(),
    'Trainer.train_epoch': async () => {
      const { world } = await collected()
      const parts = { model: world, advantageFn: compat.grpo.computeAdvantages, lossFn: compat.grpo.policyLoss }
      const coordinator = new compat.RolloutCoordinator(world, { episodes: 4 })
      return (await new compat.Trainer({ ...parts, optimizer: {} }).trainEpoch(coordinator, 2)).length === 2
    },
    'Trainer.step_count': async () => (await trainer()).stepCount === 0,
    'Trainer.get_metrics': async () => (await trainer()).getMetrics() === null,
    'Trainer.reset_metrics': async () => (await trainer()).resetMetrics() === undefined,
    'Trainer.link_buffer': async () => (await trainer()).linkBuffer(await buffer()) === undefined,
    'Trainer.unlink_buffer': async () => (await trainer()).unlinkBuffer() === undefined,
    TrainingMetrics: async () => {
      const one = await trainer()
      await one.train()
      return one.getMetrics() !== null
    },
    data_selector_fn: () => trains({ dataSelectorFn: compat.selectAllData }),
    get_logprobs_fn: () => trains({ getLogprobsFn: (_, evaluate) => evaluate() }),
    metrics_fn: async () => {
      const { seen } = await (await trainer({ metricsFn: () => ({ seen: 7 }) })).train()
      return seen === 7
    },
    max_grad_norm: () => trains({ maxGradNorm: 0.1 }),
    auto_save_lora: async () => {
      const autoSaveLora = await temporaryFolder()
      const world = await talkWorld({
        environment,
        policy: core.languageModel({ width: 16, layers: 1, heads: 2, loraRank: 2 }),
        groupSize: 2,
      })
      const buffer = await new compat.RolloutCoordinator(world, { episodes: 4 }).collect()
      await (await trainer({ model: world, buffer, autoSaveLora })).train()
      return (await text.loadLora(autoSaveLora, world.cohort().model)).weights.length > 0
    },
    gspo: () => trains({ lossFn: compat.gspo.policyLoss }),
    compute_logprobs: async () => {
      const { model, weights } = (await talkWorld({ environment, policy })).cohort()
      return (await text.transformerLogprobs({ model, weights }).logprobs([[1, 2, 3]])).length === 1
    },
  },
  'rollouts: quick reference': {
    run_sft_training: async () => (await learn()).length === 2,
    SFTTrainingConfig: async () => {
      const config: compat.SftTrainingConfig = { numSteps: 1, batchSize: 1, logEvery: 1, checkpointEvery: 1 }
      return (await learn(config)).length === 1
    },
    run_rl_training: async () => (await train()).length === 2,
    RLTrainingConfig: async () => {
      const config = { numSteps: 1, syncEvery: 1, baseline: 0.5, logEvery: 1, checkpointEvery: 1 }
      return (await train(config)).length === 1
    },
    AsyncRolloutManager: async () => {
      const rollouts: compat.AsyncRolloutManager<string> = manager()
      const { rewards } = await rollouts.generateBatch({ rewardFn: () => 3 })
      await rollouts.close()
      return rewards.every((reward) => reward === 3)
    },
    RolloutConfig: async () => {
      const config = { overSamplingFactor: 1.5, rewardFn: () => 1, filterFn: () => true }
      return (await manager(config).generateBatch()).rewards.length === 4
    },
    generate_rollout_batches: async () => {
      const prompts = new data.DataBuffer(['1', '2'])
      const batches = compat.generateRolloutBatches(prompts, { batchSize: 2, generateFn })
      const { value } = await batches.next()
      await batches.return(undefined as never)
      return value.tokens.length === 2
    },
    DataBuffer: () => new data.DataBuffer(['1', '2'], 42).getPrompts(3).length === 3,
    'DataBuffer.save_state': async () => {
      const prompts = new data.DataBuffer(['1', '2'])
      const [first] = prompts.getPrompts(1)
      const again = new data.DataBuffer(['1', '2'])
      await again.loadState(await prompts.saveState())
      return again.getPrompts(1)[0]!.prompt !== first!.prompt
    },
    Sample: () => {
      const begun = { epoch: 0, promptId: 0, group: 0, member: 0, example: { prompt: 'p' }, tokens: [1] }
      return compat.startSample(begun).status === 'pending'
    },
    RolloutBatch: async () =>
      compat.convertToBatch([...(await manager().generateBatch()).samples]).lossMasks.length === 4,
    TrainingBackend: async () => {
      const backend: compat.BatchBackend = await compat.openTrainingBackend({ policy, environment })
      return (await backend.getWeights(3)).version === 3
    },
    TrainFuture: async () => {
      const backend = await openBackend()
      const { samples } = await manager().generateBatch()
      const made = backend.forwardBackward({ samples })
      const stepped = backend.optimStep()
      const { step } = await stepped.result()
      return made.done() && step === 1 && Number.isFinite((await made).loss)
    },
    forward_backward: async () => {
      const made = (await openBackend()).forwardBackward({ tokens: [said.tokens], lossMasks: [said.lossMask] })
      return (await made).loss! > 0
    },
    optim_step: async () => {
      const backend = await openBackend()
      await backend.forwardBackward({ tokens: [said.tokens], lossMasks: [said.lossMask] })
      return (await backend.optimStep()).gradNorm! > 0
    },
    save_checkpoint: async () => {
      const backend = await openBackend()
      const path = await backend.saveCheckpoint(3)
      await backend.loadCheckpoint(path)
      return path.endsWith('step_3.safetensors')
    },
    PyTorchTrainingBackend: openTrainer,
    create_pytorch_backend: openTrainer,
    FSDPTrainingBackend: async () => {
      const world = await talkWorld({ environment, policy, groupSize: 2 })
      const learner = core.createTrainer(world, core.rl({ updates: 1, groupsPerUpdate: 1, groupSize: 2 }), {
        threads: 1,
      })
      await learner.close()
      return true
    },
    FSDPConfig: () => documented['rollouts: quick reference']!.FSDPTrainingBackend!(),
    grpo_loss: () => algorithms.describeLoss('grpo').id === 'grpo',
    ppo_loss: () => algorithms.describeLoss('ppo').id === 'ppo',
    VLLMEngine: async () => talksBy(vllmEngine({ url: (await served()).url })),
    SGLangEngine: async () => talksBy(sglangEngine({ url: (await served()).url })),
    sync_weights_to_engines: async () => {
      const seen: string[] = []
      const updateWeightsFromCheckpoint = async (path: string) => ({ success: seen.push(path) > 0 })
      const answers = await compat.syncWeightsToEngines([{ updateWeightsFromCheckpoint }], 'step_1')
      return answers[0]!.success && seen[0] === 'step_1'
    },
    update_weights_from_checkpoint: async () => {
      const paths: string[] = []
      const updateWeightsFromCheckpoint = async (path: string) => ({ success: paths.push(path) > 0 })
      await train({ syncEvery: 1 }, [{ updateWeightsFromCheckpoint }])
      return paths.length === 3
    },
    load_sft_dataset: async () => {
      const path = join(await temporaryFolder(), 'lessons.jsonl')
      await writeFile(path, '{"prompt":"1","completion":"2"}\n')
      return (await data.loadSftDataset(path)).length === 1
    },
    JSONLLogger: async () => {
      const path = join(await temporaryFolder(), 'metrics.jsonl')
      const logger = new compat.JsonlLogger(path)
      logger.log({ loss: 0.5 }, 42)
      logger.finish()
      return (await readFile(path, 'utf8')) === '{"step":42,"loss":0.5}\n'
    },
    compute_advantages: () => compat.computeAdvantages([1, null], { baseline: 0.5 })[0] === 0.5,
    prepare_grpo_batch: async () =>
      Number.isFinite((await (await openBackend()).forwardBackward(await manager().generateBatch())).loss),
    check_reward_nonzero_std: () => rewards.checkRewardNonzeroStd(group).keep,
    check_min_reward: () => rewards.checkMinReward(group, 0.5).keep,
    check_response_diversity: () => rewards.checkResponseDiversity(group).keep,
    check_quality_and_diversity: () => rewards.checkQualityAndDiversity(group).keep,
  },
  'AReaL: agentic rollout': {
    'Agent.collect_trajectory': async () => await converse(),
    register_agent: () => {
      compat.registerAgent('another', () => agent)
      return compat.makeAgent({ type: 'another' }) === agent
    },
    AgentAbstraction: () => compat.makeAgent({ type: 'documented', args: {} }) === agent,
    EnvServiceAbstraction: () => compat.makeEnvironment({ type: 'documented', args: {} }).reset !== undefined,
    BundledGenerationOutputs: async () => {
      const outputs: string[] = []
      const collectTrajectory: compat.Agent['collectTrajectory'] = async ({ prompt: { qid }, obsQueue, actQueue }) => {
        await obsQueue.put({ qid })
        const act: compat.GenerationOutputs = await actQueue.get()
        outputs.push(...act.outputs)
        return { reward: 0 }
      }
      compat.registerAgent('outputs', () => ({ collectTrajectory }))
      const led = compat.agentEnvironment({
        ...{ agent: { type: 'outputs' }, env: { type: 'documented' }, examples: [{ prompt: '1' }], alphabet: '01' },
      })
      await new compat.RolloutCoordinator(await talkWorld({ environment: led, policy }), { episodes: 1 }).collect()
      return outputs.length === 1
    },
    EnvironmentService: async () => {
      const made = compat.makeEnvironment({ type: 'documented' })
      return (await made.step(['q', ['ab']])).terminated
    },
    register_environment: () => {
      compat.registerEnvironment('more', () => ({ reset: () => ({ observation: 1 }), step: () => null as never }))
      return compat.makeEnvironment({ type: 'more' }) !== null
    },
    MathCodeSingleStepEnv: async () => {
      const example = { prompt: '2+2', answer: '4' }
      const judged = await rewards.mathAccuracyReward()('2+2', '\\boxed{4}', example)
      return (judged as { readonly value: number }).value === 1
    },
    MathMultiTurnAgent: () => core.textEnvironmentFactory('text/math-multi-turn').id === 'text/math-multi-turn',
    apply_chat_template: async () => {
      const { tokenizer } = (
        await talkWorld({ environment, policy: core.languageModel({ width: 16, layers: 1, heads: 2, anyText: true }) })
      ).cohort()
      return text.promptIds(tokenizer, [{ role: 'user', content: 'a' }]).length > 0
    },
  },
}

/** The exports for names that we spell or call differently. */
export const counterparts: Readonly<Record<string, string>> = {
  ...{ load_model: 'loadLanguageModel', create_policy: 'languageModel', TextGenerationEnv: 'defineTextEnvironment' },
  ...{
    'Buffer.sample': 'EpisodeBuffer',
    'Buffer.clear': 'EpisodeBuffer',
    'Environment.step': 'StepResult',
    Buffer: 'EpisodeBuffer',
    TrainingMetrics: 'Trainer',
  },
  ...{ sample_latest_steps: 'EpisodeBuffer', sample_episodes: 'EpisodeBuffer', sample_sequences: 'EpisodeBuffer' },
  ...{ data_selector_fn: 'selectAllData', get_logprobs_fn: 'TrainerParts', metrics_fn: 'TrainerParts' },
  ...{ max_grad_norm: 'TrainerParts', auto_save_lora: 'TrainerParts', compute_logprobs: 'transformerLogprobs' },
  ...{ Sample: 'startSample', RolloutBatch: 'convertToBatch', SFTTrainingConfig: 'SftTrainingConfig' },
  ...{ RLTrainingConfig: 'RlTrainingConfig', JSONLLogger: 'JsonlLogger' },
  ...{ TrainingBackend: 'BatchBackend', forward_backward: 'BatchBackend', optim_step: 'BatchBackend' },
  ...{ save_checkpoint: 'BatchBackend', PyTorchTrainingBackend: 'openTrainingBackend' },
  ...{
    create_pytorch_backend: 'openTrainingBackend',
    FSDPTrainingBackend: 'createTrainer',
    FSDPConfig: 'createTrainer',
  },
  ...{ grpo_loss: 'describeLoss', ppo_loss: 'describeLoss', prepare_grpo_batch: 'openTrainingBackend' },
  ...{ update_weights_from_checkpoint: 'syncWeightsToEngines', AgentAbstraction: 'Abstraction' },
  ...{ EnvServiceAbstraction: 'Abstraction', BundledGenerationOutputs: 'GenerationOutputs' },
  ...{ MathCodeSingleStepEnv: 'mathAccuracyReward', MathMultiTurnAgent: 'textEnvironmentFactory' },
  ...{ apply_chat_template: 'promptIds', VLLMEngine: 'vllmEngine', SGLangEngine: 'sglangEngine' },
}
