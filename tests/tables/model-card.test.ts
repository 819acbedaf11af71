import { expect, test } from 'vitest'
import { modelCard } from '../../src/tables/model-card.ts'

const card = {
  title: 'me/cart-pole',
  library: 'colonnade',
  task: 'reinforcement-learning',
  facts: { policy: 'mlp', steps: 4096, seed: undefined },
  use: 'Play it.',
}

test('a card has a head that hubs read, a table, pictures and what can be done', () => {
  const result = { environment: 'CartPole-v1', mean: 487.333, std: 12.5, episodes: 20 }
  const text = modelCard({ ...card, tags: ['CartPole-v1'], result, pictures: { 'learning curve': 'a curve.svg' } })
  expect(text).toBe(`---
library_name: colonnade
pipeline_tag: reinforcement-learning
tags:
- "reinforcement-learning"
- "colonnade"
- "CartPole-v1"
model-index:
- name: "me/cart-pole"
  results:
  - task:
      type: reinforcement-learning
      name: Reinforcement learning
    dataset:
      name: "CartPole-v1"
      type: "CartPole-v1"
    metrics:
    - type: mean_reward
      value: 487.33 +/- 12.50
      name: mean_reward
      verified: false
---
# me/cart-pole

| | |
|---|---|
| return of 20 fresh episodes | 487.33 ± 12.50 |
| policy | mlp |
| steps | 4096 |

![learning curve](a%20curve.svg)

## Use

Play it.
`)
})

test('what was not judged has no result; names stay texts', () => {
  const text = modelCard({ ...card, title: '<script>\nx | y', tags: ['"quoted": yes'] })
  expect(text).not.toContain('model-index')
  expect(text).toContain('\n# &lt;script> x \\| y\n')
  expect(text).toContain('- "\\"quoted\\": yes"\n')
})
