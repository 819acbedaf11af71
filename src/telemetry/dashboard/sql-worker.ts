/**
 * The thread in which DuckDB-Wasm answers SQL over an Arrow file, as its table `rows`. DuckDB may not read or write files or load
 * extensions, and a query cannot change that.
 */
import { InputError } from '../../base/errors.ts'
import { findPackage, NotInstalled } from '../../base/files/packages.ts'
import { serve } from '../../base/threads/serve.ts'
import { type ArrowTable, arrowStreams, readArrow } from '../../tables/read-arrow.ts'
import { type ArrowPage, inPage } from './arrow-rows.ts'
import type { SqlTask } from './sql-task.ts'

const { toStream, fromStream } = await arrowStreams()

interface Library {
  createDuckDB(bundles: object, logger: object, runtime: object): Promise<Database>
  readonly VoidLogger: new () => object
  readonly NODE_RUNTIME: object
}
interface Database {
  instantiate(): Promise<unknown>
  open(config: object): void
  connect(): Connection
  /** The answer as bytes of an Arrow stream. */
  runQuery(connection: number, text: string): Uint8Array
}
interface Connection {
  useUnsafe<T>(use: (database: Database, connection: number) => T): T
  insertArrowFromIPCStream(bytes: Uint8Array, options: { name: string; create: boolean }): void
}

const PACKAGE = '@duckdb/duckdb-wasm'
const MEMORY = '2GB'
/** DuckDB's restrictions; the last one locks them. */
const LIMITS = [
  `SET memory_limit = '${MEMORY}'`,
  'SET enable_external_access = false',
  'SET autoinstall_known_extensions = false',
  'SET autoload_known_extensions = false',
  'SET lock_configuration = true',
]

let connection: Connection | undefined
/** The loaded file, and the query whose answer is stored. */
let open: { readonly key: string; answered: string } | undefined

serve<SqlTask>(async ({ path, key, query, from, count }) => {
  connection ??= await start()
  if (open?.key !== key) {
    open = undefined
    run('DROP TABLE IF EXISTS rows')
    const bytes = toStream(await readArrow(path))
    connection.insertArrowFromIPCStream(bytes, { name: 'rows', create: true })
    open = { key, answered: '' }
  }
  if (open.answered !== query) {
    open.answered = ''
    run(`CREATE OR REPLACE TEMP TABLE answer AS SELECT * FROM (${query.replace(/[\s;]+$/, '')}\n)`)
    open.answered = query
  }
  const numFound = Number(run('SELECT count(*) FROM answer').getChildAt(0)!.get(0))
  const page = run(`SELECT * FROM answer LIMIT ${count} OFFSET ${from}`)
  const places = Array.from({ length: page.numRows }, (_, i) => i)
  const answer: ArrowPage = {
    ...(await inPage(page, places)),
    ...{ numRows: numFound, numFound, places: places.map((place) => from + place) },
  }
  return { answer }
})

function run(text: string): ArrowTable {
  return fromStream(connection!.useUnsafe((database, id) => database.runQuery(id, text)))
}

/** @throws InputError if DuckDB-Wasm is not installed. */
async function start(): Promise<Connection> {
  const { require } = found()
  const { createDuckDB, VoidLogger, NODE_RUNTIME } = require(`${PACKAGE}/blocking`) as Library
  const bundle = { mainModule: require.resolve(`${PACKAGE}/dist/duckdb-eh.wasm`), mainWorker: '' }
  const database = await createDuckDB({ mvp: bundle, eh: bundle }, new VoidLogger(), NODE_RUNTIME)
  await database.instantiate()
  database.open({ path: ':memory:', query: { castDecimalToDouble: true } })
  const made = database.connect()
  for (const limit of LIMITS) made.useUnsafe((_, id) => database.runQuery(id, limit))
  return made
}

function found() {
  try {
    return findPackage(PACKAGE)
  } catch (cause) {
    if (!(cause instanceof NotInstalled)) throw cause
    throw new InputError('SQL', `no package ${PACKAGE}`, `npm install ${PACKAGE}`, { cause })
  }
}
