/** Trains until it is killed, with figures for Prometheus and with a page in a thread of its own: `node training-servers.mjs FOLDER`. */
import { openDashboard, prometheus } from '../../dist/src/entries/loggers.js'
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../dist/src/index.js'

const folder = process.argv[2]
const page = await openDashboard({ folder, port: 0, ownThread: true })
const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
const logger = prometheus({ port: 0 })
const loggers = [
  {
    ...logger,
    async open(...told) {
      const opened = await logger.open(...told)
      console.log(`page ${page.url}\nfigures ${new URL(opened.place).origin}`)
      return opened
    },
  },
]
const trainer = createTrainer(world, ppo({ numSteps: 32, numMinibatches: 1, updateEpochs: 1 }), { loggers })
for await (const { update } of trainer.updates({ totalSteps: 2 ** 40 })) {
  if (update % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 20)) // Leaves the machine to those who ask.
}
