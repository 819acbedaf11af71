import { choice, number, type Settings } from '../../base/settings.ts'

export const watchSettings = {
  stallSeconds: number(
    300,
    'seconds after which a call of an environment or a policy that has not returned is reported; 0: never',
    {
      min: 0,
    },
  ),
  onStall: choice(
    'continue',
    ['continue', 'stop'],
    'what the run does after such a report; stop: end with a checkpoint',
  ),
} satisfies Settings
