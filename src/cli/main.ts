#!/usr/bin/env node
/** The command line. */
import { runCommand } from './command.ts'
import { outliveReaders } from './streams.ts'

outliveReaders()
await runCommand(process.argv.slice(2))
