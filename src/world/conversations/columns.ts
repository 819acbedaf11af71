import { fingerprint, withoutModule } from '../../base/definition.ts'
import { warn } from '../../base/host.ts'
import { Random } from '../../base/random.ts'
import type { Columns } from '../../components/column.ts'
import { localEngine } from '../../engines/local/local.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { StopStrings } from '../../language/tokenizers/stop-strings.ts'
import { startAdapter } from '../../language/transformer/dora.ts'
import { type QuantizedColumns, rowTaker, startWeights } from '../../language/transformer/quantized.ts'
import { checkSampling } from '../../language/transformer/sampling.ts'
import { Trajectories } from '../../tables/trajectories/trajectories.ts'
import type { TrajectoryLogColumns } from '../../tables/trajectories/trajectory-log.ts'
import type { Housing } from '../housing.ts'
import { LaneEntities } from '../lanes.ts'
import type { ConversationCohort, ConversationDraft } from './cohort.ts'
import type { ConversationCohortPlan } from './draft.ts'

/** Creates a cohort of conversations over its columns. */
export function createConversations(
  draft: ConversationDraft,
  columns: Columns<ConversationCohortPlan>,
  world: Housing,
  kernels: Kernels,
): ConversationCohort {
  const { options, name, key, opened, examples = null, begins } = draft
  delete draft.begins // The columns now hold these weights.
  const { environment, policy: policyDefinition, numLanes } = options
  const { model, tokenizer, context } = opened
  const { fill, adapter: adapterWeights, notes } = begins!
  const random = new Random(world.seed)
  const quantized = opened.weightBits < 32 ? (columns.quantized as QuantizedColumns) : null
  if (fill === null) startWeights(quantized ?? columns.weights, model, random, key)
  else fill(rowTaker(model, quantized ?? columns.weights))
  const adapter = opened.adapter === null ? null : { lora: opened.adapter, weights: columns.adapter, random }
  if (adapterWeights !== null) columns.adapter.set(adapterWeights)
  else if (adapter !== null) startAdapter(adapter.lora, columns.adapter, random, key, quantized ?? columns.weights)
  const { stopStrings = [], maxTokens = environment.maxTokens, groupSize = 1, explore = true } = options
  const { rewardReduction = 'last', engine: definition = localEngine } = options
  const sampling = checkSampling(options.sampling ?? {})
  const decisions = { seed: world.seed, sampling, stopStrings, maxTokens, groupSize, explore, rewardReduction }
  const chosenBy = definition === localEngine ? [] : [definition.id]
  const asked = options.heldOut === undefined ? [] : [options.heldOut]
  new StopStrings(tokenizer, stopStrings) // Rejects invalid stop strings for every kind of engine.
  const engine = definition.create({
    ...{ model, tokenizer, numSlots: numLanes, context, sampling, explore, stopStrings },
    columns: columns.engine,
    ids: columns.conversation.token,
    weights: quantized ?? columns.weights,
    ...{ adapter, kernels, random },
    tell: (message) => (cohort.onNotice ?? warn)(message),
  })
  const entities = new LaneEntities(world.ecs, [columns.conversation], numLanes)
  const cohort: ConversationCohort = {
    kind: 'conversations',
    name,
    environment,
    policyDefinition,
    model,
    tokenizer,
    numLanes,
    context,
    maxTokens,
    groupSize,
    sampling,
    explore,
    rewardReduction,
    replyMilliseconds: 1000 * (options.replySeconds ?? 60),
    turnMilliseconds: 1000 * (options.turnSeconds ?? 300),
    onLate: null,
    onNotice: null,
    cutTurn: options.cutTurn ?? 'end',
    segmentation: options.segmentation ?? 'interleaved',
    tooLong: options.tooLong ?? 'error',
    examples,
    entities,
    lanes: entities.lanes,
    conversation: columns.conversation,
    engine,
    submitted: new Uint8Array(numLanes),
    breaks: new Uint8Array(numLanes),
    failing: new Array(numLanes).fill(null),
    weights: columns.weights,
    quantized,
    adapter,
    learner: columns.learner,
    random,
    order: columns.order,
    words: columns.words,
    orderEpoch: -1,
    histories: Array.from({ length: numLanes }, () => []),
    replies: new Array(numLanes).fill(null),
    pending: new Array(numLanes).fill(null),
    drawings: Array.from({ length: numLanes }, () => new Map()),
    segments: Array.from({ length: numLanes }, () => []),
    stopStrings,
    released: Number.POSITIVE_INFINITY,
    trajectories: new Trajectories(draft.reservation?.log === undefined ? null : (columns.log as TrajectoryLogColumns)),
    waiting: 0,
    source: `${environment.id} ${fingerprint(withoutModule(environment), withoutModule(policyDefinition), decisions, ...chosenBy, ...asked)}`,
    version: 0,
    isLoaded: opened.folder !== null && opened.isNew !== true,
    notes,
  }
  return cohort
}
