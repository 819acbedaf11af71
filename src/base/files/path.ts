/** Paths of the runtime's file system. A page has another body (`path.page.ts`). */
export { basename, dirname, extname, isAbsolute, join, relative, resolve, sep } from 'node:path'
export { fileURLToPath, pathToFileURL } from 'node:url'
