#!/usr/bin/env node
/** The command line. */
import { outliveReaders } from './show/streams.ts'
import { runCommand } from './words/command.ts'
import { commandIsDone, tellStrayErrors } from './words/stray.ts'

outliveReaders()
tellStrayErrors()
await runCommand(process.argv.slice(2))
commandIsDone()
