/** Exports a trained policy for other software: an ES module for the browser, an ONNX model, and its weights. */
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { cartPole, createTrainer, createWorld, mlp, ppo, saveWeights } from 'colonnade'
import { exportPolicy } from 'colonnade/data'

const [environment, policy] = [cartPole(), mlp({ hidden: [16] })]
const world = await createWorld({ environment, policy, numLanes: 16, seed: 1 })
const trainer = createTrainer(world, ppo({ numSteps: 64, learningRate: 3e-3 }))
for await (const _ of trainer.updates({ totalSteps: 20_000 }));

const { weights } = world.cohorts[0]!
await exportPolicy({ environment, policy, weights, format: 'onnx', out: 'runs/policy.onnx' })
await exportPolicy({ environment, policy, weights, format: 'module', out: 'runs/policy.mjs' })
const model = policy.build(environment.observationSpace, environment.actionSpace)
await saveWeights('runs/policy.safetensors', model, weights, 'BF16')

// A page's use of it: a cart at rest, its pole leaning to the left or the right.
const { act, evaluate } = await import(pathToFileURL(resolve('runs/policy.mjs')).href)
for (const angle of [-0.1, 0.1]) {
  const observation = [0, 0, angle, 0]
  console.log(`angle ${angle}: push ${act(observation) === 0 ? 'left' : 'right'}, worth ${evaluate(observation).value}`)
}
