import { choice, number, type Settings } from '../../base/settings.ts'

export const watchSettings = {
  stallSeconds: number(
    300,
    'seconds after which an unfinished call of an environment or a policy is reported; 0: never',
    {
      min: 0,
    },
  ),
  onStall: choice('continue', ['continue', 'stop'], 'reaction of the run; stop: end with a checkpoint'),
} satisfies Settings
