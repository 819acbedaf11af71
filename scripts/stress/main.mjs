// npm run stress -- rewards [--load 8] [--count 1000] [--seed 1]
import { parseArgs } from 'node:util'
import { stressRewards } from './rewards.mjs'

const rooms = { rewards: stressRewards }
const options = { load: { type: 'string' }, count: { type: 'string' }, seed: { type: 'string' } }
const { positionals, values } = parseArgs({ options, allowPositionals: true })
const stress = rooms[positionals[0]]
if (stress === undefined) throw new Error(`a room is one of ${Object.keys(rooms).join(', ')}`)
const numbers = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value)]))
process.exitCode = (await stress(numbers)) ? 0 : 1
