/** Ends a test run at once if dist is outdated: a third of the files run the build, and would not see an edit. */
// @ts-expect-error: a program of the build, without types.
import { changedSources, SOURCES, wasDone } from '../../scripts/stamp.mjs'

export default function refuseStale(): void {
  for (const step of Object.keys(SOURCES)) {
    if (step === 'native' && !wasDone(step)) continue // It is built only with a compiler.
    const changed: string[] = changedSources(step)
    if (changed.length === 0) continue
    const which = `${changed[0]}${changed.length > 1 ? ` and ${changed.length - 1} more` : ''}`
    console.error(
      `dist: got a build of other sources (${which}), expected one of those that are here; run npm run build`,
    )
    process.exit(1)
  }
}
