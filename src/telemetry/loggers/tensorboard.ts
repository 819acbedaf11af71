/** TensorBoard event files: numbers (as 32-bit floats), distributions, changing texts, and settings as hyperparameters. */
import { hostname } from 'node:os'
import { appendBytes, listFolder, makeFolder } from '../../base/files/files.ts'
import { text as textSetting } from '../../base/settings.ts'
import {
  event,
  histogram,
  scalar,
  sessionStart,
  settingsBegin,
  settingsEnd,
  summary,
  text,
  version,
} from './event-file.ts'
import { defineLogger, placeOf } from './logger.ts'

const NAME = /^events\.out\.tfevents\.(\d{10})\./

/** A folder of event files: `tensorboard --logdir runs`. */
export const tensorboard = defineLogger({
  id: 'tensorboard',
  settings: { folder: textSetting('', "where event files go; empty: the folder tensorboard in the run's") },
  async open({ folder: told }, training) {
    const folder = await placeOf('tensorboard', told, training, 'tensorboard')
    await makeFolder(folder)
    // TensorBoard reads files in the order of their names, so this name must come last.
    const newest = (await listFolder(folder)).map((name) => Number(NAME.exec(name)?.[1] ?? 0))
    const second = Math.max(Math.floor(Date.now() / 1000), ...newest.map((other) => other + 1))
    const path = `${folder}/events.out.tfevents.${second}.${hostname()}.${process.pid}.0`
    const begun = Date.now()
    const settings = settingsBegin(training.settings, begun)
    appendBytes(path, [
      event(begun, 0, version()),
      ...(training.done > 0 ? [event(begun, training.done + 1, sessionStart())] : []),
      event(begun, 0, summary([settings])),
    ])
    const said = new Map<string, string>()
    return {
      place: folder,
      write(entries) {
        const events = entries.map(({ step, time, values, distributions, texts }) => {
          const news = Object.entries(texts).filter(([name, words]) => said.get(name) !== words)
          for (const [name, words] of news) said.set(name, words)
          return event(
            time,
            step,
            summary([
              ...Object.entries(values).map(([name, value]) => scalar(name, value)),
              ...Object.entries(distributions).map(([name, values]) => histogram(name, values)),
              ...news.map(([name, words]) => text(name, words)),
            ]),
          )
        })
        appendBytes(path, events)
      },
      close(end) {
        const now = Date.now()
        appendBytes(path, [event(now, 0, summary([settingsEnd(end, now)]))])
      },
    }
  },
})
