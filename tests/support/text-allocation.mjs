/**
 * Prints, as JSON, what updates of a language model allocate in one thread: bytes in the heap, in array buffers and in shared
 * buffers, over so many updates of short conversations and of as many long ones. Updates in which garbage was collected are
 * passed over, and the others stand for them. Run with --max-semi-space-size=256.
 */
// Before anything is loaded, since nothing in the runtime counts shared buffers.
let sharedBytes = 0
globalThis.SharedArrayBuffer = new Proxy(SharedArrayBuffer, {
  construct(target, [length, options]) {
    sharedBytes += length
    return new target(length, options)
  },
})

const root = process.env.ROOT ?? new URL('../../', import.meta.url).pathname
const { createTrainer, createWorld, defineTextEnvironment, languageModel, rl } = await import(
  `${root}dist/src/index.js`
)
const { byteTokenizer } = await import(`${root}dist/src/entries/text.js`)

const UPDATES = Number(process.env.UPDATES ?? 800)
const LANES = 8
const SHORT = 8
const LONG = Number(process.env.LONG ?? 72)

/** Nothing but its budget ends a conversation. */
const environment = (maxTokens) =>
  defineTextEnvironment({
    id: 'text/budget',
    settings: {},
    make: () => ({
      numExamples: 8,
      maxTokens,
      example: (index) => ({ prompt: String(index) }),
      respond: ({ exampleIndex }) => ({ reward: exampleIndex % 3 }),
    }),
  })()

const policy = (critic) => ({
  id: 'endless',
  parameters: {},
  async open() {
    // One micro-batch takes all conversations, the short and the long ones: each has objects of its own.
    const shape = { width: 8, layers: 1, heads: 1, context: LANES * (LONG + 4), anyText: true, critic }
    const opened = await languageModel(shape).open(environment(1))
    // Without an end; and without words, since the strings that an environment is told are not what is measured.
    return { ...opened, tokenizer: { ...byteTokenizer(), endIds: [], decode: () => '' } }
  },
})

/** Bytes that an update of conversations of so many tokens allocates: the mean without the least and greatest tenth, as some compile code. */
async function allocated(maxTokens, { sampling = {}, ...settings }) {
  const world = await createWorld({
    environment: environment(maxTokens),
    policy: policy(settings.loss === 'ppo'),
    numLanes: LANES,
    groupSize: 4,
    sampling,
    seed: 1,
  })
  const updates = UPDATES + 300
  const trainer = createTrainer(
    world,
    rl({ updates, groupSize: 4, groupsPerUpdate: LANES / 4, ...sampling, ...settings }),
  )
  const all = { heap: [], buffers: [], tokens: [] }
  let before = process.memoryUsage()
  for await (const { step, rl } of trainer.updates()) {
    const after = process.memoryUsage()
    const [heap, buffers] = [after.heapUsed - before.heapUsed, after.arrayBuffers - before.arrayBuffers]
    if (step === updates - UPDATES) sharedBytes = 0
    if (step > updates - UPDATES && heap >= 0 && buffers >= 0) {
      all.heap.push(heap)
      all.buffers.push(buffers)
      all.tokens.push(rl.trainedTokens)
    }
    before = process.memoryUsage()
  }
  const mean = (numbers) => {
    const tenth = Math.floor(numbers.length / 10)
    const middle = numbers.toSorted((a, b) => a - b).slice(tenth, numbers.length - tenth)
    return middle.reduce((sum, number) => sum + number, 0) / middle.length
  }
  const [tokens, heap, buffers] = [mean(all.tokens), mean(all.heap), mean(all.buffers)]
  return { counted: all.heap.length, tokens, heap, buffers, shared: sharedBytes / UPDATES }
}

const { LOSS = 'ppo', SAMPLING = '{"topK":32,"topP":0.9}' } = process.env
const cases = { [`${LOSS}, ${SAMPLING}`]: { loss: LOSS, sampling: JSON.parse(SAMPLING) } }
const measured = {}
for (const [name, settings] of Object.entries(cases)) {
  const short = await allocated(SHORT, settings)
  const long = await allocated(LONG, settings)
  measured[name] = { short, long }
}
console.log(JSON.stringify(measured))
