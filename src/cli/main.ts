#!/usr/bin/env node
/** The command line. */
import { runCommand } from './command.ts'
import { commandIsDone, tellStrayErrors } from './stray.ts'
import { outliveReaders } from './streams.ts'

outliveReaders()
tellStrayErrors()
await runCommand(process.argv.slice(2))
commandIsDone()
