#!/usr/bin/env node
import { outliveReaders } from './show/streams.ts'
/** The command line. */
import { runCommand } from './words/command.ts'
import { commandIsDone, tellStrayErrors } from './words/stray.ts'

outliveReaders()
tellStrayErrors()
await runCommand(process.argv.slice(2))
commandIsDone()
