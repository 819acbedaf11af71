/** Where a model's columns may lie, and the memory of one that is used outside of a world. */
import { takeArena } from '../../components/arena.ts'
import { type Columns, elementBytes, isColumnSpec, type Plan } from '../../components/column.ts'
import { bestKernelBuild, createKernels } from '../../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../kernels/kernels.ts'

/** Columns from this size on are worth a place of their own. */
const APART_BYTES = 65_536

/** Whether a build's kernels take columns outside of WebAssembly's memory. */
export function reachesApart(build: KernelBuild): boolean {
  return build === 'native' || build === 'plain'
}

/** The same plan, whose large columns may lie outside of WebAssembly's memory if the kernels reach them there. */
export function apart<P extends Plan>(plan: P, build: KernelBuild): P {
  if (!reachesApart(build)) return plan
  const marked = Object.entries(plan).map(([name, node]) => {
    if (!isColumnSpec(node)) return [name, apart(node, build)]
    return [name, node.rows * node.width * elementBytes[node.type] < APART_BYTES ? node : { ...node, apart: true }]
  })
  return Object.fromEntries(marked) as P
}

/** Takes the columns of a plan, with kernels that reach them. @throws InputError for a plan that does not fit. */
export function takeColumns<P extends Plan>(
  plan: P,
  build: KernelBuild = bestKernelBuild(),
): { readonly columns: Columns<P>; readonly kernels: Kernels } {
  const { arena, columns } = takeArena(apart(plan, build))
  return { columns, kernels: createKernels(arena.memory, build, arena.columns) }
}
